# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stubs for absent ROCm libraries: a program that wants them loads, and hears what it calls in vain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clients import stubs

# A client that calls rocBLAS, and has it only by way of rocSOLVER.
CLIENT = """
int rocblas_create_handle(void **), rocblas_sgemm(void), rocsolver_sgetrf(void);
int create(void) {
  void *handle = 0;
  return rocblas_create_handle(&handle) || !handle;
}
int multiply(void) { return rocblas_sgemm(); }
int solve(void) { return rocsolver_sgetrf(); }
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It, and beside it empty libraries of the names that it was linked to."""
    folder = tmp_path_factory.mktemp("stubs")
    command = ["gcc", "-shared", "-fPIC", "-xc", "-", "-xnone", "-Wl,--no-as-needed"]
    libraries = [folder / "librocblas.so.5", folder / "librocsolver.so.0"]
    for library in libraries:
        name = f"-Wl,-soname,{library.name}"
        subprocess.run([*command, name, "-o", library], input="", check=True, text=True)
    client = folder / "client.so"
    subprocess.run([*command, *libraries, "-o", client], input=CLIENT, check=True, text=True)
    return client


def call(client: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Call a function of the client's."""
    return subprocess.run(
        [sys.executable, "-c", f"import ctypes; raise SystemExit(ctypes.CDLL({str(client)!r}).{name}())"],
        env=os.environ | {"LD_LIBRARY_PATH": str(client.parent)},
        check=False,
        capture_output=True,
        text=True,
    )


def test_stubs(client: Path) -> None:
    assert "undefined symbol: roc" in call(client, "create").stderr
    built = stubs.build(client.parent, [client])
    assert [library.name for library in built] == ["librocblas.so.5", "librocsolver.so.0"]
    assert "librocblas.so.5" in stubs.needed([client.parent / "librocsolver.so.0"])
    assert call(client, "create").returncode == 0
    for name, function in (("solve", "rocsolver_sgetrf"), ("multiply", "rocblas_sgemm")):
        done = call(client, name)
        assert done.returncode == -signal.SIGABRT
        library = "librocsolver.so.0" if name == "solve" else "librocblas.so.5"
        assert done.stderr == f"{function}: called, but {library} is a stub of tests/clients/stubs.py\n"


def test_brought_along(tmp_path: Path) -> None:
    """Stubs hold the functions a client calls of libraries that it loads only by way of others."""
    command = ["gcc", "-shared", "-fPIC", "-xc", "-", "-xnone", "-Wl,--no-as-needed"]
    libraries = [tmp_path / "libhipblas.so.3", tmp_path / "libhiprand.so.1"]
    for library in libraries:
        subprocess.run(
            [*command, f"-Wl,-soname,{library.name}", "-o", library], input="", check=True, text=True
        )
    client = tmp_path / "client.so"
    text = """
    int rocblas_create_handle(void **), rocblas_sgemm(void), hipblasSgemm(void), rocrand_generate(void);
    int create(void) { void *handle = 0; return rocblas_create_handle(&handle) || !handle; }
    int multiply(void) { return rocblas_sgemm() + hipblasSgemm(); }
    int draw(void) { return rocrand_generate(); }
    """
    subprocess.run([*command, *libraries, "-o", client], input=text, check=True, text=True)
    assert [library.name for library in stubs.build(tmp_path, [client])] == [
        "libhipblas.so.3",
        "libhiprand.so.1",
    ]
    assert call(client, "create").returncode == 0
    for name, function, stub in (
        ("multiply", "rocblas_sgemm", "libhipblas.so.3"),
        ("draw", "rocrand_generate", "libhiprand.so.1"),
    ):
        told = call(client, name).stderr
        assert told == f"{function}: called, but {stub} is a stub of tests/clients/stubs.py\n"


def test_rocrand_itself(tmp_path: Path) -> None:
    """A client may name librocrand."""
    command = ["gcc", "-shared", "-fPIC", "-xc", "-", "-xnone", "-Wl,--no-as-needed"]
    library, client = tmp_path / "librocrand.so.1", tmp_path / "client.so"
    subprocess.run([*command, f"-Wl,-soname,{library.name}", "-o", library], input="", check=True, text=True)
    text = "int rocrand_generate(void); int draw(void) { return rocrand_generate(); }"
    subprocess.run([*command, library, "-o", client], input=text, check=True, text=True)
    assert [built.name for built in stubs.build(tmp_path, [client])] == ["librocrand.so.1"]
    assert "rocrand_generate: called" in call(client, "draw").stderr
