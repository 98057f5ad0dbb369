# SPDX-License-Identifier: MIT OR Apache-2.0
"""The family that appends keys and values to a cache: native/kernels/catalogue/kv_append.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from family import DTYPES, SETS, Family, Row, check_keys, enumerator


@dataclass(frozen=True, kw_only=True)
class KvAppendRow(Row):
    """A kernel that stores what is of its dtype in a cache of another or the same."""

    o_dtype: str


@dataclass(frozen=True)
class Tile:
    """All there is to say: how kernels divide their work, the code says."""

    origin: str


class Origin(Protocol):
    """What the family asks of an origin of kernels."""

    header: str
    """What a translation unit includes, below native/kernels."""

    def line(self, row: KvAppendRow) -> str:
        """Return the line of a translation unit that makes the kernel."""


class KvAppend(Family):
    """What the build's programs ask of the family."""

    name = "kv_append"
    axes = ("arch", "dtype", "o_dtype", "tile")
    required = frozenset(("set", "arch", "dtype", "o_dtype", "tile"))
    defaults: dict[str, Any] = {}  # noqa: RUF012 - read by all, written by none
    known: dict[str, tuple[Any, ...]] = {"set": SETS, "dtype": DTYPES, "o_dtype": DTYPES}  # noqa: RUF012
    enums: dict[str, tuple[str, ...]] = {}  # noqa: RUF012
    facts = ("block_size",)  # fmha::KvAppendFacts
    public = ("o_dtype",)

    def __init__(self, sources: dict[str, Origin]) -> None:
        self.sources = sources
        self.origins = tuple(sources)

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> Tile:
        check_keys(content, set(), set(), where)
        return Tile(origin)

    def make_row(self, fields: dict[str, Any], tile: Tile, where: str) -> KvAppendRow:
        row = KvAppendRow(
            name=f"fmha_kv_append_{fields['dtype']}_{fields['o_dtype']}",
            family=self.name,
            origin=tile.origin,
            **fields,
        )
        if row.dtype not in ("fp16", "bf16") or row.o_dtype not in (row.dtype, "fp8"):
            raise ValueError(f"{where}: {row.name}: expected fp16 or bf16, stored as they are or as fp8")
        return row

    def stem(self, _row: KvAppendRow) -> str:
        return self.name

    def order(self, _row: KvAppendRow) -> int:
        return 0

    def unit_lines(self, rows: list[KvAppendRow], _tiles: dict[str, Tile]) -> list[str]:
        origin = self.sources[rows[0].origin]
        return [f'#include "{origin.header}"', "", *map(origin.line, rows)]

    def entry(self, report: dict[str, Any]) -> str:
        """Return the initializer of fmha::KvAppendRow."""
        return f"{{.o_dtype = DType::{enumerator(report['o_dtype'])}}}"
