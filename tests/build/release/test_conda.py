# SPDX-License-Identifier: MIT OR Apache-2.0
"""The conda recipe asks for what pyproject asks for; its container file prepares what the recipe reads."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:  # the copy inside pip
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[3]
WHEEL = ROOT / "native" / "tools" / "wheel"
RECIPE: dict[str, Any] = yaml.safe_load((WHEEL / "recipe.yaml").read_text())
CONTAINER = (WHEEL / "conda.containerfile").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_it_depends_on_what_the_package_imports() -> None:
    """All but hip-python, which conda-forge does not have; its own test installs that with pip."""
    run = {line.replace(" ", "") for line in RECIPE["requirements"]["run"]}
    needed = {line.partition(";")[0] for line in PROJECT["dependencies"]}
    assert run == {"python" + PROJECT["requires-python"], *needed} - {"hip-python>=7"}
    (test,) = RECIPE["tests"]
    assert 'python -m pip install "hip-python>=7"' in test["script"]
    assert "pyfa-rocm prove" in test["script"]


def test_it_is_under_the_same_licence() -> None:
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert {ROOT / name for name in RECIPE["about"]["license_file"]} == set(ROOT.glob("LICENSE*"))


def test_options_and_files_exist() -> None:
    script = "".join(RECIPE["build"]["script"]["content"])
    cmake = "".join(
        path.read_text() for path in [ROOT / "CMakeLists.txt", *ROOT.glob("native/cmake/*.cmake")]
    )
    options = re.findall(r"cmake\.define\.(\w+)=", script)
    assert len(options) == 2
    assert [option for option in options if not re.search(rf"\b(option|set)\({option} ", cmake)] == []
    # The container sets what the recipe reads from its environment.
    for name in ("FMHA_VERSION", "FMHA_TOOLCHAIN_DIR"):
        assert re.search(rf"^ENV .*\b{name}=", CONTAINER, re.M)
    for path in re.findall(r"native/[\w./-]+", CONTAINER):
        assert (ROOT / path).is_file(), path
