# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lets SGLang import torchvision, whose wheel is built for torch with CUDA.

torchvision's C++ part does not load beside torch for CPUs, and its Python part describes operators of that
part. Declared here, they can be described; nothing calls them. SGLang itself is as its wheel has it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

_OPERATORS = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(autouse=True)
def _one_rank() -> Iterator[None]:
    """Publish what SGLang's server says of a program on one card."""
    from sglang.srt.runtime_context import get_parallel

    with get_parallel().override(dcp_size=1, attn_cp_size=1):
        yield
