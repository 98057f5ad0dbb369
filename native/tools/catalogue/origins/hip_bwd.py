# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own backward kernels, of float32, and of 16 bits for Instinct: tiles, lines of a translation unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from family import OneHeadDim, check_keys, check_known
from family_bwd import BwdRow, Origin

# Each pipeline's head dims, and rows of a workgroup's own.
_SIDES = {"pingpong": ((64, 128), 256), "wide": ((192, 256), 128), "halves": ((512,), 64)}
_SIDES_ARCHS = ("gfx942", "gfx950")
# The one that adds up dQ in memory.
_ONE_PASS = "one_pass"


@dataclass(frozen=True)
class HipBwdTile(OneHeadDim):
    """How a workgroup divides the work: its 64 rows are those of four waves of 16."""

    hdim: int
    tile_m: int
    """Rows of a step: queries for a tile of keys, and keys for a tile of queries."""
    tag: str | None = None
    origin: str = "hip"
    pipeline: str = "two_sided"
    dtypes: tuple[str, ...] = ("fp32",)
    optional: bool = True
    whole: bool = True
    divides_groups: bool = False
    hdim_step: int = 8
    tile_n: int = 64


@dataclass(frozen=True)
class SidesTile(OneHeadDim):
    """How a workgroup divides the work: waves of 32 rows of its own, and blocks of 32 of the others."""

    hdim: int
    tag: str
    pipeline: str
    tile_n: int
    origin: str = "hip"
    dtypes: tuple[str, ...] = ("fp16", "bf16")
    optional: bool = False
    whole: bool = True
    divides_groups: bool = True
    hdim_step: int = 8
    tile_m: int = 32


@dataclass(frozen=True)
class OnePassTile(SidesTile):
    """As SidesTile; dQ is added up in memory, of batches."""

    whole: bool = False
    layout: str = "batch"


class HipBwd(Origin):
    """The kernels in native/kernels/hip, as the backward family sees them."""

    header = "hip/bwd/bwd_pingpong.h"
    # Packed float32 takes the matrix cores' turn.
    flags = ("-fno-slp-vectorize",)

    def read_tile(self, content: dict[str, Any], where: str) -> HipBwdTile | SidesTile:
        if (pipeline := content.get("tag")) == _ONE_PASS:
            check_keys(content, {"hdim", "tag"}, set(), where)
            check_known("hdim", content["hdim"], (128,), where)
            return OnePassTile(**content, pipeline=_ONE_PASS, tile_n=256)
        if pipeline in _SIDES:
            hdims, rows = _SIDES[pipeline]
            check_keys(content, {"hdim", "tag"}, set(), where)
            check_known("hdim", content["hdim"], hdims, where)
            return SidesTile(**content, pipeline=pipeline, tile_n=rows)
        check_keys(content, {"hdim", "rows"}, {"tag"}, where)
        hdim, rows = content["hdim"], content["rows"]
        # Each of 256 threads loads the same number of vectors of four; a product is 16 rows by 64 columns.
        if not (isinstance(hdim, int) and hdim > 0 and hdim % 64 == 0):
            raise ValueError(f"{where}: hdim is a multiple of 64, got {hdim!r}")
        if not (isinstance(rows, int) and rows > 0 and rows % 16 == 0):
            raise ValueError(f"{where}: rows is a multiple of 16, got {rows!r}")
        return HipBwdTile(hdim, rows, content.get("tag"))

    def more(self, tile: HipBwdTile | SidesTile) -> dict[str, Any]:
        return {"layout": tile.layout} if isinstance(tile, OnePassTile) else {}

    def header_of(self, row: BwdRow) -> str:
        return "hip/bwd/bwd_fp32_kernel.h" if row.dtype == "fp32" else f"hip/bwd/bwd_{row.pipeline}.h"

    def flags_of(self, row: BwdRow) -> tuple[str, ...]:
        return () if row.dtype == "fp32" else self.flags

    def line(self, row: BwdRow, tile: HipBwdTile | SidesTile) -> str:
        """Return the line that the header makes a kernel of."""
        if isinstance(tile, SidesTile):
            if tile.pipeline == _ONE_PASS and (row.softcap or row.arch != "gfx942"):
                raise ValueError(f"{row.name}: {_ONE_PASS} has no softcap, and is for gfx942")
            if row.bias or row.dropout or row.arch not in _SIDES_ARCHS:
                raise ValueError(
                    f"{row.name}: {tile.pipeline} has neither bias nor dropout, and is for gfx942 and gfx950"
                )
            score = "kAlibi" if row.alibi else "kSoftcap" if row.softcap else "kPlain"
            macro = f"FMHA_BWD_{tile.pipeline.upper()}_KERNEL"
            return f"{macro}({row.name}, {row.dtype.capitalize()}, {tile.hdim}, {score})"
        return f"FMHA_BWD_FP32_KERNEL({row.name}, {tile.hdim}, {tile.tile_m})"
