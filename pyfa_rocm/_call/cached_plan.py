# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plans of attention over a KV cache, as `plan` has them of forward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from pyfa_rocm._call.cached import CachedCall, CachedOptions, cached_call
from pyfa_rocm._call.decode import decode_to_c
from pyfa_rocm._call.params import Options
from pyfa_rocm._call.placed import Placed
from pyfa_rocm._call.plan import find, keep
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.tensor import Layout, contiguous

__all__ = ["CachedPlan", "cached_plan"]

# Arrays do not belong in a key: their layouts are in it.
_ARRAYS = ("alibi_slopes", "bias", "philox", "sinks")
_OPTIONS = attrgetter(*(x.name for x in fields(Options) if x.name not in _ARRAYS))
_CACHED = attrgetter(*(x.name for x in fields(CachedOptions)))


class CachedPlan:
    """Calls of one kind.

    Attributes
    ----------
    call : CachedCall
        The parameters, and the layouts of the results.
    workspace : Layout or None
        Layout of a call's workspace, once `ask` has asked; None: it needs none.
    """

    __slots__ = ("_asked", "_lib", "_nbytes", "_structs", "call", "workspace")

    def __init__(self, call: CachedCall, names: tuple[str, ...]) -> None:
        self.call = call
        self.workspace: Layout | None = None
        self._asked: bool | None = None  # whether values were in their keys
        self._structs = Placed(self._filled, (*names, "out", "lse", "workspace", "workspace_bytes"))
        _, self._lib = library.load()

    def _filled(self, values: dict[str, int]) -> tuple[Any, ...]:
        params = self.call.at(values)
        params.workspace_bytes = values["workspace_bytes"]
        c, pointed_to = decode_to_c(params)
        return c, *pointed_to

    def ask(self, addresses: Mapping[str, int]) -> None:
        """Have the C library check a call at the addresses that there are, and say its workspace."""
        nbytes = library.load()[0].new("int64_t *")
        self._structs.ask(self._lib.fmha_decode_workspace_bytes, addresses, nbytes)
        device = self.call.o.device
        self.workspace = contiguous((int(nbytes[0]),), "uint8", device) if nbytes[0] else None
        self._asked = _values_in_keys(addresses)

    def knows(self, addresses: Mapping[str, int]) -> bool:
        """Tell whether `ask` has succeeded for such addresses: a kernel is for values that lie in keys."""
        return self._asked == _values_in_keys(addresses)

    def launch(self, addresses: Mapping[str, int], handle: int) -> None:
        """Launch on the addresses of all arrays, with the workspace's size; the device must be current."""
        self._structs.launch(self._lib.fmha_decode, addresses, handle)


def _values_in_keys(addresses: Mapping[str, int]) -> bool:
    return addresses["k_cache"] == addresses.get("v_cache", addresses["k_cache"])


_plans: dict[tuple[Any, ...], CachedPlan] = {}


def cached_plan(
    layouts: dict[str, Layout], options: Options, cached: CachedOptions, out: Layout | None
) -> CachedPlan:
    """Look for the plan of a call, or check the call and make one; the arguments are `cached_call`'s."""
    key = (tuple(layouts.items()), out, _OPTIONS(options), _CACHED(cached))
    plan = find(_plans, key)
    if plan is None:
        plan = CachedPlan(cached_call(layouts, options, cached, out), tuple(layouts))
        keep(_plans, key, plan)
    return plan
