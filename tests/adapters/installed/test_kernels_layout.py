# SPDX-License-Identifier: MIT OR Apache-2.0
"""The wheel in the layout of Hugging Face's ``kernels``, loaded by that library in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "native" / "tools" / "wheel" / "kernels_layout.py"
LOAD = """
import sys
from pathlib import Path
import torch
from kernels import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[1]))
q, k, v = (torch.randn(1, 128, 2, 64, generator=torch.manual_seed(seed)).half() for seed in range(3))
out = kernel.flash_attn_func(q, k, v, causal=True)
heads_first = [x.double().transpose(1, 2) for x in (q, k, v)]
expected = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)
import pyfa_rocm
print(pyfa_rocm.__file__, kernel.__file__, float((out.double() - expected).abs().max()))
"""


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels") / "repository"
    subprocess.run([sys.executable, str(TOOL), os.environ["PYFA_ROCM_TEST_WHEEL"], str(folder)], check=True)
    return folder


def links_to(layout: Path, folder: Path) -> Path:
    """The same as the Hub's cache has it: each file is a link to one that is named for its content."""
    blobs = folder / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(path for path in layout.rglob("*") if path.is_file())):
        link = folder / "snapshot" / path.relative_to(layout)
        link.parent.mkdir(parents=True, exist_ok=True)
        (blobs / str(number)).write_bytes(path.read_bytes())
        link.symlink_to(blobs / str(number))
    return folder / "snapshot"


def load(repository: Path) -> list[str]:
    """Where package and kernel were loaded from, and the error of attention."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"PYFA_ROCM_DEVICE": "emulator", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(repository)], check=False, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("linked", [False, True], ids=["files", "links"])
def test_the_loader_loads_it(layout: Path, tmp_path: Path, linked: bool) -> None:
    """The variant that fits a torch for CPUs; not the package that is installed here."""
    repository = links_to(layout, tmp_path) if linked else layout
    package, kernel, error = load(repository)
    variant = repository / "build" / "torch-universal"
    assert Path(package) == variant / "pyfa_rocm" / "__init__.py"
    assert Path(kernel) == variant / "__init__.py"
    # Outputs stay below 4, where an ulp of float16 is 2^-9. The output is rounded once, and P once.
    assert float(error) <= 2.0**-9


def test_variants_are_named_as_the_loader_reads_them(layout: Path) -> None:
    from kernels.variants import get_variants_local, parse_variant

    build = layout / "build"
    names = {"torch-rocm", "torch-universal"}
    assert {path.name for path in build.iterdir()} == names
    assert set(get_variants_local(build)) == {parse_variant(name) for name in names}
    described = json.loads((build / "torch-rocm" / "metadata.json").read_text())
    assert described["backend"] == {"type": "rocm"}
    assert described["license"] == "MIT OR Apache-2.0"
    assert (build / "torch-rocm" / "licenses" / "LICENSE-MIT").is_file()
