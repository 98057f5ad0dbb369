# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own forward kernels: their tiles, and their line of a translation unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from family import FP8, check_keys, check_known
from family_fwd import FwdRow, Origin

_HDIMS = (64, 96, 128, 192, 256, 512)
_ARCHS = ("gfx942", "gfx950")
_IN_STEP, _BY_TURNS, _SHARES = 2, 4, 4


@dataclass(frozen=True)
class HipFwdTile:
    """How a workgroup divides the work: waves of 32 rows, and tiles of K."""

    hdim_q: int
    hdim_v: int
    tag: str
    k_dma: bool = False  # loads of K write LDS: of gfx950 all do
    waves: int = 8  # eight take turns, two are in step, four have K and V by turns
    shares: int = 1  # of so many times as many waves: each has a part of the keys
    origin: str = "hip"
    pipeline: str = "pingpong"
    hdim_step: int = 8

    @property
    def tile_m(self) -> int:
        """Rows of a workgroup."""
        return 32 * self.waves

    @property
    def tile_n(self) -> int:
        """Keys of a step, of gfx942: the tiles fill 64 KB of LDS at most."""
        if self.waves == _IN_STEP:
            return 32
        if self.hdim_q > 128:
            return 32
        return 64 if self.hdim_q > 64 else 128

    @property
    def tile_n_of_gfx950(self) -> int:
        """Keys of a step, of gfx950: the tiles fill 160 KB, and registers have a row's products with them."""
        if self.waves == _BY_TURNS:
            return 64
        if self.hdim_v > 192 or self.waves == _IN_STEP:
            return 32
        return 128 if self.hdim_v <= 128 else 64


class HipFwd(Origin):
    """The kernels in native/kernels/hip, as the forward family sees them."""

    header = "hip/fwd/fwd_pingpong_kernel.h"
    # Packed float32 takes the matrix cores' turn, and saves no cycle beside them.
    flags = ("-fno-slp-vectorize",)

    def read_tile(self, content: dict[str, Any], where: str) -> HipFwdTile:
        check_keys(content, {"hdim", "tag"}, {"hdim_v", "k_dma", "waves", "shares"}, where)
        check_known("hdim", content["hdim"], _HDIMS, where)
        check_known("hdim_v", content.get("hdim_v", content["hdim"]), (128, content["hdim"]), where)
        check_known("k_dma", content.get("k_dma", False), (False, True), where)
        check_known("waves", content.get("waves", 8), (_IN_STEP, _BY_TURNS, 8), where)
        if (content["hdim"] == 512) != (content.get("waves") == _BY_TURNS):
            raise ValueError(f"{where}: head dim 512, and no other, has four waves")
        check_known("shares", content.get("shares", 1), (1, _SHARES), where)
        if content.get("shares", 1) > 1 and not (content.get("waves") == _IN_STEP and content["hdim"] <= 128):
            raise ValueError(f"{where}: only waves in step divide the keys, up to head dim 128")
        fields = {"hdim_v": content["hdim"], **content}
        return HipFwdTile(hdim_q=fields.pop("hdim"), **fields)

    def more(self, fields: dict[str, Any], tile: HipFwdTile) -> dict[str, Any]:
        if fields["dtype"] in FP8:
            return {"tile_n": 64 if tile.hdim_v > 128 else 128, "hdim_step": 16}
        return {"tile_n": tile.tile_n_of_gfx950} if fields["arch"] == "gfx950" else {}

    def why_not(self, row: FwdRow, tile: HipFwdTile) -> str | None:
        if tile.k_dma and row.arch == "gfx950":
            return "k_dma is of gfx942: of gfx950 all loads are by DMA"
        if tile.waves == _IN_STEP and (tile.k_dma or not row.mask or row.bias != "none" or row.softcap):
            return "tiles of two waves are for windows: with a mask, and without k_dma, ALiBi or softcap"
        if tile.shares > 1 and row.arch != "gfx942":
            return "waves that divide the keys are of gfx942"
        if row.dtype in FP8:
            return self._why_no_fp8(row, tile)
        one_score = row.bias == "none" or (row.bias == "alibi" and not row.softcap)
        archs = ("gfx90a", *_ARCHS) if tile.waves == _BY_TURNS else _ARCHS
        if one_score and not row.dropout and row.pad and row.arch in archs and row.dtype in ("fp16", "bf16"):
            return None
        return (
            "pingpong has ALiBi or softcap, but neither bias nor dropout, takes any length, "
            "and fp16 and bf16 of gfx942 and gfx950; head dim 512 is of gfx90a too"
        )

    @staticmethod
    def _why_no_fp8(row: FwdRow, tile: HipFwdTile) -> str | None:
        plain = row.bias == "none" and not row.softcap and not row.dropout and row.pad
        known = tile.hdim_q in {64, 128, 256} and tile.hdim_q == tile.hdim_v and tile.waves != _IN_STEP
        if plain and known and not tile.k_dma and row.arch in _ARCHS:
            return None
        return (
            "pingpong has fp8 for head dims 64, 128 and 256, by eight waves, for any length, without features"
        )

    def line(self, row: FwdRow, tile: HipFwdTile) -> str:
        """Return the line that native/kernels/hip/fwd/fwd_pingpong_kernel.h makes a kernel of."""
        types, mask = f"{row.dtype.capitalize()}, {row.o_dtype.capitalize()}", str(row.mask).lower()
        mover = "DmaMover" if tile.k_dma else "WideMover" if tile.hdim_v > 192 else "Mover"
        mover = "TurnMover" if tile.waves == _BY_TURNS else mover
        if row.dtype in FP8:
            mover = "Fp8WideMover" if tile.hdim_v > 192 else "Fp8Mover"
        score = "kAlibi" if row.bias == "alibi" else "kSoftcap" if row.softcap else "kPlain"
        what = f"{types}, {tile.hdim_q}, {tile.hdim_v}, {mask}, {mover}, {score}, {tile.waves}, {tile.shares}"
        return f"FMHA_FWD_PINGPONG_KERNEL({row.name}, {what})"
