# SPDX-License-Identifier: MIT OR Apache-2.0
"""The release workflow, as YAML: every command in it exists, and rights are where they are needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
WHEEL = ROOT / "native" / "tools" / "wheel"
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "wheel.yml").read_text())
JOBS: dict[str, Any] = WORKFLOW["jobs"]
# Programs of the system and of GitHub's machines.
KNOWN = {"apt-get", "cd", "dnf", "echo", "gh", "git", "mkdir", "mv", "sh", "sha256sum", "tar"}


def commands() -> list[str]:
    """Each command of each step, and of the matrix."""
    steps = [step for job in JOBS.values() for step in job["steps"]]
    texts = [step["run"] for step in steps if "run" in step]
    texts += [row["prepare"] for row in JOBS["test"]["strategy"]["matrix"]["include"] if "prepare" in row]
    inner = [found for text in texts for found in re.findall(r"\$\(([^)]*)\)", text)]
    parts = [part for text in texts + inner for part in re.split(r"&&|\n|;", text)]
    return [part.strip().lstrip("(") for part in parts if part.strip()]


def test_every_command_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    ran = set()
    for command in commands():
        program, *words = command.split()
        ran.add(program)
        if program == "make":
            assert {word for word in words if "=" not in word} <= targets, command
        elif program.startswith("native/"):
            assert (ROOT / program).stat().st_mode & 0o100, command
        else:
            assert program in KNOWN, command
    assert {"make", "native/tools/wheel/build_windows.sh", "native/tools/wheel/sbom.sh", "gh"} <= ran


def test_only_a_tag_may_write() -> None:
    """Two jobs have rights to write, each only its own, and only for the tag of a version."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    with_rights = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert with_rights == {
        "publish": {"contents": "write", "id-token": "write", "attestations": "write"},
        "pages": {"contents": "read", "pages": "write", "id-token": "write"},
    }
    for name in with_rights:
        assert JOBS[name]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert set(JOBS["publish"]["needs"]) == set(JOBS) - {"publish", "pages", "tag"}


def test_what_runs_is_what_is_written_here() -> None:
    """GitHub puts nothing into a command, each action is pinned by its commit, and no clone keeps a token."""
    for step in (step for job in JOBS.values() for step in job["steps"]):
        assert "${{" not in step.get("run", ""), step
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", "a/b@" + "0" * 40)), step
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}


def test_the_site_is_that_of_the_release() -> None:
    """It is published after the release, and is what `make site` made: its sum is compared before."""
    assert JOBS["pages"]["needs"] == ["site", "publish"]
    steps = JOBS["pages"]["steps"]
    places = {step.get("uses", step.get("run", "")).split("@")[0]: place for place, step in enumerate(steps)}
    compared = places['native/tools/wheel/dist_hashes.sh site "$HASHES"']
    assert steps[compared]["env"] == {"HASHES": "${{ needs.site.outputs.hashes }}"}
    assert places["actions/download-artifact"] < compared
    assert compared < places["mkdir html && tar -C html -xf site/site.tar"]
    assert list(places)[-2:] == ["actions/upload-pages-artifact", "actions/deploy-pages"]
    assert "make site" in [step.get("run") for step in JOBS["site"]["steps"]]


def test_a_release_has_sums_provenance_and_sbom() -> None:
    steps = JOBS["publish"]["steps"]
    (attest,) = (step for step in steps if "attest-build-provenance@" in step.get("uses", ""))
    assert attest["with"]["subject-path"] == "dist/*, pyfa_rocm.cdx.json, evidence.html"
    (page,) = (step["run"] for step in steps if step.get("run", "").startswith("gh release create"))
    assert page.endswith("dist/* pyfa_rocm.cdx.json evidence.html SHA256SUMS")
    # The step that uploads to the index needs no token, and comes last.
    assert "gh-action-pypi-publish@" in steps[-1]["uses"]
    assert "with" not in steps[-1]


@pytest.mark.parametrize(("extra", "code"), [("", 0), ("unheard-of", 1)])
def test_sbom_has_what_is_compiled_in(tmp_path: Path, extra: str, code: int) -> None:
    """Each component by its pinned version; one that no table knows is an error."""
    notices = (ROOT / "native" / "cmake" / "Notices.cmake").read_text()
    names = re.findall(r"^ *fmha_notice\(([\w-]+)", notices, re.M)
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for name in [*names, *extra.split()]:
            wheel.writestr(f"pyfa_rocm-1.dist-info/licenses/third-party/{name}.txt", "")
    ours = {"components": [{"name": "pyfa-rocm", "bom-ref": "x"}], "dependencies": [{"ref": "x"}]}
    (tmp_path / "in.json").write_text(json.dumps(ours))
    files = [str(tmp_path / name) for name in ("a.whl", "in.json", "out.json")]
    command = [sys.executable, str(WHEEL / "add_native.py"), *files]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    if code:
        assert "'unheard-of'" in done.stderr
        return
    made = json.loads((tmp_path / "out.json").read_text())
    parts = {part["name"]: part for part in made["components"][1:]}
    assert set(parts) == set(names)
    assert {name for name, part in parts.items() if "version" not in part} == {"zstd"}
    assert made["dependencies"][0]["dependsOn"] == sorted(f"native:{name}" for name in names)
