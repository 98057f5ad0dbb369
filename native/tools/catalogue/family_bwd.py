# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backward family, native/kernels/catalogue/bwd.toml: the kernels of dQ, dK and dV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from family import DTYPES, SETS, Family, Row, Tile, cxx_fields, enumerator

_SCORES = ("alibi", "bias", "softcap")
_FEATURES = (*_SCORES, "dbias", "dropout")
MASKS = ("any", "none", "top_left")  # the only one of a kernel; top_left: causal
LAYOUTS = ("any", "batch", "group")  # group: packed sequences


class BwdTile(Tile, Protocol):
    """The interface of any origin's tile for this family, beside that for all attention families."""

    dtypes: tuple[str, ...]
    """Types that its kernels take."""
    optional: bool
    """Whether its kernels have all features, and do without them too."""
    whole: bool
    """Whether they write the gradients themselves: nothing is added up after them."""
    divides_groups: bool
    """True: several workgroups may divide the query heads of a group, for its dK and dV."""


@dataclass(frozen=True, kw_only=True)
class BwdRow(Row):
    """A backward kernel: what it does, and what of its tile the host needs to know."""

    hdim_q: int
    hdim_v: int
    hdim_step: int
    alibi: bool
    bias: bool
    softcap: bool
    dbias: bool
    dropout: bool
    optional: bool
    whole: bool
    divides_groups: bool
    pipeline: str
    tile_m: int
    tile_n: int
    hdim_least: int = 0
    equal_hdims: bool = False
    mask: str = "any"
    layout: str = "any"
    slot_bytes: int = 0


class Origin(Protocol):
    """The interface of an origin of kernels for this family."""

    header: str
    """The header that a translation unit includes, below native/kernels."""
    facts: dict[str, int] = {}  # noqa: RUF012 - read by all, written by none
    """Of its kernels, if they come prebuilt: those that no row has."""
    flags: tuple[str, ...] = ()
    """Of the compiler, besides those of all kernels."""

    def read_tile(self, content: dict[str, Any], where: str) -> Any:
        """Read a tile of the catalogue."""

    def line(self, row: BwdRow, tile: Any) -> str:
        """Return the line of a translation unit that makes the kernel."""

    def header_of(self, row: BwdRow) -> str:
        """Return the header of a kernel."""
        return self.header

    def flags_of(self, row: BwdRow) -> tuple[str, ...]:
        """Return a kernel's flags."""
        return self.flags

    def more(self, tile: Any) -> dict[str, Any]:
        """Return fields of a row that only some origins have."""
        return {}


def _head(row: BwdRow | Tile) -> str:
    return f"d{row.hdim_q}" if row.hdim_q == row.hdim_v else f"d{row.hdim_q}v{row.hdim_v}"


class Backward(Family):
    """The backward family, as the build's programs see it."""

    name = "bwd"
    axes = ("arch", "dtype", "tile", *_FEATURES)
    required = frozenset(("set", "arch", "dtype", "tile"))
    defaults: dict[str, Any] = dict.fromkeys(_FEATURES, False)
    known: dict[str, tuple[Any, ...]] = {  # noqa: RUF012
        "set": SETS,
        "dtype": DTYPES,
        **dict.fromkeys(_FEATURES, (False, True)),
    }
    enums = {"BwdMask": MASKS, "BwdLayout": LAYOUTS}  # noqa: RUF012
    facts = ("tile_m", "tile_n", "hdim_q", "hdim_v", "block_size", "blocks_per_cu")  # fmha::BwdFacts
    public = (
        *("hdim_q", "hdim_v", "hdim_step", "hdim_least", "equal_hdims", "mask", "layout", *_FEATURES),
        *("optional", "pipeline", "tile_m", "tile_n"),
    )

    def __init__(self, sources: dict[str, Origin]) -> None:
        self.sources = sources
        self.origins = tuple(sources)

    def prebuilt_facts(self, origin: str) -> dict[str, int]:
        return self.sources[origin].facts

    def flags(self, row: BwdRow) -> tuple[str, ...]:
        return self.sources[row.origin].flags_of(row)

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> Any:
        return self.sources[origin].read_tile(content, where)

    def make_row(self, fields: dict[str, Any], tile: BwdTile, where: str) -> BwdRow:
        flags = [key for key in _FEATURES if fields[key]] + ([tile.tag] if tile.tag else [])
        if sum(fields[key] for key in _SCORES) > 1:
            raise ValueError(
                f"{where}: {', '.join(flags)}: a kernel does at most one of {', '.join(_SCORES)}"
            )
        if fields["dbias"] and not fields["bias"]:
            raise ValueError(f"{where}: {', '.join(flags)}: a kernel with dbias has bias")
        if tile.optional:
            if flags:
                raise ValueError(
                    f"{where}: {', '.join(flags)}: the kernels of tile {fields['tile']} have all"
                )
            fields = fields | dict.fromkeys(_FEATURES, True)
        row = BwdRow(
            name="_".join(["fmha", self.name, fields["dtype"], _head(tile), *flags]),
            family=self.name,
            origin=tile.origin,
            hdim_q=tile.hdim_q,
            hdim_v=tile.hdim_v,
            hdim_step=tile.hdim_step,
            optional=tile.optional,
            whole=tile.whole,
            divides_groups=tile.divides_groups,
            pipeline=tile.pipeline,
            tile_m=tile.tile_m,
            tile_n=tile.tile_n,
            **self.sources[tile.origin].more(tile),
            **fields,
        )
        if row.dtype not in tile.dtypes:
            raise ValueError(
                f"{where}: {row.name}: expected dtype {' or '.join(tile.dtypes)}, got {row.dtype!r}"
            )
        return row

    def stem(self, row: BwdRow) -> str:
        # A unit includes one header.
        own = f"_{row.pipeline}" if row.pipeline == "one_pass" else ""
        return f"{self.name}_{row.dtype}_{_head(row)}{own}"

    def order(self, _row: BwdRow) -> int:
        return 0

    def unit_lines(self, rows: list[BwdRow], tiles: dict[str, BwdTile]) -> list[str]:
        origin = self.sources[rows[0].origin]
        header = origin.header_of(rows[0])
        return [f'#include "{header}"', "", *(origin.line(row, tiles[row.tile]) for row in rows)]

    def entry(self, report: dict[str, Any]) -> str:
        """Return the initializer of fmha::BwdRow, in the order of its fields."""
        fields = [
            *cxx_fields(report, ("hdim_q", "hdim_v", "hdim_step", "hdim_least", "equal_hdims")),
            f".mask = BwdMask::{enumerator(report['mask'])}",
            f".layout = BwdLayout::{enumerator(report['layout'])}",
            *cxx_fields(report, (*_FEATURES, "optional", "whole", "divides_groups")),
            f'.pipeline = "{report["pipeline"]}"',
            *cxx_fields(report, ("tile_m", "tile_n", "slot_bytes")),
        ]
        return "{" + ", ".join(fields) + "}"
