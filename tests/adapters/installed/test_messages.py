# SPDX-License-Identifier: MIT OR Apache-2.0
"""Messages of the pages that take a framework to provoke."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pages.doc_blocks import blocks, pages, require_output

import pyfa_rocm
import pyfa_rocm.torch
from pyfa_rocm._runtime import hip

PREFIX = "adapters: "
Patch = pytest.MonkeyPatch


def tensors(**options: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, k, v = (torch.ones(1, 64, 2, 128, dtype=torch.float16, **options) for _ in range(3))
    return q, k, v


def cpu_tensor(folder: Path, patch: Patch) -> str:
    """On the runtime of a GPU; here the software device says that it is one."""
    used = pyfa_rocm.runtime()
    patch.setattr(hip, "_runtime", pyfa_rocm.Runtime(used.path, False, used.reason))
    with pytest.raises(pyfa_rocm.InvalidArgumentError) as caught:
        pyfa_rocm.torch.flash_attn_func(*tensors())
    return str(caught.value)


def gradient(folder: Path, patch: Patch) -> str:
    q, k, v = tensors(requires_grad=True)
    with pytest.raises(NotImplementedError) as caught:
        pyfa_rocm.torch.flash_attn_func(q, k, v, out=torch.empty_like(q))
    return str(caught.value)


def no_framework(folder: Path, patch: Patch) -> str:
    (folder / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import pyfa_rocm.torch"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(pyfa_rocm.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip().splitlines()[-1].removeprefix("ImportError: ")


PROVOKE: dict[str, Callable[[Path, Patch], str]] = {
    "cpu-tensor": cpu_tensor,
    "gradient": gradient,
    "no-framework": no_framework,
}
SHOWN = {
    block.value.removeprefix(PREFIX): block
    for page in pages()
    for block in blocks(page)
    if block.mark == "message" and block.value.startswith(PREFIX)
}


@pytest.mark.parametrize("name", sorted(PROVOKE.keys() | SHOWN.keys()))
def test_message(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    assert name in SHOWN, f"no page shows {name}"
    assert name in PROVOKE, f"nothing here provokes {name}"
    require_output(SHOWN[name], SHOWN[name].text, PROVOKE[name](tmp_path, monkeypatch))
