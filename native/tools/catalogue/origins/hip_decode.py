# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own kernels over a KV cache: their line of a translation unit."""

from __future__ import annotations

from family_decode import DecodeRow, Origin


class HipDecode(Origin):
    """The kernels in native/kernels/hip, as the family sees them."""

    def header(self, row: DecodeRow) -> str:
        return "hip/latent/latent.h" if row.latent else "hip/decode/decode.h"

    def flags(self, row: DecodeRow) -> tuple[str, ...]:
        return ("-fno-slp-vectorize",) if row.latent else ()  # packed float32 asks for more registers

    def line(self, row: DecodeRow) -> str:
        """Return the line that the header makes a kernel of."""
        types = f"{row.dtype.capitalize()}, {row.cache_dtype.capitalize()}"
        layout = f"Decode{row.layout.capitalize()}"
        dims = f"{row.hdim_q}, {row.hdim_v}"
        if row.latent:
            if (row.layout, row.tile_m) != ("rows", 128):
                raise ValueError(f"{row.name}: its cache has rows, and tile_m is 128")
            return f"FMHA_LATENT_KERNEL({row.name}, {types}, {dims})"
        return f"FMHA_DECODE_KERNEL({row.name}, {types}, {dims}, {layout}, {row.tile_m})"
