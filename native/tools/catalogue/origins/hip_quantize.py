# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own kernels that make 8-bit floats: their line of a translation unit."""

from __future__ import annotations

from family_pairs import Origin, PairRow


class HipQuantize(Origin):
    """The kernels in native/kernels/hip, as the family sees them."""

    header = "hip/quantize/quantize.h"

    def line(self, row: PairRow) -> str:
        """Return the line that native/kernels/hip/quantize/quantize.h makes a kernel of."""
        return f"FMHA_QUANTIZE_KERNEL({row.name}, {row.dtype.capitalize()}, {row.o_dtype.capitalize()})"
