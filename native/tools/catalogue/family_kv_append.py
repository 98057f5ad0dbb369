# SPDX-License-Identifier: MIT OR Apache-2.0
"""The family that appends keys and values to a cache: native/kernels/catalogue/kv_append.toml."""

from __future__ import annotations

from family import FP8
from family_pairs import PairRow, Pairs


class KvAppend(Pairs):
    """Keys and values of a dtype are stored in a cache of another or the same."""

    name = "kv_append"

    def complaint(self, row: PairRow) -> str | None:
        known = row.dtype in ("fp16", "bf16") and row.o_dtype in (row.dtype, *FP8)
        return None if known else "fp16 or bf16, stored as they are or as fp8"
