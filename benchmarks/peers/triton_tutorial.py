# SPDX-License-Identifier: MIT OR Apache-2.0
"""Triton's tutorial of fused attention, forward and backward: `--peer triton_tutorial=PATH` of its source.

The source may be any edition whose kernels take pointers and strides, such as HipKittens'
triton_baseline_v01.py, which rounds P to bfloat16. The tutorial's backward kernel is causal.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.peers.triton_code import Configured, Kernel, configurations, source
from pyfa_rocm.clock.code import Launch
from pyfa_rocm.clock.subjects import ProblemArrays, Subject
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle.problem import Problem

_NAME = "triton tutorial"
# Tiles of the backward kernels, as the tutorial sets them.
_ROWS, _TILES = 128, {"BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32}


def _check(shape: Problem, direction: str, own: str) -> None:
    causal = own == "forward" or shape.causal
    if direction != own or shape.nhead_q != shape.nhead_k or shape.seqlen % _ROWS or not causal:
        raise UnsupportedError(
            f"{_NAME}: got {direction}, {shape}, expected {own}, as many key heads as query heads, "
            f"a multiple of {_ROWS} keys, and a causal mask backward"
        )


def _strides(arrays: ProblemArrays) -> dict[str, int]:
    axes = {"q": "zhmk", "k": "zhnk", "v": "zhkn", "o": "zhmn"}
    return {
        f"stride_{letter}{axis}": stride
        for letter, names in axes.items()
        for axis, stride in zip(names, arrays.q.strides, strict=True)
    }


def _forward(module: ModuleType, arrays: ProblemArrays, config: dict[str, Any]) -> list[Launch]:
    shape = arrays.shape
    arguments = _strides(arrays) | config | {
        "Q": arrays.q, "K": arrays.k, "V": arrays.v, "M": arrays.lse, "Out": arrays.o,
        "sm_scale": shape.hdim**-0.5, "Z": shape.batch, "H": shape.nhead_q, "N_CTX": shape.seqlen,
        "HEAD_DIM": shape.hdim, "STAGE": 3 if shape.causal else 1,
        "waves_per_eu": 3 if shape.hdim <= 64 else 2, "allow_flush_denorm": True,
    }  # fmt: skip
    kernel = Kernel.compiled(module._attn_fwd, arguments)
    grid = (shape.seqlen // config["BLOCK_M"], shape.batch * shape.nhead_q)
    return [kernel.launch(grid, arguments)]


def _backward(module: ModuleType, arrays: ProblemArrays) -> list[Launch]:
    shape, heads = arrays.shape, arrays.shape.batch * arrays.shape.nhead_q
    dq, dk, dv = (arrays.scratch(arrays.q.shape, shape.dtype) for _ in range(3))
    delta = arrays.scratch(arrays.lse.shape, np.float32)
    # The gradient of O has O's place: the clock looks at no values but the scores'.
    before = {
        "O": arrays.o, "DO": arrays.o, "Delta": delta, "Z": shape.batch, "H": shape.nhead_q,
        "N_CTX": shape.seqlen, "BLOCK_M": _ROWS, "HEAD_DIM": shape.hdim,
    }  # fmt: skip
    strides = dict(zip(("stride_z", "stride_h", "stride_tok", "stride_d"), arrays.q.strides, strict=True))
    own = strides | _TILES | {
        "Q": arrays.q, "K": arrays.k, "V": arrays.v, "sm_scale": 1 / math.sqrt(shape.hdim), "DO": arrays.o,
        "DQ": dq, "DK": dk, "DV": dv, "M": arrays.lse, "D": delta, "H": shape.nhead_q, "N_CTX": shape.seqlen,
        "BLK_SLICE_FACTOR": 2, "HEAD_DIM": shape.hdim, "num_warps": 4, "num_stages": 5,
    }  # fmt: skip
    first = Kernel.compiled(module._attn_bwd_preprocess, before)
    second = Kernel.compiled(module._attn_bwd, own)
    return [
        first.launch((shape.seqlen // _ROWS, heads), before),
        second.launch((shape.seqlen // _TILES["BLOCK_N1"], 1, heads), own),
    ]


def peers(path: str) -> list[Subject]:
    """Return a subject of each direction.

    Raises
    ------
    InvalidArgumentError
        There is no source at `path`, or no Triton here.
    """
    module = source(path)

    def forward(arrays: ProblemArrays, direction: str, config: dict[str, Any]) -> list[Launch]:
        _check(arrays.shape, direction, "forward")
        return _forward(module, arrays, config)

    def backward(arrays: ProblemArrays, direction: str, config: dict[str, Any]) -> list[Launch]:
        _check(arrays.shape, direction, "backward")
        del config
        return _backward(module, arrays)

    return [
        Configured(_NAME, configurations(module._attn_fwd), forward),
        Configured(f"{_NAME} backward", [{}], backward),
    ]
