# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own backward kernels, of float32: their tiles, and their line of a translation unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from family import OneHeadDim, check_keys
from family_bwd import BwdRow, Origin


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
    hdim_step: int = 8
    tile_n: int = 64


class HipBwd(Origin):
    """The kernels in native/kernels/hip, as the backward family sees them."""

    header = "hip/bwd/bwd_fp32_kernel.h"

    def read_tile(self, content: dict[str, Any], where: str) -> HipBwdTile:
        check_keys(content, {"hdim", "rows"}, {"tag"}, where)
        hdim, rows = content["hdim"], content["rows"]
        # Each of 256 threads loads the same number of vectors of four; a product is 16 rows by 64 columns.
        if not (isinstance(hdim, int) and hdim > 0 and hdim % 64 == 0):
            raise ValueError(f"{where}: hdim is a multiple of 64, got {hdim!r}")
        if not (isinstance(rows, int) and rows > 0 and rows % 16 == 0):
            raise ValueError(f"{where}: rows is a multiple of 16, got {rows!r}")
        return HipBwdTile(hdim, rows, content.get("tag"))

    def line(self, row: BwdRow, tile: HipBwdTile) -> str:
        """Return the line that native/kernels/hip/bwd/bwd_fp32_kernel.h makes a kernel of."""
        return f"FMHA_BWD_FP32_KERNEL({row.name}, {tile.hdim}, {tile.tile_m})"
