# SPDX-License-Identifier: MIT OR Apache-2.0
"""AITER's backward kernels, which come as code objects: native/kernels/prebuilt/bwd.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from family import check_keys, check_known
from family_bwd import LAYOUTS, MASKS, BwdRow, Origin

_REQUIRED = {"object", "sha256", "symbol", "slot_bytes", "hdim", "tile", "mask", "layout"}


@dataclass(frozen=True)
class Object:
    """A code object of one kernel."""

    object: str
    sha256: str
    symbol: str
    slot_bytes: int
    """Of an argument."""
    hdim_q: int
    hdim_v: int
    tile: tuple[int, int]
    """Query rows of a step, and keys."""
    mask: str
    layout: str
    hdim_least: int = 0
    hdim_step: int = 0
    origin: str = "aiter"
    pipeline: str = "asm_v3"
    dtype: str = "bf16"
    optional: bool = False
    whole: bool = False
    divides_groups: bool = False

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The one type that its kernels take."""
        return (self.dtype,)

    @property
    def tag(self) -> str:
        """Ends the name of its kernel."""
        return f"aiter{'_causal' * (self.mask == 'top_left')}{'_group' * (self.layout == 'group')}"

    @property
    def tile_m(self) -> int:
        """Query rows of a step."""
        return self.tile[0]

    @property
    def tile_n(self) -> int:
        """Keys of a workgroup's tile."""
        return self.tile[1]


class AiterBwd(Origin):
    """AITER's objects, as the backward family sees them."""

    header = ""
    facts = {"block_size": 256, "blocks_per_cu": 1}  # noqa: RUF012

    def read_tile(self, content: dict[str, Any], where: str) -> Object:
        check_keys(content, _REQUIRED, {"dtype", "hdim_v", "hdim_least", "hdim_step"}, where)
        check_known("mask", content["mask"], MASKS[1:], where)
        check_known("layout", content["layout"], LAYOUTS[1:], where)
        if not re.fullmatch("[0-9a-f]{64}", content["sha256"]):
            raise ValueError(f"{where}: sha256 is {content['sha256']!r}, expected 64 hexadecimal digits")
        hdim = content["hdim"]
        if content.get("hdim_v", hdim) != hdim and content.get("hdim_step"):
            raise ValueError(f"{where}: hdim_v and hdim_step, expected at most one")
        fields = {key: value for key, value in content.items() if key != "hdim"}
        return Object(**{"hdim_v": hdim, **fields, "hdim_q": hdim, "tile": tuple(content["tile"])})

    def line(self, row: BwdRow, tile: Object) -> str:
        raise ValueError(f"{row.name} is not compiled")

    def more(self, tile: Object) -> dict[str, Any]:
        """Return what the table says of the object."""
        return {
            "hdim_least": tile.hdim_least,
            "equal_hdims": tile.hdim_q == tile.hdim_v,
            "mask": tile.mask,
            "layout": tile.layout,
            "object": tile.object,
            "object_sha256": tile.sha256,
            "symbol": tile.symbol,
            "slot_bytes": tile.slot_bytes,
        }
