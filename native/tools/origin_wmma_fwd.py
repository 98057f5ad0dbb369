# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own forward kernels for WMMA (Radeon): their tiles, and their line of a translation unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from family import OneHeadDim, check_keys
from family_fwd import FwdRow, Origin

_HDIMS = (64, 128)
_TILE_BYTES = 16384
_ARCHS = ("gfx1100", "gfx1201")


@dataclass(frozen=True)
class WmmaFwdTile(OneHeadDim):
    """How a workgroup divides the work: eight waves of 16 rows, and tiles of K of 16 KB."""

    hdim: int
    tag: str
    origin: str = "wmma"
    pipeline: str = "wmma"
    hdim_step: int = 8
    tile_m: int = 128

    @property
    def tile_n(self) -> int:
        """Keys of a step."""
        return _TILE_BYTES // (2 * self.hdim)


class WmmaFwd(Origin):
    """What the forward family asks of its kernels for WMMA."""

    header = "hip/fwd_wmma.h"
    # In CU mode a workgroup's LDS is that of one compute unit.
    flags = ("-mcumode",)

    def read_tile(self, content: dict[str, Any], where: str) -> WmmaFwdTile:
        check_keys(content, {"hdim", "tag"}, set(), where)
        if content["hdim"] not in _HDIMS:
            raise ValueError(f"{where}: hdim is {content['hdim']!r}, expected one of {_HDIMS}")
        return WmmaFwdTile(**content)

    def why_not(self, row: FwdRow) -> str | None:
        if row.pad and row.arch in _ARCHS and row.dtype in ("fp16", "bf16"):
            return None
        return f"wmma takes any length, and fp16 and bf16 of {' and '.join(_ARCHS)}"

    def line(self, row: FwdRow, tile: WmmaFwdTile) -> str:
        """Return the line that native/kernels/hip/fwd_wmma.h makes a kernel of."""
        bias = {"none": "kNone", "elementwise": "kElementwise", "alibi": "kAlibi"}[row.bias]
        features = [f".mask = {str(row.mask).lower()}", f".bias = fmha::WmmaBias::{bias}"]
        features += [f".{name} = true" for name in ("softcap", "dropout") if getattr(row, name)]
        entry = f"{row.name}, {row.dtype.capitalize()}, {tile.hdim}"
        return f"FMHA_FWD_WMMA_KERNEL({entry}, {', '.join(features)})"
