# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own kernels for Radeon, by WMMA or dot products: their tiles, and their lines of a translation unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import family_bwd
import family_fwd
from family import OneHeadDim, check_keys
from family_bwd import BwdRow
from family_fwd import FwdRow

_FWD_HDIMS = (64, 128, 256, 512)
_BWD_HDIMS = (64, 128, 256)
_DTYPES = ("fp16", "bf16")
_GENERATIONS = ("gfx103", "gfx11", "gfx12")
# Packed float32 is not there, and vectors of it cost moves. Waves of a workgroup share a compute unit, whose
# LDS they fill. Without a matrix unit a product is up to 128 instructions, and loops around it must be
# unrolled all the same: their numbers choose registers.
_FLAGS = ("-fno-slp-vectorize", "-mcumode", "-mllvm", "-pragma-unroll-threshold=65536")
_BIASES = {"none": "kNone", "elementwise": "kElementwise", "alibi": "kAlibi"}


@dataclass(frozen=True)
class WmmaFwdTile(OneHeadDim):
    """How a workgroup divides the work: eight waves, and tiles of K of 16 KB, or of 32 of head dim 512.

    Waves have 16 rows each, and from head dim 256 on share them: each has 128 of the head dim.
    """

    hdim: int
    tag: str | None = None
    origin: str = "wmma"
    pipeline: str = "wmma"
    hdim_step: int = 8

    @property
    def tile_m(self) -> int:
        """Rows of queries."""
        return min(128, 16384 // self.hdim)

    @property
    def tile_n(self) -> int:
        """Keys of a step."""
        return max(8192 // self.hdim, 32)


@dataclass(frozen=True)
class WmmaBwdTile(OneHeadDim):
    """How a workgroup divides the work: four waves of 16 rows of its own, and tiles of 8 KB of the others.

    At head dim 128 eight waves may have them, two for 16. At head dim 256 eight waves have 32 rows: four
    share 16. Tiles have 16 KB.
    """

    hdim: int
    tag: str | None = None
    origin: str = "wmma"
    pipeline: str = "two_sided_wmma"
    dtypes: tuple[str, ...] = _DTYPES
    optional: bool = False
    whole: bool = True
    divides_groups: bool = False
    hdim_step: int = 8

    @property
    def tile_m(self) -> int:
        """Rows of a step."""
        return max(4096 // self.hdim, 32)

    @property
    def tile_n(self) -> int:
        """Rows of its own."""
        return 64 if self.hdim <= 128 else 32


def _hdim(content: dict[str, Any], hdims: tuple[int, ...], where: str) -> int:
    check_keys(content, {"hdim"}, set(), where)
    if content["hdim"] not in hdims:
        raise ValueError(f"{where}: hdim is {content['hdim']!r}, expected one of {hdims}")
    return int(content["hdim"])


def _features(mask: bool, bias: str, softcap: bool, dropout: bool, dbias: bool = False) -> str:
    flags = (
        str(mask).lower(),
        f"fmha::WmmaBias::{_BIASES[bias]}",
        str(softcap).lower(),
        str(dropout).lower(),
        str(dbias).lower(),
    )
    return ", ".join(flags)


class WmmaFwd(family_fwd.Origin):
    """The kernels of this file, as the forward family sees them."""

    header = "hip/fwd/fwd_wmma.h"
    flags = _FLAGS

    def read_tile(self, content: dict[str, Any], where: str) -> WmmaFwdTile:
        return WmmaFwdTile(_hdim(content, _FWD_HDIMS, where))

    def why_not(self, row: FwdRow, tile: Any) -> str | None:
        if row.pad and row.arch.startswith(_GENERATIONS) and row.dtype in _DTYPES:
            return None
        return "its kernels take any length, fp16 and bf16, on gfx10.3, gfx11 and gfx12"

    def line(self, row: FwdRow, tile: WmmaFwdTile) -> str:
        """Return the line that native/kernels/hip/fwd/fwd_wmma.h makes a kernel of."""
        features = _features(row.mask, row.bias, row.softcap, row.dropout)
        return f"FMHA_FWD_WMMA_KERNEL({row.name}, {row.dtype.capitalize()}, {tile.hdim}, {features})"


class WmmaBwd(family_bwd.Origin):
    """The kernels of this file, as the backward family sees them."""

    header = "hip/bwd/bwd_wmma.h"
    flags = _FLAGS

    def read_tile(self, content: dict[str, Any], where: str) -> WmmaBwdTile:
        return WmmaBwdTile(_hdim(content, _BWD_HDIMS, where))

    def line(self, row: BwdRow, tile: WmmaBwdTile) -> str:
        """Return the line that native/kernels/hip/bwd/bwd_wmma.h makes a kernel of."""
        if not row.arch.startswith(_GENERATIONS):
            raise ValueError(f"{row.name}: its kernels are of gfx10.3, gfx11 and gfx12")
        bias = "elementwise" if row.bias else "alibi" if row.alibi else "none"
        features = _features(True, bias, row.softcap, row.dropout, row.dbias)
        return f"FMHA_BWD_WMMA_KERNEL({row.name}, {row.dtype.capitalize()}, {tile.hdim}, {features})"
