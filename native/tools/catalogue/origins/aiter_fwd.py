# SPDX-License-Identifier: MIT OR Apache-2.0
"""AITER's forward kernels, which come as code objects: native/kernels/prebuilt/fwd.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from family import check_keys
from family_fwd import FwdRow, Origin

# Its programs launch so many threads, for so many rows of a tile.
FACTS = {"block_size": 512, "tile_m": 256, "tile_nv": 128, "hdim_q": 128, "blocks_per_cu": 1}
_REQUIRED = {"object", "sha256", "symbol", "compute_units", "tile_n", "tag"}


@dataclass(frozen=True)
class Object:
    """A code object of one kernel."""

    object: str
    sha256: str
    symbol: str
    compute_units: tuple[int, ...]
    tile_n: int
    tag: str
    origin: str = "aiter"
    pipeline: str = "asm_v3"
    hdim_q: int = FACTS["hdim_q"]
    hdim_v: int = FACTS["tile_nv"]
    hdim_step: int = 0
    tile_m: int = FACTS["tile_m"]


class AiterFwd(Origin):
    """AITER's objects, as the forward family sees them."""

    header = ""
    facts = FACTS

    def read_tile(self, content: dict[str, Any], where: str) -> Object:
        check_keys(content, _REQUIRED, set(), where)
        if not re.fullmatch("[0-9a-f]{64}", content["sha256"]):
            raise ValueError(f"{where}: sha256 is {content['sha256']!r}, expected 64 hexadecimal digits")
        return Object(**{**content, "compute_units": tuple(content["compute_units"])})

    def why_not(self, row: FwdRow, tile: Any) -> str | None:
        plain = not (row.softcap or row.dropout) and row.bias == "none" and row.pad and row.dtype == "bf16"
        return (
            None if plain else "an object has neither bias, softcap nor dropout, takes any length, and bf16"
        )

    def line(self, row: FwdRow, tile: Object) -> str:
        raise ValueError(f"{row.name} is not compiled")

    def more(self, fields: dict[str, Any], tile: Object) -> dict[str, Any]:
        """Return what the table says of the object."""
        return {
            "causal": fields["mask"],
            "compute_units": tile.compute_units,
            "object": tile.object,
            "object_sha256": tile.sha256,
            "symbol": tile.symbol,
        }
