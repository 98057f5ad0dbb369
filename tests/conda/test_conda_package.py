# SPDX-License-Identifier: MIT OR Apache-2.0
"""The conda package that test_conda.sh has built: for any Python, whole, and proved by its own test."""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "conda"
RECIPE: dict[str, Any] = yaml.safe_load((ROOT / "native" / "tools" / "wheel" / "recipe.yaml").read_text())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack it."""
    (path,) = (OUT / "linux-64").glob("pyfa-rocm-*.conda")
    folder = tmp_path_factory.mktemp("package")
    with zipfile.ZipFile(path) as outer:
        for name in outer.namelist():
            if name.endswith(".tar.zst"):
                plain = subprocess.run(
                    ["zstd", "-dc"], input=outer.read(name), check=True, capture_output=True
                )
                with tarfile.open(fileobj=io.BytesIO(plain.stdout)) as packed:
                    packed.extractall(folder, filter="data")
    return folder


def test_it_is_for_every_python(package: Path) -> None:
    """It has no folder of a version of Python; conda puts it into that of the one at hand."""
    index = json.loads((package / "info" / "index.json").read_text())
    assert (index["name"], index["subdir"], index["noarch"]) == ("pyfa-rocm", "linux-64", "python")
    asked = {line for line in index["depends"] if not line.startswith("__glibc")}
    assert asked == set(RECIPE["requirements"]["run"])
    assert [line for line in index["depends"] if line.startswith("__glibc")] == ["__glibc >=2.28,<3.0.a0"]
    assert {path.name for path in package.iterdir()} == {"info", "python-scripts", "site-packages"}


def test_it_has_the_files_of_the_wheel(package: Path) -> None:
    site = package / "site-packages"
    ours = {path.relative_to(ROOT / "pyfa_rocm") for path in (ROOT / "pyfa_rocm").rglob("*.py")}
    assert {path for path in ours if not (site / "pyfa_rocm" / path).is_file()} == set()
    for name in ("libfmha_rocm.so.0", "libfmha_rocm_jax.so", "fmha_rocm/emulator/libamdhip64.so.6"):
        assert (site / "pyfa_rocm" / "lib" / name).is_file(), name
    assert (site / "pyfa_rocm" / "include" / "fmha_rocm.h").is_file()
    (information,) = site.glob("pyfa_rocm-*.dist-info")
    licences = {path.stem for path in (information / "licenses" / "third-party").iterdir()}
    assert {"composable_kernel", "hip", "rocm-device-libs", "zstd", "nlohmann-json"} <= licences


@pytest.mark.parametrize("name", ["libfmha_rocm.so.0", "fmha_rocm/emulator/libamdhip64.so.6"])
def test_libraries_need_only_libc(name: str, package: Path) -> None:
    """They need nothing of the environment that they were built in."""
    path = package / "site-packages" / "pyfa_rocm" / "lib" / name
    said = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
    assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
    assert b"placehold_placehold" not in path.read_bytes()


def test_its_own_test_ran() -> None:
    """rattler-build installed it into a new environment, with what it asks for, and proved it."""
    log = (OUT / "log.txt").read_text()
    _, _, tested = log.partition("Collecting tests from")
    assert "pyfa-rocm prove" in tested
    assert re.search(r"✔ all tests passed|all tests passed", tested)
