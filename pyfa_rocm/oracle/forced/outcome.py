# SPDX-License-Identifier: MIT OR Apache-2.0
"""The outcome of a random problem on a kernel, and how the kernel is asked for."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.params import CATALOGUE_TYPES
from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.device import synchronize
from pyfa_rocm.fmha import KernelInfo
from pyfa_rocm.oracle.params import candidates, put

__all__ = [
    "DTYPE_OF",
    "Array",
    "NotOfferedError",
    "Outcome",
    "Row",
    "Sizes",
    "choose",
    "drawn",
    "hdim_of",
    "nothing",
    "number_of",
    "repeated",
    "workspace",
]

Array = npt.NDArray[Any]
Row = dict[str, Any]
DTYPE_OF = {name: dtype for dtype, name in CATALOGUE_TYPES.items()}
# Problems that are drawn until the library offers the kernel.
TRIES = 8
# Rows that end in the middle of a 128-byte line, and workspaces at addresses that the C ABI wants.
_ALIGNED = 256


class Sizes(NamedTuple):
    """How large a random problem may be, and how often it runs."""

    longest: int
    most_heads: int
    runs: int


class NotOfferedError(Exception):
    """The library does not offer a kernel for a problem."""


class Outcome(NamedTuple):
    """The outcome of a problem on a kernel.

    Attributes
    ----------
    problem : str
        The problem in words.
    shares : dict of str to float
        By result, the largest share of an element's tolerance that was used; NaN if a result is.
    same_bits : bool
        True if all runs gave the same bits.
    promised : bool
        True if the library promises the same bits for this call.
    """

    problem: str
    shares: dict[str, float]
    same_bits: bool
    promised: bool

    @property
    def right(self) -> bool:
        """Tell whether all results are within tolerance (false for NaN)."""
        return all(share <= 1.0 for share in self.shares.values())


def drawn(row: Row, seed: int) -> np.random.Generator:
    """Return random numbers for a kernel, the same for a seed."""
    return np.random.default_rng((seed, zlib.crc32(f"{row['arch']} {row['name']}".encode())))


def choose(rng: np.random.Generator, values: Any) -> Any:
    """Return one of some values."""
    return values[int(rng.integers(len(values)))]


def hdim_of(rng: np.random.Generator, tile: int, step: int, least: int = 0) -> int:
    """Return a head dim that fits a tile: the tile itself half of the time."""
    if not step or rng.random() < 0.5:
        return tile
    first = max(least, tile // 2 + step, step)
    return int(rng.integers(first // step, tile // step + 1)) * step


def nothing(shape: tuple[int, ...], dtype: str) -> DeviceArray:
    """Return an array of NaN on the device: what a kernel leaves unwritten stays wrong."""
    return put(np.full(shape, np.nan, dtype_of(dtype)))


def workspace(nbytes: int) -> tuple[DeviceArray | None, int]:
    """Return device memory, each byte 0xFF, and its address."""
    if not nbytes:
        return None, 0
    array = put(np.full(nbytes + _ALIGNED, 0xFF, np.uint8))
    return array, -(-array.data // _ALIGNED) * _ALIGNED


def number_of(params: Any, info: Callable[[Any], KernelInfo], name: str) -> KernelInfo:
    """Set `params.kernel` so that the kernel of a name runs, and describe it.

    Raises
    ------
    NotOfferedError
        It is not among the candidates.
    """
    for found in candidates(params, info):
        if found.name == name:
            return found
    raise NotOfferedError(name)


def repeated(run: Callable[[], dict[str, Array]], runs: int) -> tuple[dict[str, Array], bool]:
    """Run several times; return the first results, and whether all have the same bits."""

    def once() -> dict[str, Array]:
        found = run()
        synchronize()
        return found

    first = once()
    same = True
    for _ in range(runs - 1):
        again = once()
        same = same and all(again[name].tobytes() == x.tobytes() for name, x in first.items())
    return first, same
