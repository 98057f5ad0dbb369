# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own kernels over a KV cache: their line of a translation unit."""

from __future__ import annotations

from family_decode import DecodeRow, Origin


class HipDecode(Origin):
    """The kernels in native/kernels/hip, as the family sees them."""

    header = "hip/decode/decode.h"

    def line(self, row: DecodeRow) -> str:
        """Return the line that native/kernels/hip/decode/decode.h makes a kernel of."""
        types = f"{row.dtype.capitalize()}, {row.cache_dtype.capitalize()}"
        layout = f"Decode{row.layout.capitalize()}"
        dims = f"{row.hdim_q}, {row.hdim_v}"
        return f"FMHA_DECODE_KERNEL({row.name}, {types}, {dims}, {layout}, {row.tile_m})"
