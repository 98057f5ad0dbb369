# SPDX-License-Identifier: MIT OR Apache-2.0
"""Families whose kernels are told apart by two types: what they read, and what they write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from family import DTYPES, SETS, Family, Row, check_keys, enumerator


@dataclass(frozen=True, kw_only=True)
class PairRow(Row):
    """A kernel that makes what is of `o_dtype` of what is of its dtype."""

    o_dtype: str


@dataclass(frozen=True)
class Tile:
    """All there is to say: how kernels divide their work, the code says."""

    origin: str


class Origin(Protocol):
    """The interface of an origin of kernels for this family."""

    header: str
    """The header that a translation unit includes, below native/kernels."""

    def line(self, row: PairRow) -> str:
        """Return the line of a translation unit that makes the kernel."""


class Pairs(Family):
    """A family of pairs, as the build's programs see it; each has a name, and knows which pairs exist."""

    axes = ("arch", "dtype", "o_dtype", "tile")
    required = frozenset(("set", "arch", "dtype", "o_dtype", "tile"))
    defaults: dict[str, Any] = {}  # noqa: RUF012 - read by all, written by none
    known: dict[str, tuple[Any, ...]] = {"set": SETS, "dtype": DTYPES, "o_dtype": DTYPES}  # noqa: RUF012
    enums: dict[str, tuple[str, ...]] = {}  # noqa: RUF012
    facts = ("block_size",)
    public = ("o_dtype",)

    def __init__(self, sources: dict[str, Origin]) -> None:
        self.sources = sources
        self.origins = tuple(sources)

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> Tile:
        check_keys(content, set(), set(), where)
        return Tile(origin)

    def complaint(self, row: PairRow) -> str | None:
        """Return what a kernel is expected to be, if there is none of its types."""
        raise NotImplementedError

    def make_row(self, fields: dict[str, Any], tile: Tile, where: str) -> PairRow:
        row = PairRow(
            name=f"fmha_{self.name}_{fields['dtype']}_{fields['o_dtype']}",
            family=self.name,
            origin=tile.origin,
            **fields,
        )
        if expected := self.complaint(row):
            raise ValueError(f"{where}: {row.name}: expected {expected}")
        return row

    def stem(self, _row: PairRow) -> str:
        return self.name

    def order(self, _row: PairRow) -> int:
        return 0

    def unit_lines(self, rows: list[PairRow], _tiles: dict[str, Tile]) -> list[str]:
        origin = self.sources[rows[0].origin]
        return [f'#include "{origin.header}"', "", *map(origin.line, rows)]

    def entry(self, report: dict[str, Any]) -> str:
        """Return the initializer of what the family has of its own in fmha::Kernel."""
        return f"{{.o_dtype = DType::{enumerator(report['o_dtype'])}}}"
