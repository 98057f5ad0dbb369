# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plans of calls: a checked, filled C struct that lacks only the addresses.

A call to a public function is mostly the same work as the call before: checking shapes, working out masks and
strides, filling a struct of some 500 bytes. A plan keeps its result. It is found by the layouts of the
tensors and the options of the call, so a call of a new kind makes a new plan, with every check. The C library
checks what depends on an address, in each call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pyfa_rocm._call.c_struct import c_layout, fill, new
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import check, params_of
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm._runtime import hip, library
from pyfa_rocm._runtime.tensor import Layout, contiguous

__all__ = ["Plan", "Plans", "find", "keep", "make"]

# Plans a table holds at most. Sequence lengths that are never the same would fill it without end.
_MOST_PLANS = 512
# The C library's limit.
_MOST_EXTENTS = 16
# A plan is kept if its options are of these types: a key must not change once it is stored.
_IMMUTABLE = frozenset((type(None), bool, int, float, str, Layout))
_ALSO_IMMUTABLE = (type, np.dtype, np.generic)

# A C struct, and its memory as 64-bit words and as floats.
_Block = tuple[Any, "memoryview[int]", "memoryview[float]"]
Plans = dict[tuple[Any, ...], "Plan"]
_AnyPlan = TypeVar("_AnyPlan")


class Plan:
    """Calls of one kind.

    Attributes
    ----------
    params : FwdParams
        All but the addresses, which are 0, and the numbers that OptionalArguments has.
    o : Layout
        Layout of the output that is allocated if none is given.
    lse : Layout or None
        Layout of the log-sum-exp; None: not wanted.
    s_dmask : tuple of int or None
        Shape of the probabilities; None: not wanted.
    packed : bool
        Whether there may be rows of no sequence, which the kernels leave as they are.
    workspace : Layout or None
        Layout of a call's workspace, once `ask` has asked; None: it needs none.
    asked : bool
        Whether `ask` has succeeded.
    direct : bool
        Whether nothing but `run` is left to do: asked, no other device can be current, no probabilities.
    """

    __slots__ = (
        "_call", "_cast", "_idle", "_k", "_lse", "_null", "_o", "_q", "_v", "_workspace", "_workspace_bytes",
        "asked", "direct", "lse", "o", "packed", "params", "s_dmask", "workspace",
    )  # fmt: skip

    def __init__(
        self, params: FwdParams, o: Layout, lse: Layout | None, s_dmask: tuple[int, ...] | None, packed: bool
    ) -> None:
        hip.runtime()
        ffi, lib = library.load()
        self._call = lib.fmha_fwd
        self.params = params
        self.o = o
        self.lse = lse
        self.s_dmask = s_dmask
        self.packed = packed
        self.workspace: Layout | None = None
        self.asked = self.direct = False
        self._cast = ffi.cast
        self._null = ffi.NULL
        # Structs that no call is using. A call takes one and puts it back: list.pop and append are atomic, so
        # no two threads ever fill the same one.
        self._idle: list[_Block] = []
        offsets = c_layout().offsets
        self._q, self._k, self._v, self._o, self._lse = (
            offsets[f"{name}.data"] // 8 for name in ("q", "k", "v", "o", "lse")
        )
        self._workspace, self._workspace_bytes = (
            offsets[name] // 8 for name in ("workspace", "workspace_bytes")
        )

    def _fresh(self) -> _Block:
        c, view = new()
        fill(view, self.params)
        return c, view.cast("Q"), view.cast("f")

    def ask(self, q: int, k: int, v: int, o: int, optional: OptionalArguments | None) -> None:
        """Have the C library check a call before anything is allocated for it, and say its workspace.

        The device must be current; `o` is 0 if it is to be allocated.
        """
        ffi, lib = library.load()
        c, words, floats = self._fresh()
        self._place(words, floats, optional)
        words[self._q], words[self._k], words[self._v], words[self._o] = q, k, v, o
        nbytes = ffi.new("int64_t *")
        library.check(lib.fmha_fwd_workspace_bytes(c, nbytes))
        self._idle.append((c, words, floats))
        self.workspace = contiguous((int(nbytes[0]),), "uint8", self.o.device) if nbytes[0] else None
        self.asked = True
        self.direct = self.o.device == 0 and hip.has_one_device() and self.s_dmask is None

    def launch(
        self,
        q: int,
        k: int,
        v: int,
        o: int,
        lse: int,
        workspace: int,
        optional: OptionalArguments | None,
        handle: int,
    ) -> None:
        """Launch on these addresses; the device must be current. lse and workspace are 0 if not wanted."""
        try:
            block = self._idle.pop()
        except IndexError:
            block = self._fresh()
        c, words, floats = block
        words[self._q] = q
        words[self._k] = k
        words[self._v] = v
        words[self._o] = o
        words[self._lse] = lse
        if optional is not None:
            self._place(words, floats, optional)
        if self.workspace is not None:
            words[self._workspace] = workspace
            words[self._workspace_bytes] = self.workspace.shape[0]
        status = self._call(c, self._cast("void *", handle) if handle else self._null)
        if status:
            library.check(status)
        self._idle.append(block)

    def extents(
        self, q: int, k: int, v: int, o: int, lse: int, optional: OptionalArguments | None
    ) -> list[tuple[int, int]]:
        """Return address and bytes of all memory that a call reads or writes, its workspace aside."""
        ffi, lib = library.load()
        block = self._fresh()
        c, words, floats = block
        words[self._q], words[self._k], words[self._v], words[self._o], words[self._lse] = q, k, v, o, lse
        self._place(words, floats, optional)
        extents, count = ffi.new("fmha_extent[]", _MOST_EXTENTS), ffi.new("int32_t *")
        library.check(lib.fmha_fwd_extents(c, extents, _MOST_EXTENTS, count))
        self._idle.append(block)
        return [(int(ffi.cast("uintptr_t", x.data)), x.bytes) for x in extents[0 : count[0]]]

    @staticmethod
    def _place(words: memoryview[int], floats: memoryview[float], optional: OptionalArguments | None) -> None:
        if optional is None:
            return
        for index, word in optional.words:
            words[index] = word
        for index, number in optional.floats:
            floats[index] = number

    def params_at(self, q: int, k: int, v: int, optional: OptionalArguments | None) -> FwdParams:
        """Return the parameters with the addresses and numbers of a call, but those of its outputs."""
        p = self.params
        return replace(
            p,
            q=p.q._replace(data=q),
            k=p.k._replace(data=k),
            v=p.v._replace(data=v),
            **({} if optional is None else optional.fields(p)),
        )


def make(plans: Plans, key: tuple[Any, ...], call: Call) -> Plan:
    """Check a call, and return a new plan of its kind, kept for further calls with this key."""
    checked = check(call)
    params, o, lse = params_of(call, checked)
    s_dmask = checked.scores if call.options.return_attn_probs else None
    plan = Plan(params, o, lse, s_dmask, call.max_seqlen_q is not None)
    keep(plans, key, plan)
    return plan


def keep(plans: dict[tuple[Any, ...], _AnyPlan], key: tuple[Any, ...], plan: _AnyPlan) -> None:
    """Store a plan for further calls with this key, which must not change."""
    if _is_immutable(key):
        if len(plans) >= _MOST_PLANS:
            plans.clear()
        plans[key] = plan


def find(plans: dict[tuple[Any, ...], _AnyPlan], key: tuple[Any, ...]) -> _AnyPlan | None:
    """Return the plan that was made for this key, if any."""
    try:
        return plans.get(key)
    except TypeError:  # an option without a hash, a list for window_size say
        return None


def _is_immutable(key: tuple[Any, ...]) -> bool:
    for x in key:
        kind = type(x)
        if kind is tuple:
            if not _is_immutable(x):
                return False
        elif kind not in _IMMUTABLE and not isinstance(x, _ALSO_IMMUTABLE):
            return False
    return True
