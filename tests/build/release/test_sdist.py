# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sdist has every file of the repository, and CMake configures it without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from installed import VERSION

ROOT = Path(__file__).resolve().parents[3]
TOOLCHAIN = ROOT / "build" / "toolchain"
MAKE = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, made by pyproject's backend and unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.iterdir()
    assert archive.name == f"pyfa_rocm-{VERSION}.tar.gz"
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / f"pyfa_rocm-{VERSION}"


def test_it_has_the_files_of_the_repository(sdist: Path) -> None:
    """No file of build/, and nothing is left out; PKG-INFO is added."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: git does not know the files")
    # New files count before they are added.
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    files = {name for name in listed if name and (ROOT / name).exists()}
    packed = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    assert packed == files | {"PKG-INFO"}
    assert f"\nVersion: {VERSION}\n" in (sdist / "PKG-INFO").read_text()


def test_programs_stay_executable(sdist: Path) -> None:
    scripts = [path for path in (ROOT / "native" / "tools").rglob("*.sh") if os.access(path, os.X_OK)]
    assert scripts
    assert [path for path in scripts if not os.access(sdist / path.relative_to(ROOT), os.X_OK)] == []


def test_cmake_configures_it_offline(sdist: Path) -> None:
    """In a network namespace of its own if the system allows one, with the toolchain's folder given."""
    if not TOOLCHAIN.exists():
        pytest.skip("`make build` was not run here: there is no toolchain")
    alone = ["unshare", "--map-root-user", "--net"]
    may = subprocess.run([*alone, "true"], check=False, capture_output=True).returncode == 0
    # FMHA_PREPARE is what a wheel's build sets: toolchain.sh has to find everything there.
    options = {
        "FMHA_PREPARE": "ON",
        "FMHA_TOOLCHAIN_DIR": TOOLCHAIN.resolve(),
        "FMHA_GPU_TARGETS": "gfx942",
        "FMHA_KERNEL_SET": "ci",
        "FMHA_KERNEL_FILTER": "_merge_",
        "FMHA_CACHE": "OFF",
        "BUILD_TESTING": "OFF",
    }
    command = ["cmake", "-G", "Ninja", "-S", str(sdist), "-B", str(sdist / "build")]
    command += [f"-D{name}={value}" for name, value in options.items()]
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FMHA_", "PYFA_"))}
    done = subprocess.run(
        [*(alone if may else []), *command], check=False, capture_output=True, text=True, env=env | nowhere
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    fetched = [line for line in done.stdout.splitlines() if re.match("toolchain: (?!ready)", line)]
    assert fetched == []
    assert (sdist / "build" / "build.ninja").is_file()
