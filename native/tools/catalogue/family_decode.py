# SPDX-License-Identifier: MIT OR Apache-2.0
"""The family of attention over a KV cache: native/kernels/catalogue/decode.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from family import DTYPES, FP8, SETS, Family, Row, check_keys, cxx_fields, enumerator

_LOAD_BYTES = 16  # of a lane: what head dims are multiples of
_TILE_M = 16  # rows of an MFMA's tile
_BYTES = {"fp16": 2, "bf16": 2, **dict.fromkeys(FP8, 1)}


@dataclass(frozen=True, kw_only=True)
class DecodeRow(Row):
    """A kernel over a KV cache."""

    hdim_q: int
    hdim_v: int
    hdim_step: int
    cache_dtype: str
    layout: str
    tile_m: int
    latent: bool

    @property
    def kind(self) -> str:
        """Return the part of its name that tells it from others."""
        head = f"d{self.hdim_q}" if self.hdim_q == self.hdim_v else f"d{self.hdim_q}v{self.hdim_v}"
        stored = "" if self.cache_dtype == self.dtype else f"_{self.cache_dtype}"
        layout = "" if self.layout == "rows" else f"_{self.layout}"
        rows = "" if self.tile_m == _TILE_M else f"_m{self.tile_m}"
        return f"{self.dtype}{stored}_{head}{layout}{rows}"


@dataclass(frozen=True)
class DecodeTile:
    """The largest head dims, and the rows of a workgroup; how it divides its keys, the code says."""

    hdim_q: int
    hdim_v: int
    tile_m: int
    origin: str
    latent: bool = False
    """Values are the first dims of keys, which waves share."""


class Origin(Protocol):
    """The interface of an origin of kernels for this family."""

    def header(self, row: DecodeRow) -> str:
        """Return the header that its translation unit includes, below native/kernels."""

    def flags(self, row: DecodeRow) -> tuple[str, ...]:
        """Return the compiler's flags of its translation unit, besides those of all."""

    def line(self, row: DecodeRow) -> str:
        """Return the line of a translation unit that makes the kernel."""


class Decode(Family):
    """The family, as the build's programs see it."""

    name = "decode"
    axes = ("arch", "dtype", "cache_dtype", "layout", "tile")
    required = frozenset(("set", "arch", "dtype", "cache_dtype", "tile"))
    defaults: dict[str, Any] = {"layout": "rows"}  # noqa: RUF012 - read by all, written by none
    known: dict[str, tuple[Any, ...]] = {  # noqa: RUF012
        "set": SETS,
        "dtype": DTYPES,
        "cache_dtype": DTYPES,
        "layout": ("rows", "vectors"),
    }
    enums: dict[str, tuple[str, ...]] = {}  # noqa: RUF012
    facts = ("block_size", "tile_m", "tile_n", "hdim_q", "hdim_v")  # fmha::DecodeFacts
    public = ("hdim_q", "hdim_v", "hdim_step", "cache_dtype", "layout", "tile_m", "tile_n", "latent")

    def __init__(self, sources: dict[str, Origin]) -> None:
        self.sources = sources
        self.origins = tuple(sources)

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> DecodeTile:
        check_keys(content, {"hdim_q", "hdim_v"}, {"tile_m", "latent"}, where)
        sizes = {key: value for key, value in content.items() if key != "latent"}
        for key, value in sizes.items():
            unit = _TILE_M if key == "tile_m" else 32
            if not isinstance(value, int) or value <= 0 or value % unit:
                raise ValueError(f"{where}: {key} is {value!r}, expected a multiple of {unit}")
        return DecodeTile(**({"tile_m": _TILE_M} | content), origin=origin)

    def make_row(self, fields: dict[str, Any], tile: DecodeTile, where: str) -> DecodeRow:
        row = DecodeRow(
            name="",
            family=self.name,
            origin=tile.origin,
            hdim_q=tile.hdim_q,
            hdim_v=tile.hdim_v,
            tile_m=tile.tile_m,
            latent=tile.latent,
            hdim_step=_LOAD_BYTES // _BYTES[fields["cache_dtype"]],
            **fields,
        )
        row = replace(row, name=f"fmha_{self.name}_{row.kind}")
        if row.dtype not in ("fp16", "bf16") or row.cache_dtype not in (row.dtype, *FP8):
            raise ValueError(f"{where}: {row.name}: expected fp16 or bf16, in a cache of the same or of fp8")
        return row

    def stem(self, row: DecodeRow) -> str:
        return f"{self.name}_{row.kind}"

    def flags(self, row: DecodeRow) -> tuple[str, ...]:
        return self.sources[row.origin].flags(row)

    def order(self, _row: DecodeRow) -> int:
        return 0

    def unit_lines(self, rows: list[DecodeRow], _tiles: dict[str, DecodeTile]) -> list[str]:
        origin = self.sources[rows[0].origin]
        return [f'#include "{origin.header(rows[0])}"', "", *map(origin.line, rows)]

    def entry(self, report: dict[str, Any]) -> str:
        """Return the initializer of fmha::DecodeRow, in the order of its fields."""
        fields = cxx_fields(report, ("hdim_q", "hdim_v", "hdim_step", "tile_m", "tile_n"))
        fields.append(f".cache_dtype = DType::{enumerator(report['cache_dtype'])}")
        fields.append(f".vectors = {str(report['layout'] == 'vectors').lower()}")
        fields.append(f".latent = {str(report['latent']).lower()}")
        return "{" + ", ".join(fields) + "}"
