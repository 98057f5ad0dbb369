# SPDX-License-Identifier: MIT OR Apache-2.0
"""Matrix instructions: shapes and types by name, and which registers hold which elements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .asm import LANES
from .fp import BF8, FP8, Array

DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "xf32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "fp8": FP8,
    "bf8": BF8,
}


@dataclass(frozen=True)
class Shape:
    """An MFMA's sizes and types, read from its name."""

    name: str
    m: int
    k: int
    blocks: int
    out: str
    a: str
    b: str

    @property
    def per_lane(self) -> int:
        """Elements of A (and of B) in a lane."""
        return self.m * self.k * self.blocks // LANES

    @property
    def registers(self) -> int:
        """Elements of C and D in a lane."""
        return self.m * self.m * self.blocks // LANES


def parse(name: str) -> Shape | None:
    """The shape in a mnemonic: v_mfma_f32_4x4x1_16b_f32, v_mfma_f32_32x32x4bf16_1k."""
    match = re.fullmatch(
        r"v_mfma_(f32|i32|f64)_(\d+)x\d+x(\d+)(?:_(\d+)b)?_?(bf16|f16|xf32|f32|f64|i8|fp8|bf8)(?:_(fp8|bf8))?(?:_1k)?",
        name,
    )
    if not match:
        return None
    m, k = int(match[2]), int(match[3])
    blocks = int(match[4] or 1)
    if re.search(r"x\d+[bfi]", name):
        # gfx90a's names leave the block count out: it is what makes 64 lanes of at least the type's packing.
        pack = {"f32": 1, "f64": 1, "f16": 4, "i8": 4, "bf16": 4 if name.endswith("1k") else 2}[match[5]]
        blocks = LANES * pack // (m * k)
    return Shape(name, m, k, blocks, match[1], match[5], match[6] or match[5])


def inputs(s: Shape, side: str, matrix: Array) -> Array:
    """Registers that hold A (blocks, m, k) or B (blocks, k, n), as (dwords, lanes)."""
    kind = s.a if side == "a" else s.b
    elements = np.zeros((LANES, s.per_lane), DTYPES[kind])
    for lane in range(LANES):
        row, group = lane % s.m, lane // s.m
        for j in range(s.per_lane):
            if s.out == "f64" and s.m == 4:
                block, kk = lane // 4 % 4, lane // 16
            elif s.blocks == 1:
                block, kk = 0, group * s.per_lane + j
            else:
                block, kk = group, j
            elements[lane, j] = matrix[block, row, kk] if side == "a" else matrix[block, kk, row]
    return np.ascontiguousarray(np.ascontiguousarray(elements).view(np.uint32).reshape(LANES, -1).T)


def output_place(s: Shape, lane: int, r: int) -> tuple[int, int, int]:
    """Block, row and column of element r of a lane of C and D."""
    if s.out == "f64":
        return (0, 4 * r + lane // 16, lane % 16) if s.m == 16 else (lane // 4 % 4, lane // 16, lane % 4)
    if s.m == 32:
        return r // 16, 8 * (r % 16 // 4) + 4 * (lane // 32) + r % 4, lane % 32
    if s.m == 16:
        return r // 4, 4 * (lane // 16) + r % 4, lane % 16
    return lane // 4, r, lane % 4


def spread(s: Shape, matrix: Array) -> Array:
    """A (blocks, m, n) matrix as its registers hold it: (lanes, registers)."""
    out = np.zeros((LANES, s.registers), matrix.dtype)
    for lane in range(LANES):
        for r in range(s.registers):
            out[lane, r] = matrix[output_place(s, lane, r)]
    return out


def out_dtype(s: Shape) -> Any:
    """Type of C and D."""
    return {"f32": np.float32, "i32": np.int32, "f64": np.float64}[s.out]


def registers(s: Shape, bank: str, first: int, elements: int, kind: str) -> str:
    """The registers of a bank, from `first`, that hold so many elements a lane."""
    count = elements * np.dtype(DTYPES.get(kind, np.int32)).itemsize // 4
    return f"{bank}{first}" if count == 1 else f"{bank}[{first}:{first + count - 1}]"
