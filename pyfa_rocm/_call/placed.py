# SPDX-License-Identifier: MIT OR Apache-2.0
"""The C structs of one kind of call, checked and filled once: a further call writes only its addresses.

`plan` and `bwd_plan` do this for forward and backward. This is for decode, append and merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyfa_rocm._call.arrays import Array
from pyfa_rocm._call.plan import find, keep
from pyfa_rocm._runtime import hip, library
from pyfa_rocm._runtime.tensor import Layout, Tensor

__all__ = ["Placed", "Placeds", "at_tags", "find_or_make"]

# Stands for the first address, and the next numbers for the others. No size or stride is as large.
_FIRST_TAG = 0x7A67_706C_6163_6500

# A C struct, those that it points to, and where each name's value goes: a struct's words, and which of them.
_Block = tuple[Any, tuple[Any, ...], list[tuple["memoryview[int]", int, str]]]


class Placed:
    """Structs that lack only the values with these names: addresses, and the size of a workspace.

    Parameters
    ----------
    make : callable
        Returns the C struct for values by name, and the structs that it points to.
    names : iterable of str
        Names of the values that differ from call to call.
    """

    __slots__ = ("_cast", "_idle", "_make", "_names", "_null")

    def __init__(self, make: Callable[[dict[str, int]], tuple[Any, ...]], names: Iterable[str]) -> None:
        hip.runtime()
        ffi, _ = library.load()
        self._cast, self._null = ffi.cast, ffi.NULL
        self._make = make
        self._names = tuple(names)
        # Structs that no call is using, as a Plan has them: no two threads ever fill the same one.
        self._idle: list[_Block] = [self._fresh()]

    def _fresh(self) -> _Block:
        """Make the structs with a tag for each value, and look where the tags have gone."""
        ffi, _ = library.load()
        names = dict(enumerate(self._names, _FIRST_TAG))
        structs = self._make({name: tag for tag, name in names.items()})
        places = []
        for c in structs:
            words = memoryview(ffi.buffer(c)).cast("Q")
            places += [(words, i, names[word]) for i, word in enumerate(words) if word in names]
        return structs[0], structs, places

    def ask(self, function: Any, values: Mapping[str, int], *arguments: Any) -> None:
        """Call a C function with these values, and raise if it fails. Values that are not given are 0."""
        try:
            block = self._idle.pop()
        except IndexError:
            block = self._fresh()
        c, _, places = block
        for words, index, name in places:
            words[index] = values.get(name, 0)
        status = function(c, *arguments)
        self._idle.append(block)
        if status:
            library.check(status)

    def launch(self, function: Any, values: Mapping[str, int], handle: int) -> None:
        """Call a C function that enqueues work on a stream; the device must be current."""
        self.ask(function, values, self._cast("void *", handle) if handle else self._null)


Placeds = dict[tuple[Any, ...], Placed]


def at_tags(layouts: Mapping[str, Layout], tags: Mapping[str, int]) -> dict[str, Array]:
    """Return arrays of these layouts, with tags for addresses."""
    return {name: Tensor(tags[name], layout, False, None) for name, layout in layouts.items()}


def find_or_make(
    plans: Placeds,
    key: tuple[Any, ...],
    make: Callable[[dict[str, int]], tuple[Any, ...]],
    names: Iterable[str],
) -> Placed:
    """Return the structs of this key, made and checked if there are none yet."""
    plan = find(plans, key)
    if plan is None:
        plan = Placed(make, names)
        keep(plans, key, plan)
    return plan
