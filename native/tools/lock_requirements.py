# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pin what the build installs with pip, by hash: ``lock_requirements.py`` writes both files anew.

- ``venv-requirements.txt``: what build/venv has, pyproject's dependencies and its extras test and lint;
- ``wheel-requirements.txt``: what builds and checks a wheel.

pip itself resolves them, for each Python that pyproject allows on Linux for x86-64, and the wheels that it
would take are named. It needs a package index, installs nothing, and takes some minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

TOOLS = Path(__file__).resolve().parent
PYPROJECT = TOOLS.parents[1] / "pyproject.toml"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# Of any Linux that the wheel is for: glibc up to that of native/cmake/Portable.cmake.
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(5, 29)),
    "manylinux2014_x86_64",
    "linux_x86_64",
)
HEAD = """# SPDX-License-Identifier: MIT OR Apache-2.0
# Written by native/tools/lock_requirements.py, from pyproject.toml.
"""

Wheel = tuple[str, str, str]  # name, version, hash


def wanted() -> dict[str, list[str]]:
    """The requirements of each file."""
    command = [sys.executable, str(TOOLS / "requirements.py"), str(PYPROJECT)]
    venv = subprocess.run([*command, "test", "lint"], check=True, capture_output=True, text=True)
    build = subprocess.run([*command, "--build"], check=True, capture_output=True, text=True)
    return {
        "venv-requirements.txt": venv.stdout.splitlines(),
        "wheel-requirements.txt": ["auditwheel", "build", *build.stdout.splitlines()],
    }


def ask_pip(requirements: list[str], python: str) -> list[dict[str, Any]]:
    """What pip would install for this Python, but by the markers of the one that runs."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation", "cp"]
        command += ["--python-version", python, "--target", folder, "--report", str(report)]
        command += [f"--platform={platform}" for platform in PLATFORMS]
        subprocess.run([*command, *requirements], check=True)
        items: list[dict[str, Any]] = json.loads(report.read_text())["install"]
        return items


def left_out(items: list[dict[str, Any]], python: str) -> list[str]:
    """What these need on this Python, and pip did not see: tomli before 3.11, for one."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    names = {canonicalize_name(item["metadata"]["name"]) for item in items}
    found = set()
    for item in items:
        for line in item["metadata"].get("requires_dist", ()):
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate(environment):
                continue
            if canonicalize_name(needed.name) not in names:
                found.add(f"{needed.name}{needed.specifier}")
    return sorted(found)


def resolve(requirements: list[str], python: str) -> list[Wheel]:
    """The wheels that pip would take on this Python."""
    items = ask_pip(requirements, python)
    while more := left_out(items, python):
        requirements = [*requirements, *more]
        items = ask_pip(requirements, python)
    return [
        (
            canonicalize_name(item["metadata"]["name"]),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in items
    ]


def locked(by_python: dict[str, list[Wheel]]) -> str:
    """The file: a line a version, with the Pythons that take it unless all do, and its wheels' hashes."""
    found: dict[tuple[str, str], tuple[list[str], set[str]]] = {}
    for python, wheels in by_python.items():
        for name, version, sha256 in wheels:
            pythons, hashes = found.setdefault((name, version), ([], set()))
            pythons.append(python)
            hashes.add(sha256)
    lines = []
    for (name, version), (pythons, hashes) in sorted(found.items()):
        marker = " or ".join(f'python_version == "{python}"' for python in pythons)
        line = f"{name}=={version}" + (f" ; {marker}" if len(pythons) < len(by_python) else "")
        lines.append(" \\\n    ".join([line, *(f"--hash=sha256:{sha256}" for sha256 in sorted(hashes))]))
    return HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write both files."""
    files = wanted()
    pairs = [(name, python) for name in files for python in PYTHONS]
    with ThreadPoolExecutor() as pool:  # pip mostly waits for the index
        wheels = dict(zip(pairs, pool.map(lambda pair: resolve(files[pair[0]], pair[1]), pairs), strict=True))
    for name in files:
        (TOOLS / name).write_text(locked({python: wheels[name, python] for python in PYTHONS}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
