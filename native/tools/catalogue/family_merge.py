# SPDX-License-Identifier: MIT OR Apache-2.0
"""The family that merges partial outputs by their LSEs: native/kernels/catalogue/merge.toml."""

from __future__ import annotations

from family import FP8
from family_pairs import PairRow, Pairs


class Merge(Pairs):
    """Parts of a dtype become a result of another or the same."""

    name = "merge"

    def complaint(self, row: PairRow) -> str | None:
        strange = [dtype for dtype in (row.dtype, row.o_dtype) if dtype in FP8]
        return f"fp16, bf16 or fp32, got {strange[0]!r}" if strange else None
