# SPDX-License-Identifier: MIT OR Apache-2.0
"""The code that all families of kernels share, and the interface of one for the build's programs.

A family (forward, say) owns a file of native/kernels/catalogue, the axes of its rows, its checks, and what
the library's table says of its kernels. An origin of kernels (CK, say) owns how a kernel of a family is
described and written: its tiles, its limits, its line of a translation unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

SETS = ("ci", "default", "full")
# The kinds of 8-bit floats, e4m3fnuz and e4m3fn, of which an arch has at most one (native/archs.toml).
FP8 = ("fp8", "fp8fn")
DTYPES = ("fp16", "bf16", "fp32", *FP8)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kernel instance, as far as all families have it; each adds fields of its own."""

    name: str
    arch: str
    family: str
    origin: str
    set: str
    dtype: str
    tile: str
    unit: str = ""  # the translation unit, which depends on what else is built: see in_units
    allow_spills: str | None = None
    object: str = ""  # of a prebuilt kernel: the file that it comes in, in the package it comes from
    object_sha256: str = ""
    symbol: str = ""  # its name there

    def path(self) -> str:
        """Return what FMHA_KERNEL_FILTER sees."""
        return f"{self.arch}/{self.name}"


class Tile(Protocol):
    """The interface of any origin's tile for the attention families."""

    origin: str
    pipeline: str
    tag: str | None
    """Ends the names of its kernels."""
    hdim_q: int
    """The largest head dim of q and k."""
    hdim_v: int
    """The largest head dim of v and o."""
    hdim_step: int
    """0: head dims exactly those; n: any multiple of n up to those."""
    tile_m: int
    """Query rows: forward of a workgroup, backward of a step."""
    tile_n: int
    """Keys: forward of a step, backward of a workgroup."""


class OneHeadDim:
    """A tile whose keys and values have the same head dim, `hdim`."""

    hdim: int

    @property
    def hdim_q(self) -> int:
        """The largest head dim of q and k."""
        return self.hdim

    @property
    def hdim_v(self) -> int:
        """The largest head dim of v and o."""
        return self.hdim


class Family(Protocol):
    """The interface of a family for catalogue.py, report.py and embed.py."""

    name: str
    origins: tuple[str, ...]
    axes: tuple[str, ...]
    """Keys of an entry that may be lists, in the order of their product: the first varies slowest."""
    required: frozenset[str]
    """Those that every entry has."""
    defaults: dict[str, Any]
    """Those that need not be there, and what they are then."""
    known: dict[str, tuple[Any, ...]]
    """The values an axis takes; of the others any origin's or arch's."""
    enums: dict[str, tuple[str, ...]]
    """C++ enums of the family, by name."""
    facts: tuple[str, ...]
    """The numbers, all int32, of the symbol <kernel>_facts."""
    public: tuple[str, ...]
    """Fields of a row that fmha_build_info() has."""

    def prebuilt_facts(self, origin: str) -> dict[str, int]:
        """Return the facts of an origin's prebuilt kernels."""
        return {}

    def flags(self, row: Any) -> tuple[str, ...]:
        """Return the compiler's flags of rows like this one, besides those of all."""
        return ()

    def read_tile(self, content: dict[str, Any], origin: str, where: str) -> Any:
        """Read a tile; ValueError says what is wrong with it."""

    def make_row(self, fields: dict[str, Any], tile: Any, where: str) -> Row:
        """Make the row of an entry's combination and a tile; ValueError says why there is no such kernel."""

    def stem(self, row: Any) -> str:
        """Return the name of the translation units of rows like this one."""

    def order(self, row: Any) -> int:
        """Return what sorts the rows of a unit, which are in the catalogue's order otherwise."""

    def unit_lines(self, rows: list[Any], tiles: dict[str, Any]) -> list[str]:
        """Return the lines of a translation unit that makes these rows, all of one origin."""

    def entry(self, report: dict[str, Any]) -> str:
        """Return the C++ initializer of what the family has of its own in fmha::Kernel."""


def enumerator(value: str) -> str:
    """Return the C++ enumerator of a value: kGfx942, kQrAsync."""
    return "k" + "".join(part[0].upper() + part[1:] for part in value.split("_"))


def check_keys(table: dict[str, Any], required: set[str], optional: set[str], where: str) -> None:
    """Raise ValueError unless a table has all required keys and no strange one."""
    missing, unknown = required - table.keys(), table.keys() - required - optional
    if missing:
        raise ValueError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown:
        raise ValueError(f"{where}: unknown key {', '.join(sorted(unknown))}")


def check_known(key: str, value: Any, known: tuple[Any, ...], where: str) -> None:
    """Raise ValueError unless a value is one of those known."""
    if value not in known:
        raise ValueError(f"{where}: {key} is {value!r}, expected one of {', '.join(map(str, known))}")


def cxx_fields(report: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """Return C++ designated initializers of fields that a report has under the same names."""
    values = ((name, report[name]) for name in names)
    return [f".{name} = {str(value).lower() if isinstance(value, bool) else value}" for name, value in values]
