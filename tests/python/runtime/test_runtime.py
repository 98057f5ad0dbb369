# SPDX-License-Identifier: MIT OR Apache-2.0
"""The HIP runtime that a process gets. Each case is a process of its own, since the choice is made once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from inner import REPORT, ok, refused, run

import pyfa_rocm
from pyfa_rocm._runtime import hip, library, paths


@pytest.fixture(scope="module")
def path() -> str:
    """The runtime that this test session uses."""
    return pyfa_rocm.runtime().path


@pytest.fixture(scope="module")
def copies(path: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two more copies of a HIP runtime, as two frameworks would bring them."""
    if not pyfa_rocm.runtime().emulated:
        pytest.skip("a GPU's runtime cannot be copied away from the libraries beside it")
    result = []
    for name in ("a", "b"):
        copy = tmp_path_factory.mktemp(name) / "libamdhip64.so.6"
        shutil.copy(path, copy)
        result.append(str(copy))
    return result


def test_one_runtime_in_this_process(path: str) -> None:
    """hip-python and the library share it."""
    pyfa_rocm.current_device()
    assert hip.mapped_runtimes() == [path]
    assert library.hip_runtime_path() == path


def test_emulator_by_name() -> None:
    path, emulated = ok(REPORT, PYFA_ROCM_DEVICE="emulator").rsplit(" ", 1)
    assert (path, emulated) == (str(paths.emulator_path()), "True")


def test_auto_says_when_it_takes_the_software_device() -> None:
    done = run(REPORT)
    assert done.returncode == 0, done.stderr
    if done.stdout.strip().endswith("True"):
        assert len(done.stderr.strip().splitlines()) == 1
        assert "using the software device" in done.stderr
    else:
        assert done.stderr == ""


def test_gpu_is_never_the_software_device(path: str) -> None:
    if pyfa_rocm.runtime().emulated:
        message = refused(REPORT, PYFA_ROCM_DEVICE="gpu", FMHA_HIP_RUNTIME=path)
        assert "PYFA_ROCM_DEVICE=gpu" in message
        assert "is the software device" in message


def test_unknown_choice() -> None:
    message = refused(REPORT, PYFA_ROCM_DEVICE="cuda")
    assert "PYFA_ROCM_DEVICE: got 'cuda', expected one of auto, gpu, emulator" in message


def test_explicit_path(copies: list[str]) -> None:
    assert ok(REPORT, FMHA_HIP_RUNTIME=copies[0]).split()[0] == copies[0]


def test_no_hip_runtime() -> None:
    """A path that is none: from Python, and from the C library by itself."""
    missing = "/nonexistent/libamdhip64.so"
    assert f"cannot open the HIP runtime {missing}" in refused(REPORT, FMHA_HIP_RUNTIME=missing)
    message = refused(
        "from pyfa_rocm._runtime import library; library.hip_runtime_path()", FMHA_HIP_RUNTIME=missing
    )
    assert message.startswith("pyfa_rocm.errors.HipError: ")
    assert missing in message


def test_no_hip_runtime_anywhere() -> None:
    """Nothing mapped, nothing found: only where this machine has none."""
    done = run("from pyfa_rocm._runtime import library; print(library.hip_runtime_path())")
    if done.returncode == 0:
        pytest.skip(f"this machine has one: {done.stdout}")
    message = done.stderr.strip().splitlines()[-1]
    assert "HipError: no HIP runtime" in message
    for word in ("libamdhip64.so.7", "ROCM_PATH", "/opt/rocm/lib", "FMHA_HIP_RUNTIME"):
        assert word in message


def test_mapped_runtime_wins(copies: list[str]) -> None:
    """Everybody uses the runtime that a framework has already loaded, hip-python included."""
    code = f"import ctypes; ctypes.CDLL({copies[0]!r}); {REPORT}; " + (
        "from pyfa_rocm._runtime import hip, library; pyfa_rocm.current_device(); "
        "print(*hip.mapped_runtimes(), library.hip_runtime_path())"
    )
    first, second = ok(code).splitlines()
    assert first.split()[0] == copies[0]
    assert second.split() == [copies[0], copies[0]]


def test_two_hip_runtimes(copies: list[str]) -> None:
    """Both paths in the message, and a way out."""
    load = f"import ctypes; [ctypes.CDLL(p) for p in {copies!r}]; "
    for ask in (REPORT, "from pyfa_rocm._runtime import library; library.hip_runtime_path()"):
        message = refused(load + ask)
        assert copies[0] in message
        assert copies[1] in message
        assert "FMHA_HIP_RUNTIME" in message
    assert ok(load + REPORT, FMHA_HIP_RUNTIME=copies[1]).split()[0] == copies[1]


def test_hip_python_bound_elsewhere(copies: list[str]) -> None:
    """hip-python cannot be moved once it is bound: an error, not a second runtime."""
    bare = Path(copies[0]).with_name("libamdhip64.so")
    if not bare.exists():
        bare.symlink_to(copies[0])
    first = "from rocm.bindings import hip; hip.hipInit(0); "
    message = refused(
        first + REPORT, LD_LIBRARY_PATH=str(bare.parent), ROCM_PATH="/nonexistent", FMHA_HIP_RUNTIME=copies[1]
    )
    assert "hip-python is already bound to another HIP runtime" in message
    assert copies[1] in message
    # With no other wish, its choice is ours.
    path = ok(first + REPORT, LD_LIBRARY_PATH=str(bare.parent), ROCM_PATH="/nonexistent").split()[0]
    assert Path(path).samefile(copies[0])


def test_contradiction(copies: list[str]) -> None:
    message = refused(REPORT, PYFA_ROCM_DEVICE="emulator", FMHA_HIP_RUNTIME=copies[0])
    assert "FMHA_HIP_RUNTIME: got" in message
    assert "PYFA_ROCM_DEVICE=emulator" in message


def test_too_late_to_choose(copies: list[str]) -> None:
    """fmha_set_hip_runtime after the first use: refused, unless it names the one in use."""
    code = f"""
{REPORT}
from pyfa_rocm._runtime import library
ffi, lib = library.load()
assert lib.fmha_set_hip_runtime(r.path.encode()) == 0
assert lib.fmha_set_hip_runtime({copies[0].encode()!r}) == 1
print(library.last_error())
"""
    message = ok(code, PYFA_ROCM_DEVICE="emulator").splitlines()[-1]
    assert copies[0] in message
    assert "already in use" in message


def test_missing_library() -> None:
    message = refused(REPORT, PYFA_ROCM_LIBRARY="/nonexistent/libfmha_rocm.so")
    assert "PYFA_ROCM_LIBRARY: got '/nonexistent/libfmha_rocm.so'" in message


@pytest.mark.parametrize("part", [0, 1e-6, 1e-4, 0.1, 0.5, 0.9])
def test_a_library_cut_short(part: float, tmp_path: Path) -> None:
    """A full disk leaves one, say. It is refused with a message; no signal comes."""
    whole = paths.library_path().read_bytes()
    file = tmp_path / "libfmha_rocm.so.0"
    file.write_bytes(whole[: int(part * len(whole))])
    message = refused(
        "from pyfa_rocm._runtime import library; library.version()", PYFA_ROCM_LIBRARY=str(file)
    )
    assert message.startswith(f"pyfa_rocm.errors.FmhaError: cannot open {file}: ")
    assert "short" in message or "invalid ELF header" in message


_MACHINE = 18  # where e_machine is in an ELF header
_AARCH64 = 183


def _no_symbols(file: Path) -> str:
    shutil.copy(paths.library_path(), file)
    return "undefined symbol: hipInit"


def _cut_short(file: Path) -> str:
    file.write_bytes(paths.emulator_path().read_bytes()[:5000])
    return "got 5000 bytes, expected at least"


def _text(file: Path) -> str:
    file.write_text("no library\n")
    return "file too short"


def _other_machine(file: Path) -> str:
    image = bytearray(paths.emulator_path().read_bytes())
    image[_MACHINE] = _AARCH64
    file.write_bytes(image)
    return "cannot open shared object file"


def _fifo(file: Path) -> str:
    os.mkfifo(file)
    return "got something else than a regular file"


_BROKEN = [_no_symbols, _cut_short, _text, _other_machine, _fifo]


@pytest.mark.parametrize("make", _BROKEN)
def test_what_is_no_hip_runtime(make: Callable[[Path], str], tmp_path: Path) -> None:
    """Asked for by name: an error of ours, with the loader's words where it has any."""
    file = tmp_path / "libamdhip64.so.6"
    words = make(file)
    message = refused(REPORT, FMHA_HIP_RUNTIME=str(file))
    assert message.startswith("pyfa_rocm.errors.HipError: ")
    assert str(file) in message
    assert words in message


@pytest.mark.parametrize("make", _BROKEN)
def test_the_next_candidate(make: Callable[[Path], str], tmp_path: Path) -> None:
    """Only found: the software device serves, and says what was wrong with it."""
    file = tmp_path / "lib" / "libamdhip64.so.6"
    file.parent.mkdir()
    words = make(file)
    a_driver = "from pyfa_rocm._runtime import hip; hip._DRIVER_FILES = ('/dev/null',); "
    done = run(a_driver + REPORT, ROCM_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    if not done.stdout.strip().endswith("True"):
        pytest.skip(f"this machine has a GPU: {done.stdout}")
    assert str(file) in done.stderr
    assert words in done.stderr


def test_a_function_that_the_runtime_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise RuntimeError("failed to dlsym 'hipMemGetInfo'")

    monkeypatch.setattr(hip.module(), "hipMemGetInfo", lacking)
    with pytest.raises(pyfa_rocm.HipError, match=r"hipMemGetInfo: failed to dlsym.*libamdhip64"):
        hip.call("hipMemGetInfo")


@pytest.mark.parametrize("name", ["é".encode(), b"\xff"])
@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {}])
def test_a_path_that_the_locale_cannot_say(
    copies: list[str], name: bytes, locale: dict[str, str], tmp_path: Path
) -> None:
    """Odd paths of the HIP runtime and of our library work: both are opened, and arrays have memory."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/" + name)
    Path(folder).mkdir()
    files = [
        shutil.copy(copies[0], f"{folder}/libamdhip64.so.6"),
        shutil.copy(paths.library_path(), f"{folder}/libfmha_rocm.so.0"),
    ]
    code = "import numpy, pyfa_rocm; print(pyfa_rocm.DeviceArray.from_numpy(numpy.ones(3)).to_numpy().sum())"
    assert ok(code, FMHA_HIP_RUNTIME=files[0], PYFA_ROCM_LIBRARY=files[1], **locale) == "3.0"
