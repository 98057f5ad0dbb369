# SPDX-License-Identifier: MIT OR Apache-2.0
"""One allocation for all tensors of a call, and values for each field of a struct: what fuzz tests share.

NumPy reads back the fields that the library accepts, so that a field that has become another
legal one is judged as well. A call that would leave the allocation is the caller's mistake: it is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from strict import forgiven

import pyfa_rocm
from pyfa_rocm import DeviceArray, FmhaError, InvalidArgumentError, UnsupportedError

REGION = 1 << 16
HOST = np.zeros(1 << 12, np.float16)
INTEGERS = (0, 1, -1, 2, 3, 7, 8, 64, 65536, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e-45, 0.01, 1.0, float("inf"), float("-inf"), float("nan"), 3e38)
WORDS = {
    "dtype": ("float16", "bfloat16", "float32", "float8_e4m3fnuz", "float8_e4m3fn", "int8", None, 3),
    "mask": ("none", "causal", "causal_top_left", "window", "window_top_left", "diagonal", None),
}
Bytes = npt.NDArray[np.uint8]
Path = tuple[str, ...]


class OutsideError(Exception):
    """A call would leave the arena, or break another promise of its caller."""


class Arena:
    """The allocation, with a region for each tensor and one more; all of it float16 until told otherwise."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        rng = np.random.default_rng(9)
        self.host: Bytes = (
            rng.standard_normal((len(names) + 1) * REGION // 2).astype(np.float16).view(np.uint8)
        )
        self.device = DeviceArray.from_numpy(self.host)

    def address(self, name: str) -> int:
        return int(self.device.data) + self.names.index(name) * REGION

    def fill(self, name: str, numbers: Any, dtype: npt.DTypeLike) -> None:
        """Begin a region with numbers, the rest of it being zeros."""
        at = self.names.index(name) * REGION
        region = self.host[at : at + REGION].view(dtype)
        region[:] = 0
        held = np.asarray(numbers, dtype).ravel()
        region[: held.size] = held

    def upload(self) -> None:
        """Make the device's copy like the host's."""
        self.device = DeviceArray.from_numpy(self.host)

    def view(
        self, data: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], of: Any = None
    ) -> Any:
        """Return a tensor of a struct as a view of the host's copy, or of another; strides in elements."""
        dtype, host = np.dtype(dtype), self.host if of is None else of
        if 0 in shape:
            return np.zeros(shape, dtype)
        at = data - int(self.device.data)
        steps = [0 if n == 1 else s * dtype.itemsize for n, s in zip(shape, strides, strict=True)]
        end = at + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + dtype.itemsize
        if not 0 <= at < end <= host.size:
            raise OutsideError
        return np.ndarray(shape, dtype, host.data, at, steps)

    def mark(self, flags: npt.NDArray[np.bool_], data: int, view: Any) -> None:
        """Set the flags of a view's bytes."""
        if not view.size:
            return
        steps = tuple(s if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True))
        for byte in range(view.itemsize):
            at = data - int(self.device.data) + byte
            np.ndarray(view.shape, np.bool_, flags.data, at, steps)[...] = True


def paths(owner: Any, before: Path = ()) -> Iterator[Path]:
    """Every field of a struct and of the structs in it."""
    names = owner._fields if hasattr(owner, "_fields") else [field.name for field in fields(owner)]
    for name in names:
        value = getattr(owner, name)
        if is_dataclass(value) or hasattr(value, "_fields"):
            yield from paths(value, (*before, name))
        else:
            yield (*before, name)


def get(owner: Any, path: Path) -> Any:
    for name in path:
        owner = getattr(owner, name)
    return owner


def changed(owner: Any, path: Path, value: Any) -> Any:
    """Return an object with another value in the field at a path."""
    name, *rest = path
    if rest:
        value = changed(getattr(owner, name), tuple(rest), value)
    new: dict[str, Any] = {name: value}
    return owner._replace(**new) if hasattr(owner, "_replace") else replace(owner, **new)


def values(arena: Arena, owner: Any, path: Path, lists: tuple[str, ...]) -> list[Any]:
    """Values for a field. `lists`: by path, pointers to integers, whose memory cannot be any."""
    held, name = get(owner, path), path[-1]
    for word, choice in WORDS.items():
        if word in name:
            return list(choice)
    start = int(arena.device.data)
    if ".".join(path) in lists:
        return [0, 1, 2, HOST.ctypes.data, 2**64 - 16, held + 4, held]
    if isinstance(held, int) and not isinstance(held, bool) and start <= held < start + arena.host.size:
        others = [arena.address(other) for other in arena.names]
        end = start + arena.host.size
        return [
            0,
            1,
            2**64 - 16,
            HOST.ctypes.data,
            end - 16,
            held - 16,
            *others,
            *(held + n for n in (1, 2, 8, 16)),
        ]
    if isinstance(held, float):
        return list(FLOATS)
    if isinstance(held, int):
        return [*INTEGERS, held + 1, held - 1, held + 8, 2 * held, held // 2, -held]
    return [0, 1, 2]


class Tried:
    """A way to make a call with a struct and to judge its results.

    `expected` gives a judge, which gets the bytes afterwards and flags, and sets those of bytes that may
    differ. It gives None if the call must be refused, and raises OutsideError if it would leave the arena.
    `words`: what each refusal must match.
    """

    def __init__(
        self,
        arena: Arena,
        call: Callable[[Any], None],
        supported: Callable[[Any], None],
        expected: Callable[[Any], Callable[[Bytes, npt.NDArray[np.bool_]], None] | None],
        words: Any,
    ) -> None:
        self.arena, self._call, self._supported = arena, call, supported
        self._expected, self._words = expected, words

    def __call__(self, params: Any) -> bool:
        """Return whether the call was accepted. The arena is as before again."""
        arena = self.arena
        judge = None
        try:
            self._supported(params)
            judge = self._expected(params)
        except OutsideError:
            return False
        except FmhaError:
            pass
        refusal = ""
        try:
            with forgiven():
                self._call(params)
                pyfa_rocm.synchronize()
        except (InvalidArgumentError, UnsupportedError) as error:
            refusal = str(error)
        except FmhaError:  # stopped by the device
            arena.upload()
            raise
        after = arena.device.to_numpy()
        may_differ = np.zeros(after.size, np.bool_)
        try:
            if refusal:
                assert self._words.search(refusal), f"the message names no field: {refusal}"
            else:
                assert judge is not None, "run, though it is said to be unsupported"
                judge(after, may_differ)
            assert np.array_equal(after[~may_differ], arena.host[~may_differ]), "other bytes were written"
            return not refusal
        finally:
            if not np.array_equal(after, arena.host):
                arena.upload()


def try_field(tried: Tried, make: Callable[[Arena], Any], path: Path, lists: tuple[str, ...]) -> None:
    """Try a field of what `make` makes at every one of its values."""
    arena = tried.arena
    for i in range(len(values(arena, make(arena), path, lists))):
        params = make(arena)  # anew: the arena moves when something was written
        value = values(arena, params, path, lists)[i]
        print(f"{'.'.join(path)} = {value!r}")
        tried(changed(params, path, value))


def try_fields(
    tried: Tried, make: Callable[[Arena], Any], data: st.DataObject, given: list[Path], lists: tuple[str, ...]
) -> None:
    """Try some of the fields at once, each at a value that Hypothesis draws."""
    arena = tried.arena
    params = make(arena)
    for path in data.draw(st.lists(st.sampled_from(given), min_size=2, max_size=4)):
        choice = values(arena, make(arena), path, lists)
        value = choice[data.draw(st.integers(0, len(choice) - 1))]
        print(f"{'.'.join(path)} = {value!r}")
        params = changed(params, path, value)
    tried(params)


def tame(*arrays: Any) -> bool:
    """Tell whether these are numbers that 16 bits can work with."""
    return all(
        np.isfinite(x.astype(np.float64)).all() and np.abs(x.astype(np.float64)).max(initial=0) < 100
        for x in arrays
    )
