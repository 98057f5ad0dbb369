# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every package that the build installs with pip is pinned by its hash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "native" / "tools"
FETCH = TOOLS / "fetch"
ADAPTERS = ROOT / "tests" / "adapters"
PROGRAMS = [ROOT / "tests" / "clients", ROOT / "tests" / "engines"]
WORKFLOW = ROOT / ".github" / "workflows" / "wheel.yml"
CONTAINER = TOOLS / "wheel" / "conda.containerfile"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def declared(*arguments: str) -> list[Requirement]:
    """The requirements in pyproject.toml."""
    command = [sys.executable, str(FETCH / "requirements.py"), str(ROOT / "pyproject.toml"), *arguments]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [Requirement(line) for line in text.splitlines()]


def pinned(path: Path) -> list[tuple[Requirement, list[str]]]:
    """Return the requirements that a file names, with the hashes of each."""
    text = re.sub(r"^(#|--).*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    parts = [line.split(" --hash=sha256:") for line in re.sub(" +", " ", text).splitlines() if line]
    return [(Requirement(line), hashes) for line, *hashes in parts]


def of_debian(path: Path) -> dict[str, str]:
    """The packages that apt-get installs by their versions."""
    lines = re.findall(r"apt-get install .*", path.read_text().replace("\\\n", " "))
    return dict(re.findall(r" ([\w.+-]+)=(\S+)", " ".join(lines)))


def named(path: Path) -> list[str]:
    """The lines of a file that a file of pinned versions is made from, without its comments."""
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("--")]


FILES = [
    *sorted(FETCH.glob("*-requirements.txt")),
    *sorted(ADAPTERS.glob("requirements*.txt")),
    *sorted(path for folder in PROGRAMS for path in folder.glob("*/requirements.txt")),
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_package_has_one_version_and_its_hashes(path: Path) -> None:
    for requirement, hashes in pinned(path):
        local = "[+]cpu" if path.name == "requirements-cpu.txt" else ""
        assert re.fullmatch(rf"==[\w.]+{local}", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch("[0-9a-f]{64}", value.strip()) for value in hashes), requirement


def check(wanted: list[Requirement], paths: list[Path], python: str) -> None:
    """Assert that these files have one version of each on this Python, and the wanted one."""

    def applies(requirement: Requirement) -> bool:
        return not requirement.marker or requirement.marker.evaluate({"python_version": python})

    here = [requirement for path in paths for requirement, _ in pinned(path) if applies(requirement)]
    versions = {canonicalize_name(requirement.name): str(requirement.specifier)[2:] for requirement in here}
    assert len(versions) == len(here)
    for requirement in filter(applies, wanted):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: got {version}"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("demo-requirements.txt", ()),
        ("venv-requirements.txt", ("test", "lint")),
        ("wheel-requirements.txt", ("--build",)),
    ],
)
def test_what_pyproject_asks_for_is_pinned(name: str, arguments: tuple[str, ...], python: str) -> None:
    """For each Python that it allows, once; native/tools/fetch/lock_requirements.py writes the files anew."""
    check(declared(*arguments), [FETCH / name], python)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("torch", ["cpu", "cuda"])
def test_what_the_adapters_ask_for_is_pinned(torch: str, python: str) -> None:
    """Everything is pinned with either torch; pip takes the one for CPUs if it finds it."""
    wanted = [*declared(), *map(Requirement, named(ADAPTERS / "requirements.in"))]
    check(wanted, [ADAPTERS / "requirements.txt", ADAPTERS / f"requirements-{torch}.txt"], python)


@pytest.mark.parametrize("folder", PROGRAMS, ids=lambda folder: folder.name)
def test_what_a_program_names_is_pinned(folder: Path) -> None:
    """The version is the .in file's: native/tools/fetch/lock_requirements.py writes the .txt from the .in."""
    sources = sorted(folder.glob("*/requirements.in"))
    assert [path.with_suffix(".txt") for path in sources] == sorted(folder.glob("*/requirements.txt"))
    for path in sources:
        there, wanted = (
            {(canonicalize_name(x.name), str(x.specifier)) for x in requirements}
            for requirements in (
                (x for x, _ in pinned(path.with_suffix(".txt"))),
                map(Requirement, named(path)),
            )
        )
        assert wanted <= there, path


def test_pip_installs_nothing_else() -> None:
    """Only check_wheel.sh, which installs the wheel as a user does."""
    names = ("toolchain.sh", "wheel/wheel_venv.sh", "environments.sh", "test_adapters.sh", "evidence.sh")
    for name in (*names, "site.sh"):
        text = (TOOLS / name).read_text().replace("\\\n", " ")
        calls = re.findall(r"^.*\bpip (?:install|download) .*$", text, re.MULTILINE)
        calls = [call for call in calls if not call.startswith("#") and '--no-deps "$wheel"' not in call]
        assert calls, name
        assert [call for call in calls if "--require-hashes" not in call] == []
    for name in ("build_wheel.sh", "build_windows.sh"):
        assert re.search("-m build (?:--wheel )?--no-isolation", (TOOLS / "wheel" / name).read_text())


def test_debian_packages_have_versions() -> None:
    """Packages with a part that ends up inside kernels have a version; a release takes no other."""
    lines = [x for x in (FETCH / "debian-packages.txt").read_text().splitlines() if not x.startswith("#")]
    versions = dict(line.split("=", 1) for line in lines)
    assert all(re.fullmatch(r"[\w.+~:-]+", version) for version in versions.values())
    toolchain = (TOOLS / "toolchain.sh").read_text()
    fetched = re.findall(r"names\+=\((\S+)\)|^ *download_debs .* ([\w-]+)$", toolchain, re.MULTILINE)
    fetched = [group or other for group, other in fetched]
    assert sorted(fetched) == sorted(versions)
    workflow = WORKFLOW.read_text()
    assert "PYFA_ROCM_EXACT_PACKAGES: ${{ github.event_name != 'pull_request' && '1' || '' }}" in workflow
    assert "\nENV PYFA_ROCM_EXACT_PACKAGES=1\n" in CONTAINER.read_text()
    (llvm,) = re.findall(r"^llvm=(\d+)", toolchain, re.MULTILINE)
    installed = of_debian(WORKFLOW)
    compilers = {f"{name}-{llvm}" for name in ("clang", "lld", "llvm")}
    assert set(installed) == compilers | {"libstdc++-12-dev"}
    assert len({installed[name] for name in compilers}) == 1
    assert of_debian(CONTAINER) == installed
    for path in (WORKFLOW, CONTAINER):  # and by no other line, without a version
        assert not re.search(rf" (clang|lld|llvm)-{llvm}\s", path.read_text()), path


def test_headers_of_kernels_come_from_packages_with_versions() -> None:
    """Those that kernels of this build include, where Debian's packages say whose they are."""
    if shutil.which("dpkg") is None:
        pytest.skip("no dpkg")
    included: set[str] = set()
    for path in (ROOT / "build" / "release" / "kernels").glob("*/*.d"):
        included |= {os.path.realpath(word) for word in path.read_text().split() if word.startswith("/usr/")}
    if not included:
        pytest.skip("no kernels were compiled here, or by a compiler of elsewhere")
    done = subprocess.run(["dpkg", "-S", *sorted(included)], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"not of Debian's packages: {done.stderr.splitlines()[0]}")
    packages = {line.split(":")[0] for line in done.stdout.splitlines()}
    # Each clang has its own headers by its exact version; another Debian has another g++. Headers of C and of
    # Linux only declare, and no kernel calls what they declare.
    alias = {r"libclang-common-(\d+)-dev": r"clang-\1", r"libstdc\+\+-\d+-dev": "libstdc++-12-dev"}
    for pattern, name in alias.items():
        packages = {re.sub(f"^{pattern}$", name, package) for package in packages}
    assert packages - {"libc6-dev", "linux-libc-dev"} <= set(of_debian(WORKFLOW))


@pytest.mark.parametrize(("exact", "code"), [("", 0), ("1", 1)])
@pytest.mark.parametrize("version", ["", "1.0-1"])
def test_another_debian_version(exact: str, code: int, version: str, tmp_path: Path) -> None:
    """Is told, and an error for a release."""
    text = (FETCH / "debian-packages.txt").read_text()
    (expected,) = re.findall(r"^libamdhip64-dev=(.*)$", text, re.MULTILINE)
    (tmp_path / "dpkg-deb").write_text(f"#!/bin/sh\necho '{version or expected}'\n")
    (tmp_path / "dpkg-deb").chmod(0o755)
    body = re.findall(r"^check_version\(\) \{.*?^\}", (TOOLS / "toolchain.sh").read_text(), re.M | re.S)[0]
    script = "\n".join(
        [
            "set -euo pipefail",
            f"here={TOOLS} suite=trixie",
            'say() { echo "$*"; }',
            'die() { echo "$*" >&2; exit 1; }',
            body,
            "check_version libamdhip64-dev any.deb",
        ]
    )
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYFA_ROCM_EXACT_PACKAGES": exact}
    done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True, env=env)
    assert done.returncode == (code if version else 0)
    told = done.stdout + done.stderr
    assert (f"version {version}" in told and expected in told) if version else told == ""
