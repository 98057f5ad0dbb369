# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward family: native/kernels/catalogue/fwd.toml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from family import DTYPES, FP8, SETS, Family, Row, Tile, cxx_fields, enumerator

BIASES = ("none", "elementwise", "alibi")


@dataclass(frozen=True, kw_only=True)
class FwdRow(Row):
    """A forward kernel: what it does, and what of its tile the host needs to know."""

    o_dtype: str
    hdim_q: int
    hdim_v: int
    hdim_step: int
    group: bool
    mask: bool
    pad: bool
    bias: str
    softcap: bool
    dropout: bool
    pipeline: str
    tile_m: int
    tile_n: int
    causal: bool = False  # its mask is causal, bottom-right, and nothing else
    compute_units: tuple[int, ...] = ()  # of the devices that it is for; none: any
    slp: bool = True  # the compiler may pack float32 arithmetic


class Origin(Protocol):
    """The interface of an origin of kernels for this family."""

    header: str
    """The header that a translation unit includes, below native/kernels."""
    facts: dict[str, int] = {}  # noqa: RUF012 - read by all, written by none
    """Of its kernels, if they come prebuilt."""
    flags: tuple[str, ...] = ()
    """Of the compiler, besides those of all kernels."""

    def read_tile(self, content: dict[str, Any], where: str) -> Any:
        """Read a tile of the catalogue."""

    def why_not(self, row: FwdRow, tile: Any) -> str | None:
        """Return why the origin has no such kernel, or None."""

    def line(self, row: FwdRow, tile: Any) -> str:
        """Return the line of a translation unit that makes the kernel."""

    def more(self, fields: dict[str, Any], tile: Any) -> dict[str, Any]:
        """Return fields of a row that only some origins have, or that the tile does not tell."""
        return {}


def head(dtype: str, o_dtype: str, hdim_q: int, hdim_v: int) -> str:
    """Return the part of a name that says types and head dims."""
    types = dtype if o_dtype == dtype else f"{dtype}_{o_dtype}"
    dims = f"d{hdim_q}" if hdim_q == hdim_v else f"d{hdim_q}v{hdim_v}"
    return f"{types}_{dims}"


class Forward(Family):
    """The forward family, as the build's programs see it."""

    name = "fwd"
    axes = ("arch", "dtype", "o_dtype", "tile", "group", "mask", "pad", "bias", "softcap", "dropout")
    required = frozenset(("set", "arch", "dtype", "tile", "mask", "pad"))
    defaults: dict[str, Any] = {  # noqa: RUF012 - read by all, written by none
        "o_dtype": None,
        "group": False,
        "bias": "none",
        "softcap": False,
        "dropout": False,
    }
    known: dict[str, tuple[Any, ...]] = {  # noqa: RUF012
        "set": SETS,
        "dtype": DTYPES,
        "o_dtype": DTYPES,
        "bias": BIASES,
        **dict.fromkeys(("group", "mask", "pad", "softcap", "dropout"), (False, True)),
    }
    enums = {"Bias": BIASES}  # noqa: RUF012
    facts = ("tile_m", "tile_n", "tile_nv", "hdim_q", "block_size", "blocks_per_cu")  # fmha::FwdFacts
    public = (
        *("o_dtype", "hdim_q", "hdim_v", "hdim_step", "group", "mask", "pad"),
        *("bias", "softcap", "dropout", "pipeline", "tile_m", "tile_n", "causal", "compute_units"),
    )

    def __init__(self, sources: dict[str, Origin]) -> None:
        self.sources = sources
        self.origins = tuple(sources)

    def prebuilt_facts(self, origin: str) -> dict[str, int]:
        return self.sources[origin].facts

    def flags(self, row: FwdRow) -> tuple[str, ...]:
        return self.sources[row.origin].flags + ("-fno-slp-vectorize",) * (not row.slp)

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> Any:
        return self.sources[origin].read_tile(content, where)

    def make_row(self, fields: dict[str, Any], tile: Tile, where: str) -> FwdRow:
        fields["o_dtype"] = fields["o_dtype"] or fields["dtype"]
        flags = [key for key in ("group", "mask", "pad") if fields[key]]
        flags += {"none": [], "elementwise": ["bias"], "alibi": ["alibi"]}[fields["bias"]]
        flags += [key for key in ("softcap", "dropout") if fields[key]]
        flags += [tile.tag] if tile.tag else []
        dims = head(fields["dtype"], fields["o_dtype"], tile.hdim_q, tile.hdim_v)
        row = FwdRow(
            name="_".join(["fmha", self.name, dims, *flags]),
            family=self.name,
            origin=tile.origin,
            hdim_q=tile.hdim_q,
            hdim_v=tile.hdim_v,
            pipeline=tile.pipeline,
            tile_m=tile.tile_m,
            **{
                "tile_n": tile.tile_n,
                "hdim_step": tile.hdim_step,
                **self.sources[tile.origin].more(fields, tile),
            },
            **fields,
        )
        if row.o_dtype in FP8 or (row.dtype not in FP8 and row.o_dtype != row.dtype):
            said = f"o_dtype is dtype or, for fp8, another type, got {row.o_dtype!r}"
            raise ValueError(f"{where}: {row.name}: {said}")
        if why := self.sources[row.origin].why_not(row, tile):
            raise ValueError(f"{where}: {row.name}: {why}")
        return row

    def stem(self, row: FwdRow) -> str:
        return f"{self.name}_{head(row.dtype, row.dtype, row.hdim_q, row.hdim_v)}" + "_no_slp" * (not row.slp)

    def order(self, row: FwdRow) -> int:
        return int(row.group)

    def unit_lines(self, rows: list[FwdRow], tiles: dict[str, Tile]) -> list[str]:
        origin = self.sources[rows[0].origin]
        return [f'#include "{origin.header}"', "", *(origin.line(row, tiles[row.tile]) for row in rows)]

    def entry(self, report: dict[str, Any]) -> str:
        """Return the initializer of fmha::FwdRow, in the order of its fields."""
        fields = [
            f".o_dtype = DType::{enumerator(report['o_dtype'])}",
            *cxx_fields(report, ("hdim_q", "hdim_v", "hdim_step", "group", "mask", "pad")),
            f".bias = Bias::{enumerator(report['bias'])}",
            *cxx_fields(report, ("softcap", "dropout")),
            f'.pipeline = "{report["pipeline"]}"',
            *cxx_fields(report, ("tile_m", "tile_n", "tile_nv", "causal")),
            f".compute_units = {{{', '.join(map(str, report['compute_units']))}}}",
        ]
        return "{" + ", ".join(fields) + "}"
