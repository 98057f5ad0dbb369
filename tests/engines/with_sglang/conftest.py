# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lets SGLang import torchvision, whose wheel is built for torch with CUDA.

torchvision's C++ part does not load beside torch for CPUs, and its Python part describes operators of that
part. Declared here, they can be described; nothing calls them. SGLang itself is as its wheel has it.
"""

from __future__ import annotations

import torch

_OPERATORS = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
