# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pin what is installed with pip, by hash: ``lock_requirements.py [FILE...]`` writes all files, or these.

- ``demo-requirements.txt``: what build/venv has for the demo, pyproject's dependencies;
- ``venv-requirements.txt``: what it has for tests, with its extras test and lint too;
- ``wheel-requirements.txt``: what builds and checks a wheel;
- ``sbom-requirements.txt``: what lists the parts of a wheel for a release;
- ``evidence-requirements.txt``: what build/evidence-venv has, which draws the page of evidence;
- ``site-requirements.txt``: what build/site-venv has, which makes a site of the documentation;
- ``conda-requirements.txt``: what builds the conda package;
- ``tests/adapters/requirements.txt``: what build/adapters-venv has beside the wheel and torch, and
  ``requirements-cuda.txt``: torch as the package index has it, and what only that needs;
- ``tests/clients/with_NAME/requirements.txt``: what build/clients-NAME-venv has, pyproject's dependencies,
  its extra test, and what ``requirements.in`` says. If that begins with ``--no-deps``, it is the wheels of
  the packages that it names and nothing else, for build/clients/NAME. Behind that, ``--no-binary NAME`` says
  that a package has no wheel: pip is to build one of its sources;
- ``tests/engines/with_NAME/requirements.txt``: likewise what build/engines-NAME-venv has beside torch. An
  engine may ask for torch of PyTorch's own index, which pip does not find by itself: a folder with that wheel
  is to be in PYFA_ROCM_TORCH_WHEELS.

pip itself resolves them, for each Python that pyproject allows on Linux for x86-64, and the wheels that it
would take are named. It needs a package index, installs nothing, and takes some minutes; a pip before 24
downloads every wheel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

FETCH = Path(__file__).resolve().parent
ROOT = FETCH.parents[2]
ADAPTERS = ROOT / "tests" / "adapters"
CLIENTS = ROOT / "tests" / "clients"
ENGINES = ROOT / "tests" / "engines"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# The wheel runs with the glibc of native/cmake/Portable.cmake or a newer one; clients and engines with CI's.
GLIBC, GLIBC_OF_CI = 28, 36
TORCH = "(?:cuda-.*|nvidia-.*|torch|triton)"  # it and what only its build for CUDA needs
# And what else is of one version of torch, which engines ask for and do not need.
OF_ENGINES = "(?:cuda-.*|nvidia-.*|torch.*|triton)"
ENGINE_PYTHONS = ("3.11",)  # of CI, which has torch for it
EVIDENCE = ("jinja2>=3", "markdown-it-py>=3", "matplotlib>=3.7")
CONDA = ("py-rattler-build>=0.73",)
SITE = ("furo>=2024", "myst-parser>=4", "sphinx>=8")
NO_BINARY = "--no-binary "
HEAD = """# SPDX-License-Identifier: MIT OR Apache-2.0
# Written by native/tools/fetch/lock_requirements.py, from {source}.
"""

Wheel = tuple[str, str, str]  # name, version, hash


@dataclass(frozen=True)
class File:
    """A file of pinned requirements: where they are declared, what they are, and for which Pythons."""

    source: str
    requirements: list[str]
    pythons: tuple[str, ...] = PYTHONS
    no_deps: bool = False
    sources: tuple[str, ...] = ()  # packages that have no wheel
    names: str = ".*"  # of the packages that it names
    glibc: int = GLIBC  # 2.glibc is the newest that they may need

    @property
    def platforms(self) -> tuple[str, ...]:
        """Names of the platforms whose wheels will do."""
        numbered = (f"manylinux_2_{minor}_x86_64" for minor in range(5, self.glibc + 1))
        return (*numbered, "manylinux2014_x86_64", "linux_x86_64")


def declared(*arguments: str) -> list[str]:
    """Return the lines that requirements.py prints."""
    command = [sys.executable, str(FETCH / "requirements.py"), str(ROOT / "pyproject.toml"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file of requirements, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def wanted() -> dict[Path, File]:
    """All files."""
    adapters = lines_of(ADAPTERS / "requirements.in")
    torch = [line for line in adapters if line.startswith("torch=")]
    build = ["auditwheel", "build", *declared("--build")]
    files = {
        FETCH / "demo-requirements.txt": File("pyproject.toml", declared()),
        FETCH / "venv-requirements.txt": File("pyproject.toml", declared("test", "lint")),
        FETCH / "wheel-requirements.txt": File("pyproject.toml", build),
        FETCH / "sbom-requirements.txt": File("lock_requirements.py", ["cyclonedx-bom"], PYTHONS[1:]),
        FETCH / "evidence-requirements.txt": File("lock_requirements.py", list(EVIDENCE)),
        FETCH / "site-requirements.txt": File("lock_requirements.py", list(SITE)),
        FETCH / "conda-requirements.txt": File("lock_requirements.py", list(CONDA)),
        ADAPTERS / "requirements.txt": File(
            "pyproject.toml and requirements.in", [*declared(), *adapters], names=f"(?!{TORCH}$).*"
        ),
        ADAPTERS / "requirements-cuda.txt": File("requirements.in", torch, names=TORCH),
    }
    for path in CLIENTS.glob("*/requirements.in"):
        # Frameworks give up a Python before we do.
        found = of_a_program(path, PYTHONS[1:], ".*")
        files[path.with_suffix(".txt")] = replace(found, glibc=GLIBC_OF_CI)
    for path in ENGINES.glob("*/requirements.in"):
        found = of_a_program(path, ENGINE_PYTHONS, f"(?!{OF_ENGINES}$).*")
        files[path.with_suffix(".txt")] = replace(found, glibc=GLIBC_OF_CI)
    return files


def of_a_program(path: Path, pythons: tuple[str, ...], names: str) -> File:
    """Return the requirements of a client or an engine."""
    lines = lines_of(path)
    if lines[0] == "--no-deps":
        sources = tuple(x.removeprefix(NO_BINARY) for x in lines if x.startswith(NO_BINARY))
        lines = [x for x in lines if not x.startswith("--")]
        return File(path.name, lines, pythons, no_deps=True, sources=sources)
    return File(f"pyproject.toml and {path.name}", [*declared("test"), *lines], pythons, names=names)


def ask_pip(file: File, requirements: list[str], python: str) -> list[dict[str, Any]]:
    """Ask pip what it would install for this Python. It reads markers as the one that runs does."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation", "cp"]
        command += ["--python-version", python, "--target", folder, "--report", str(report)]
        command += [f"--platform={platform}" for platform in file.platforms]
        command += ["--no-deps"] if file.no_deps else []
        command += [f"--no-binary={name}" for name in file.sources]
        # Another machine has not the wheels in this one's folders.
        environment = os.environ | {"PIP_FIND_LINKS": os.environ.get("PYFA_ROCM_TORCH_WHEELS", folder)}
        subprocess.run([*command, *requirements], check=True, env=environment)
        items: list[dict[str, Any]] = json.loads(report.read_text())["install"]
        return items


def applies(requirement: Requirement, python: str) -> bool:
    """Return whether this Python needs it."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def left_out(items: list[dict[str, Any]], python: str) -> list[str]:
    """Return what these need on this Python and pip did not see: tomli before 3.11, for one."""
    names = {canonicalize_name(item["metadata"]["name"]) for item in items}
    found = set()
    for item in items:
        for line in item["metadata"].get("requires_dist", ()):
            needed = Requirement(line)
            if applies(needed, python) and canonicalize_name(needed.name) not in names:
                found.add(f"{needed.name}{needed.specifier}")
    return sorted(found)


def resolve(file: File, python: str) -> list[Wheel]:
    """The wheels that pip would take on this Python."""
    requirements = [
        line.partition(";")[0] for line in file.requirements if applies(Requirement(line), python)
    ]
    items = ask_pip(file, requirements, python)
    while not file.no_deps and (more := left_out(items, python)):
        requirements = [*requirements, *more]
        items = ask_pip(file, requirements, python)
    return [
        (
            canonicalize_name(item["metadata"]["name"]),
            item["metadata"]["version"],
            item["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for item in items
        if re.fullmatch(file.names, canonicalize_name(item["metadata"]["name"]))
    ]


def locked(file: File, by_python: dict[str, list[Wheel]]) -> str:
    """The text: a line a version, with the Pythons that take it unless all do, and its wheels' hashes."""
    found: dict[tuple[str, str], tuple[list[str], set[str]]] = {}
    for python, wheels in by_python.items():
        for name, version, sha256 in wheels:
            pythons, hashes = found.setdefault((name, version), ([], set()))
            pythons.append(python)
            hashes.add(sha256)
    lines = [NO_BINARY + name for name in file.sources]
    for (name, version), (pythons, hashes) in sorted(found.items()):
        marker = " or ".join(f'python_version == "{python}"' for python in pythons)
        line = f"{name}=={version}" + (f" ; {marker}" if len(pythons) < len(by_python) else "")
        lines.append(" \\\n    ".join([line, *(f"--hash=sha256:{sha256}" for sha256 in sorted(hashes))]))
    return HEAD.format(source=file.source) + "\n".join(lines) + "\n"


def main() -> int:
    """Write the files."""
    files = wanted()
    if names := [Path(name).resolve() for name in sys.argv[1:]]:
        files = {name: files[name] for name in names}
    pairs = [(path, python) for path, file in files.items() for python in file.pythons]
    with ThreadPoolExecutor() as pool:  # pip mostly waits for the index
        found = pool.map(lambda pair: resolve(files[pair[0]], pair[1]), pairs)
        wheels = dict(zip(pairs, found, strict=True))
    for path, file in files.items():
        by_python = {python: wheels[path, python] for python in file.pythons}
        path.write_text(locked(file, by_python))
    return 0


if __name__ == "__main__":
    sys.exit(main())
