# SPDX-License-Identifier: MIT OR Apache-2.0
"""The family that makes 8-bit floats of 16 bits: native/kernels/catalogue/quantize.toml."""

from __future__ import annotations

from family import FP8
from family_pairs import PairRow, Pairs


class Quantize(Pairs):
    """Elements of a dtype become 8-bit floats, or are rotated and stay what they are."""

    name = "quantize"

    def complaint(self, row: PairRow) -> str | None:
        known = row.dtype in ("fp16", "bf16") and row.o_dtype in (row.dtype, *FP8)
        return None if known else "fp16 or bf16, stored as they are or as fp8"
