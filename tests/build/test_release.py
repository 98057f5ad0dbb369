# SPDX-License-Identifier: MIT OR Apache-2.0
"""The programs that build and prove a wheel say what is wrong; the workflow runs no other."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest
from installed import VERSION

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "native" / "tools"


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(TOOLS / name), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_tag_is_the_version() -> None:
    assert run("wheel/check_tag.sh", f"v{VERSION}").returncode == 0


@pytest.mark.parametrize("tag", [VERSION, f"v{VERSION}rc1", "v99.0.0", ""])
def test_no_other_tag_will_do(tag: str) -> None:
    done = run("wheel/check_tag.sh", tag)
    assert done.returncode == 1
    assert f"got '{tag}', expected v{VERSION}" in done.stderr


@pytest.mark.parametrize("script", ["wheel/check_wheel.sh", "wheel/sbom.sh", "test_adapters.sh"])
@pytest.mark.parametrize("arguments", [(), ("no-such.whl",)])
def test_needs_a_wheel(script: str, arguments: tuple[str, ...]) -> None:
    done = run(script, *arguments)
    assert done.returncode == 2
    assert f"got '{''.join(arguments)}', expected a wheel file" in done.stderr


def names_of(group: str) -> list[str]:
    """The clients or engines that a script knows."""
    script = (TOOLS / f"test_{group}.sh").read_text(encoding="utf-8")
    (names,) = re.findall(rf"^group={group} names=\((.*)\)$", script, re.M)
    return str(names).split()


@pytest.mark.parametrize("group", ["clients", "engines"])
def test_unknown_name(group: str) -> None:
    done = run(f"test_{group}.sh", "cuda")
    assert done.returncode == 2
    names = ", ".join(names_of(group))
    assert f"got 'cuda', expected one of {names}, or -- and pytest's arguments" in done.stderr


@pytest.mark.parametrize("group", ["clients", "engines"])
def test_each_has_its_files(group: str) -> None:
    """Pinned requirements, and tests that the script names."""
    script = (TOOLS / f"test_{group}.sh").read_text(encoding="utf-8")
    folder = ROOT / "tests" / group
    pinned = {path.parent.name for path in folder.glob("*/requirements.txt")}
    assert pinned <= {f"with_{name}" for name in names_of(group)}
    assert {path.name for path in folder.glob("with_*")} == pinned
    # The script runs each test.
    rooms = {str(path.parent.relative_to(ROOT)) for path in folder.glob("*/test_*.py")}
    alone = {str(path.relative_to(ROOT)) for path in folder.glob("test_*.py")}
    assert [name for name in sorted(rooms | alone) if name not in script] == []


def test_unknown_argument() -> None:
    done = run("wheel/build_wheel.sh", "--kernel-set", "full")
    assert done.returncode == 2
    assert "unknown argument --kernel-set; expected --kernels-from BUILD or --out DIR" in done.stderr


@pytest.mark.parametrize(("platform", "right"), [("linux-x86_64", True), ("manylinux_2_28-x86_64", False)])
def test_wheel_of_another_compiler_is_no_manylinux(platform: str, right: bool) -> None:
    done = subprocess.run(
        [
            "cmake",
            "-DSKBUILD=2",
            "-DFMHA_PORTABLE=OFF",
            "-P",
            str(ROOT / "native" / "cmake" / "Portable.cmake"),
        ],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"_PYTHON_HOST_PLATFORM": platform},
    )
    assert (done.returncode == 0) == right, done.stderr
    assert ("set PYFA_ROCM_PLATFORM=linux-x86_64" in " ".join(done.stderr.split())) != right


def test_workflow_runs_what_there_is() -> None:
    text = (ROOT / ".github" / "workflows" / "wheel.yml").read_text()
    scripts = set(re.findall(r"native/tools/[\w/]+\.sh", text))
    assert {"native/tools/wheel/build_windows.sh", "native/tools/wheel/check_wheel.sh"} <= scripts
    assert [script for script in scripts if not (ROOT / script).stat().st_mode & 0o100] == []
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:run: |&& )make ([\w-]+)", text)) <= targets


def made(*arguments: str) -> list[str]:
    """The commands that make would run, without running them."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "KERNEL_"))}
    command = ["make", "--no-print-directory", "-n", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "kernel_set"),
    [(("wheel",), "default"), (("wheel", "KERNEL_SET=ci"), "ci"), (("test-adapters",), "ci")],
)
def test_wheel_packs_the_default_set_unless_one_is_named(arguments: tuple[str, ...], kernel_set: str) -> None:
    """And its build compiles kernels only: the wheel's host side is compiled by the wheel's own build."""
    commands = made(*arguments)
    (configure,) = (line for line in commands if line.startswith("cmake --preset"))
    folder = re.search(r"-B (\S+)", configure)
    assert folder
    assert f"-DFMHA_KERNEL_SET={kernel_set} " in configure
    builds = [line for line in commands if " cmake --build " in line]
    assert len(builds) == 1
    assert builds[0].endswith("--target kernels")
    assert f'native/tools/wheel/build_wheel.sh --kernels-from "{folder[1]}"' in commands


def test_both_wheels_have_the_same_kernels() -> None:
    text = (ROOT / ".github" / "workflows" / "wheel.yml").read_text()
    sets = re.findall(r"make wheel KERNEL_SET=(\w+)", text)
    assert sets == ["ci", "default"]
    (folder,) = re.findall(r"build_windows\.sh --kernels-from (\S+)", text)
    for kernel_set in sets:
        commands = made("wheel", f"KERNEL_SET={kernel_set}")
        assert f'native/tools/wheel/build_wheel.sh --kernels-from "{folder}"' in commands
    assert text.index("build_windows.sh") < text.index("dist_hashes.sh build/dist")


def test_actions_are_commits() -> None:
    """A tag may be moved; the comment says which one the commit was."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        uses = re.findall(r"uses: (.*)", path.read_text())
        assert uses
        assert [use for use in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[\d.]+", use)] == []


def images(path: Path) -> list[str]:
    """The images that a workflow names, in their order."""
    return re.findall(r'(?:container|image): "?([a-z][^"\s,}]*)', path.read_text())


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """A copy of the workflow, in which no image has a digest."""
    text = (ROOT / ".github" / "workflows" / "wheel.yml").read_text()
    path = tmp_path / "wheel.yml"
    path.write_text(re.sub(r"@sha256:[0-9a-f]{64}", "", text))
    return path


def pin(workflow: Path, digest: str) -> subprocess.CompletedProcess[str]:
    """Runs pin_images.sh with a docker that knows this digest of each image; it notes what it is asked."""
    docker = workflow.parent / "docker"
    docker.write_text(f'#!/bin/sh\necho "$*" >> {workflow.parent}/asked\n{digest}\n')
    docker.chmod(0o755)
    env = os.environ | {"PATH": f"{workflow.parent}:{os.environ['PATH']}"}
    command = [str(TOOLS / "wheel/pin_images.sh"), str(workflow)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=env)


# A digest for each image: that of the name, as docker's last argument.
DIGEST = 'for name; do :; done; echo "sha256:$(printf %s "$name" | sha256sum | cut -c1-64)"'


def test_images_get_digests(workflow: Path) -> None:
    """Each its own, and a new one if the tag moves; nothing else of the workflow changes."""
    before, tags = workflow.read_text(), images(workflow)
    assert {"debian:12", "python:3.10-slim-bookworm", "almalinux:8"} <= set(tags)
    for salt in ("", "moved "):
        done = pin(workflow, DIGEST.replace("%s", f'"{salt}%s"'))
        assert done.returncode == 0, done.stderr
        assert images(workflow) == [
            f"{tag}@sha256:{hashlib.sha256(f'{salt}{tag}'.encode()).hexdigest()}" for tag in tags
        ]
        assert re.sub(r"@sha256:[0-9a-f]{64}", "", workflow.read_text()) == before
        assert run("wheel/pin_images.sh", "--check", workflow).returncode == 0
    asked = (workflow.parent / "asked").read_text().splitlines()
    assert set(asked) == {
        f"buildx imagetools inspect --format {{{{.Manifest.Digest}}}} {tag}" for tag in tags
    }


@pytest.mark.parametrize(
    ("digest", "told"), [("exit 1", "docker knows no"), ("echo latest", "got digest 'latest' of")]
)
def test_images_without_a_digest(workflow: Path, digest: str, told: str) -> None:
    """No digest is written, and a release is refused."""
    before = workflow.read_text()
    done = pin(workflow, digest)
    assert done.returncode == 1
    assert told in done.stderr
    assert workflow.read_text() == before
    done = run("wheel/pin_images.sh", "--check", workflow)
    assert done.returncode == 1
    assert (
        "got almalinux:10, expected almalinux:10@sha256:...: run native/tools/wheel/pin_images.sh"
        in done.stderr
    )


def test_one_image_without_a_digest(workflow: Path) -> None:
    assert pin(workflow, DIGEST).returncode == 0
    text = workflow.read_text()
    workflow.write_text(re.sub(r"(container: debian:12)@\S+", r"\1", text, count=1))
    assert (
        "got debian:12, expected debian:12@sha256:" in run("wheel/pin_images.sh", "--check", workflow).stderr
    )
    workflow.write_text("jobs:\n")
    assert "expected one or more" in run("wheel/pin_images.sh", "--check", workflow).stderr


def test_images_of_this_checkout_have_digests() -> None:
    done = run("wheel/pin_images.sh", "--check")
    assert done.returncode == 0, done.stderr


def test_a_release_needs_digests() -> None:
    """The first job asks, outside of any container."""
    text = (ROOT / ".github" / "workflows" / "wheel.yml").read_text()
    first = text.partition("\njobs:\n")[2].partition("\n\n")[0]
    assert "container:" not in first
    assert "if: startsWith(github.ref, 'refs/tags/v')\n" in first
    assert (
        'run: native/tools/wheel/check_tag.sh "$GITHUB_REF_NAME" && native/tools/wheel/pin_images.sh --check'
        in first
    )


def test_hashes_of_what_was_built(tmp_path: Path) -> None:
    """One line for all files; any other file, and any other content, is told."""
    for name, text in (("a-1.tar.gz", "sdist"), ("b-1.whl", "wheel")):
        (tmp_path / name).write_text(text)
    made = run("wheel/dist_hashes.sh", tmp_path)
    assert made.returncode == 0
    hashes = made.stdout.strip()
    assert hashes == " ".join(
        f"{hashlib.sha256(text).hexdigest()}:{name}"
        for text, name in ((b"sdist", "a-1.tar.gz"), (b"wheel", "b-1.whl"))
    )
    assert run("wheel/dist_hashes.sh", tmp_path, hashes).returncode == 0
    (tmp_path / "b-1.whl").write_text("another")
    for expected in (hashes, ""):
        done = run("wheel/dist_hashes.sh", tmp_path, expected)
        assert done.returncode == 1
        assert "has these files, expected:" in done.stderr
    (tmp_path / "b-1.whl").write_text("wheel")
    (tmp_path / "c-1.whl").write_text("wheel")
    assert run("wheel/dist_hashes.sh", tmp_path, hashes).returncode == 1


def test_hashes_of_no_files(tmp_path: Path) -> None:
    done = run("wheel/dist_hashes.sh", tmp_path)
    assert done.returncode == 1
    assert "expected only files, and one or more" in done.stderr
    (tmp_path / "folder").mkdir()
    assert run("wheel/dist_hashes.sh", tmp_path).returncode == 1
    assert "expected a folder" in run("wheel/dist_hashes.sh", tmp_path / "none").stderr


def test_each_job_checks_what_it_takes() -> None:
    """Before anything else runs on it: the artifact is known only by its name."""
    text = (ROOT / ".github" / "workflows" / "wheel.yml").read_text()
    jobs = dict(re.findall(r"^  (\w+):\n(.*?)(?=^  \w+:\n|\Z)", text.partition("\njobs:\n")[2], re.M | re.S))
    assert list(jobs) == ["tag", "build", "test", "adapters", "sbom", "evidence", "site", "publish", "pages"]
    assert "needs: tag\n" in jobs["build"]
    assert "hashes: ${{ steps.made.outputs.hashes }}" in jobs["build"]
    assert jobs["build"].index("dist_hashes.sh build/dist") < jobs["build"].index("upload-artifact")
    for name in ("test", "adapters", "sbom", "publish"):
        after = jobs[name].partition("actions/download-artifact@")[2].split("      - ")
        assert 'run: native/tools/wheel/dist_hashes.sh dist "$HASHES"' in after[1]
        assert "HASHES: ${{ needs.build.outputs.hashes }}" in after[1]
        assert "build" in re.findall(r"needs: (.*)", jobs[name])[0]
    assert jobs["evidence"].index("dist_hashes.sh evidence") < jobs["evidence"].index("upload-artifact")
    taken = jobs["publish"].partition('dist_hashes.sh evidence "$HASHES"')
    assert "HASHES: ${{ needs.evidence.outputs.hashes }}" in taken[2].split("      - ")[0]
    assert taken[2].index("mv sbom/* evidence/*") < taken[2].index("gh release create")
