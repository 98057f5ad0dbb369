# SPDX-License-Identifier: MIT OR Apache-2.0
"""The family of what comes before and after a backward kernel: native/kernels/catalogue/bwd_parts.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from family import DTYPES, FP8, SETS, Family, Row, check_keys, check_known, cxx_fields, enumerator

KINDS = ("dot", "sum", "bias")


@dataclass(frozen=True, kw_only=True)
class BwdPartsRow(Row):
    """A kernel that makes D, or one that sums partial gradients: of a tensor, or of a bias."""

    kind: str


@dataclass(frozen=True)
class Tile:
    """One of the kinds; the code says how they divide their work."""

    kind: str
    origin: str


class Origin(Protocol):
    """The interface of an origin of kernels for this family."""

    header: str
    """The header that a translation unit includes, below native/kernels."""

    def line(self, row: BwdPartsRow) -> str:
        """Return the line of a translation unit that makes the kernel."""


class BackwardParts(Family):
    """The family, as the build's programs see it."""

    name = "bwd_parts"
    axes = ("arch", "dtype", "tile")
    required = frozenset(("set", "arch", "dtype", "tile"))
    defaults: dict[str, Any] = {}  # noqa: RUF012 - read by all, written by none
    known: dict[str, tuple[Any, ...]] = {"set": SETS, "dtype": DTYPES}  # noqa: RUF012
    enums = {"PartKind": KINDS}  # noqa: RUF012
    facts = ("block_size", "per_block")  # fmha::BwdPartFacts
    public = ("kind",)

    def __init__(self, sources: dict[str, Origin]) -> None:
        self.sources = sources
        self.origins = tuple(sources)

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> Tile:
        check_keys(content, {"kind"}, set(), where)
        check_known("kind", content["kind"], KINDS, where)
        return Tile(content["kind"], origin)

    def make_row(self, fields: dict[str, Any], tile: Tile, where: str) -> BwdPartsRow:
        row = BwdPartsRow(
            name=f"fmha_bwd_{tile.kind}_{fields['dtype']}",
            family=self.name,
            origin=tile.origin,
            kind=tile.kind,
            **fields,
        )
        if row.dtype in FP8:
            raise ValueError(f"{where}: {row.name}: expected fp16, bf16 or fp32, got {row.dtype!r}")
        return row

    def stem(self, _row: BwdPartsRow) -> str:
        return self.name

    def order(self, row: BwdPartsRow) -> int:
        return KINDS.index(row.kind)

    def unit_lines(self, rows: list[BwdPartsRow], _tiles: dict[str, Tile]) -> list[str]:
        origin = self.sources[rows[0].origin]
        return [f'#include "{origin.header}"', "", *map(origin.line, rows)]

    def entry(self, report: dict[str, Any]) -> str:
        """Return the initializer of fmha::BwdPartsRow, in the order of its fields."""
        fields = [f".kind = PartKind::{enumerator(report['kind'])}", *cxx_fields(report, ("per_block",))]
        return "{" + ", ".join(fields) + "}"
