# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own kernels that append to a cache: their line of a translation unit."""

from __future__ import annotations

from family_pairs import Origin, PairRow


class HipKvAppend(Origin):
    """The kernels in native/kernels/hip, as the family sees them."""

    header = "hip/decode/kv_append.h"

    def line(self, row: PairRow) -> str:
        """Return the line that native/kernels/hip/decode/kv_append.h makes a kernel of."""
        return f"FMHA_KV_APPEND_KERNEL({row.name}, {row.dtype.capitalize()}, {row.o_dtype.capitalize()})"
