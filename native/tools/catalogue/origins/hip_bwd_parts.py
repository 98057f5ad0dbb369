# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own kernels before and after a backward kernel: their line of a translation unit."""

from __future__ import annotations

from family_bwd_parts import BwdPartsRow, Origin


class HipBwdParts(Origin):
    """The kernels in native/kernels/hip, as the family sees them."""

    header = "hip/bwd/bwd_parts.h"

    def line(self, row: BwdPartsRow) -> str:
        """Return the line that native/kernels/hip/bwd/bwd_parts.h makes a kernel of."""
        return f"FMHA_BWD_{row.kind.upper()}_KERNEL({row.name}, {row.dtype.capitalize()})"
