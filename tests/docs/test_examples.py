# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every example builds against an installed package, by CMake, pkg-config or cargo, and its numbers hold.

Those in Python run on the checkout. test_installed_examples.py runs them on an installed wheel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import installed
import pytest
from installed import ROOT, library_folder, run
from pages.python_examples import FOLDER, PROGRAMS, run_program
from pages.rust_example import Cargo

EXAMPLES = {"c": ("attention",), "cpp": ("decoder", "server")}
RUST = ROOT / "examples" / "rust"
STRICT = "-Wall -Wextra -Wpedantic -Werror"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed.install(tmp_path_factory.mktemp("prefix"))


def hip_include() -> str:
    return installed.cache("FMHA_HIP_PATH") + "/include"


def emulator_of(prefix: Path) -> Path:
    return library_folder(prefix) / "fmha_rocm" / "emulator" / "libamdhip64.so"


def with_cmake(source: Path, prefix: Path, folder: Path, device: str) -> None:
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DHIP_INCLUDE_DIR={hip_include()}"]
    options += [f"-DCMAKE_C_FLAGS={STRICT}", f"-DCMAKE_CXX_FLAGS={STRICT}"]
    if device == "emulator":
        options.append(f"-DHIP_LIBRARY={emulator_of(prefix)}")
    run("cmake", "-G", "Ninja", "-S", source, "-B", folder, *options)
    run("cmake", "--build", folder)


def with_pkg_config(source: Path, prefix: Path, folder: Path, device: str) -> None:
    libdir = library_folder(prefix)
    installed.pkg_config(prefix, "--exists")  # or skip
    variables = [f"OUT={folder}", f"HIP_INCLUDE={hip_include()}"]
    if device == "emulator":
        variables.append(f"HIP_LIB={emulator_of(prefix).parent}")
    command: list[str | Path] = ["make", "-C", source, *variables]
    run(*command, CFLAGS=STRICT, CXXFLAGS=STRICT, PKG_CONFIG_PATH=str(libdir / "pkgconfig"))


def require_right(output: str, prefix: Path, device: str) -> None:
    """An example's output: its numbers are right, and it ran what is installed."""
    assert output.endswith("right\n")
    assert f"fmha_rocm {installed.VERSION}" in output
    if device == "emulator":  # the installed one, and no other of this machine
        used = re.search(r"\S+libamdhip64[^\s,]*", output)
        assert used
        assert Path(used[0]).resolve().is_relative_to(library_folder(prefix))


@pytest.mark.parametrize("build", [with_cmake, with_pkg_config])
@pytest.mark.parametrize("example", EXAMPLES)
def test_example(
    prefix: Path,
    tmp_path: Path,
    device_kind: str,
    monkeypatch: pytest.MonkeyPatch,
    example: str,
    build: Callable[[Path, Path, Path, str], None],
) -> None:
    for variable in ("FMHA_HIP_RUNTIME", "LD_LIBRARY_PATH", "MAKEFLAGS", "MFLAGS"):
        monkeypatch.delenv(variable, raising=False)
    build(ROOT / "examples" / example, prefix, tmp_path, device_kind)
    outputs = {name: run(tmp_path / name) for name in EXAMPLES[example]}
    for output in outputs.values():
        require_right(output, prefix, device_kind)
    if example == "cpp":
        one_by_one = run(tmp_path / "decoder", "--one-by-one")
        assert one_by_one.split("\n")[3:] == outputs["decoder"].split("\n")[3:]


@pytest.mark.parametrize(
    ("program", "before", "after"),
    [
        ("c/attention.c", "params.mask = FMHA_MASK_CAUSAL;", ""),
        ("cpp/decoder.cc", "p.seqused_k = used_k_.device();", ""),
        ("cpp/server.cc", "f.seqused_k = after_.device();", "f.seqused_k = before_.device();"),
    ],
)
def test_wrong_numbers_are_noticed(
    prefix: Path, tmp_path: Path, device_kind: str, program: str, before: str, after: str
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    source = tmp_path / "examples" / program
    assert before in source.read_text()
    source.write_text(source.read_text().replace(before, after))
    with_pkg_config(source.parent, prefix, tmp_path, device_kind)
    result = subprocess.run([tmp_path / source.stem], check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.endswith("WRONG\n"), result.stdout + result.stderr


def test_rust(prefix: Path, tmp_path: Path, device_kind: str) -> None:
    """Found by pkg-config for the tests, by a variable for the example, which also sees wrong numbers."""
    cargo = Cargo(RUST, tmp_path, emulator_of(prefix) if device_kind == "emulator" else None)
    pkg_config = installed.program("pkg-config", "pkgconf")
    folder = str(library_folder(prefix) / "pkgconfig")
    by_pkg_config = {"PKG_CONFIG": pkg_config, "PKG_CONFIG_PATH": folder, "PKG_CONFIG_LIBDIR": folder}
    by_prefix = {"FMHA_ROCM_PREFIX": str(prefix)}

    tests = cargo("test", "--workspace", **by_pkg_config)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert "warning" not in tests.stderr, tests.stderr
    written = sum(path.read_text().count("#[test]") for path in cargo.source.rglob("*.rs"))
    assert sum(map(int, re.findall(r"ok\. (\d+) passed", tests.stdout))) >= written > 0

    example = cargo("run", "--example", "attention", **by_prefix)
    assert example.returncode == 0, example.stdout + example.stderr
    require_right(example.stdout, prefix, device_kind)

    source = cargo.source / "fmha-rocm" / "examples" / "attention.rs"
    call = "flash_attn(&q, &k, &v, 0.125, true)"
    assert call in source.read_text()
    source.write_text(source.read_text().replace(call, call.replace("true", "false")))
    wrong = cargo("run", "--example", "attention", **by_prefix)
    assert (wrong.returncode, wrong.stdout.splitlines()[-1]) == (1, "WRONG"), wrong.stdout + wrong.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"FMHA_ROCM_PREFIX": "/nowhere"}, "FMHA_ROCM_PREFIX: got /nowhere, expected an installed prefix"),
        ({"PKG_CONFIG": "/nowhere/pkg-config"}, 'cannot run "/nowhere/pkg-config"'),
    ],
)
def test_rust_says_what_is_missing(tmp_path: Path, variables: dict[str, str], words: str) -> None:
    result = Cargo(RUST, tmp_path)("build", "--package", "fmha-rocm-sys", **variables)
    assert result.returncode != 0
    assert words in result.stderr
    assert "PKG_CONFIG_PATH" in result.stderr  # what to do


@pytest.mark.parametrize("name", PROGRAMS)
def test_python(name: str) -> None:
    code, output = run_program(name)
    assert (code, output.splitlines()[-1]) == (0, "right"), output


def test_python_notices_wrong_numbers(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "python")
    source = tmp_path / "python" / "raw_pointers.py"
    assert 'mask="causal"' in source.read_text()
    source.write_text(source.read_text().replace('mask="causal"', 'mask="none"'))
    code, output = run_program("raw_pointers", source.parent)
    assert (code, output.splitlines()[-1]) == (1, "WRONG"), output
