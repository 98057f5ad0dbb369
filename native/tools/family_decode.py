# SPDX-License-Identifier: MIT OR Apache-2.0
"""The family of attention over a KV cache: native/kernels/catalogue/decode.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from family import DTYPES, SETS, Family, Row, check_keys, cxx_fields


@dataclass(frozen=True, kw_only=True)
class DecodeRow(Row):
    """A kernel over a KV cache."""

    hdim_q: int
    hdim_v: int
    hdim_step: int


@dataclass(frozen=True)
class DecodeTile:
    """The largest head dims; how a kernel divides its work, the code says."""

    hdim_q: int
    hdim_v: int
    origin: str
    hdim_step: int = 8


class Origin(Protocol):
    """What the family asks of an origin of kernels."""

    header: str
    """What a translation unit includes, below native/kernels."""

    def line(self, row: DecodeRow) -> str:
        """Return the line of a translation unit that makes the kernel."""


def _head(row: DecodeRow | DecodeTile) -> str:
    return f"d{row.hdim_q}" if row.hdim_q == row.hdim_v else f"d{row.hdim_q}v{row.hdim_v}"


class Decode(Family):
    """What the build's programs ask of the family."""

    name = "decode"
    axes = ("arch", "dtype", "tile")
    required = frozenset(("set", "arch", "dtype", "tile"))
    defaults: dict[str, Any] = {}  # noqa: RUF012 - read by all, written by none
    known: dict[str, tuple[Any, ...]] = {"set": SETS, "dtype": DTYPES}  # noqa: RUF012
    enums: dict[str, tuple[str, ...]] = {}  # noqa: RUF012
    facts = ("block_size", "tile_m", "tile_n", "hdim_q", "hdim_v")  # fmha::DecodeFacts
    public = ("hdim_q", "hdim_v", "hdim_step", "tile_m", "tile_n")

    def __init__(self, sources: dict[str, Origin]) -> None:
        self.sources = sources
        self.origins = tuple(sources)

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> DecodeTile:
        check_keys(content, {"hdim_q", "hdim_v"}, set(), where)
        for key, value in content.items():
            if not isinstance(value, int) or value <= 0 or value % 32:
                raise ValueError(f"{where}: {key} is {value!r}, expected a multiple of 32")
        return DecodeTile(content["hdim_q"], content["hdim_v"], origin)

    def make_row(self, fields: dict[str, Any], tile: DecodeTile, where: str) -> DecodeRow:
        row = DecodeRow(
            name=f"fmha_decode_{fields['dtype']}_{_head(tile)}",
            family=self.name,
            origin=tile.origin,
            hdim_q=tile.hdim_q,
            hdim_v=tile.hdim_v,
            hdim_step=tile.hdim_step,
            **fields,
        )
        if row.dtype not in ("fp16", "bf16"):
            raise ValueError(f"{where}: {row.name}: expected fp16 or bf16, got {row.dtype!r}")
        return row

    def stem(self, row: DecodeRow) -> str:
        return f"{self.name}_{row.dtype}_{_head(row)}"

    def order(self, _row: DecodeRow) -> int:
        return 0

    def unit_lines(self, rows: list[DecodeRow], _tiles: dict[str, DecodeTile]) -> list[str]:
        origin = self.sources[rows[0].origin]
        return [f'#include "{origin.header}"', "", *map(origin.line, rows)]

    def entry(self, report: dict[str, Any]) -> str:
        """Return the initializer of fmha::DecodeRow, in the order of its fields."""
        fields = cxx_fields(report, ("hdim_q", "hdim_v", "hdim_step", "tile_m", "tile_n"))
        return "{" + ", ".join(fields) + "}"
