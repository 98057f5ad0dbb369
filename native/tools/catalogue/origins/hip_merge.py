# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own kernels that merge partial outputs: their line of a translation unit."""

from __future__ import annotations

from family_pairs import Origin, PairRow


class HipMerge(Origin):
    """The kernels in native/kernels/hip, as the family sees them."""

    header = "hip/decode/merge.h"

    def line(self, row: PairRow) -> str:
        """Return the line that native/kernels/hip/decode/merge.h makes a kernel of."""
        return f"FMHA_MERGE_KERNEL({row.name}, {row.dtype.capitalize()}, {row.o_dtype.capitalize()})"
