# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every example builds against an installed package, by CMake and by pkg-config, and its numbers hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import installed
import pytest
from installed import ROOT, library_folder, run

EXAMPLES = {"c": "attention", "cpp": "decoder"}
STRICT = "-Wall -Wextra -Wpedantic -Werror"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed.install(tmp_path_factory.mktemp("prefix"))


def hip_include() -> str:
    return installed.cache("FMHA_HIP_PATH") + "/include"


def with_cmake(source: Path, prefix: Path, folder: Path, device: str) -> None:
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DHIP_INCLUDE_DIR={hip_include()}"]
    options += [f"-DCMAKE_C_FLAGS={STRICT}", f"-DCMAKE_CXX_FLAGS={STRICT}"]
    if device == "emulator":
        emulator = library_folder(prefix) / "fmha_rocm" / "emulator"
        options.append(f"-DHIP_LIBRARY={emulator / 'libamdhip64.so'}")
    run("cmake", "-G", "Ninja", "-S", source, "-B", folder, *options)
    run("cmake", "--build", folder)


def with_pkg_config(source: Path, prefix: Path, folder: Path, device: str) -> None:
    libdir = library_folder(prefix)
    installed.pkg_config(prefix, "--exists")  # or skip
    variables = [f"OUT={folder}", f"HIP_INCLUDE={hip_include()}"]
    if device == "emulator":
        variables.append(f"HIP_LIB={libdir / 'fmha_rocm' / 'emulator'}")
    command: list[str | Path] = ["make", "-C", source, *variables]
    run(*command, CFLAGS=STRICT, CXXFLAGS=STRICT, PKG_CONFIG_PATH=str(libdir / "pkgconfig"))


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
    program = tmp_path / EXAMPLES[example]
    output = run(program)
    assert output.endswith("right\n")
    assert f"fmha_rocm {installed.VERSION}" in output
    if device_kind == "emulator":  # the installed one, and no other of this machine
        used = re.search(r"\S+libamdhip64[^\s,]*", output)
        assert used
        assert Path(used[0]).resolve().is_relative_to(library_folder(prefix))
    if example == "cpp":
        assert run(program, "--one-by-one").split("\n")[3:] == output.split("\n")[3:]


@pytest.mark.parametrize(
    ("example", "before", "after"),
    [("c", "params.mask = FMHA_MASK_CAUSAL;", ""), ("cpp", "p.seqused_k = used_k_.device();", "")],
)
def test_wrong_numbers_are_noticed(
    prefix: Path, tmp_path: Path, device_kind: str, example: str, before: str, after: str
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    source = tmp_path / "examples" / example
    text = next(path for path in source.iterdir() if path.stem == EXAMPLES[example])
    assert before in text.read_text()
    text.write_text(text.read_text().replace(before, after))
    with_pkg_config(source, prefix, tmp_path, device_kind)
    result = subprocess.run([tmp_path / EXAMPLES[example]], check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout.endswith("WRONG\n"), result.stdout + result.stderr
