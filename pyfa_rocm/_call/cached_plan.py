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
    """

    __slots__ = ("_lib", "_structs", "_workspaces", "call")

    def __init__(self, call: CachedCall, names: tuple[str, ...]) -> None:
        self.call = call
        # By whether values lie in their keys, which have a kernel of their own. Calls of both kinds may come
        # in turn, and from several threads: what one has asked changes nothing for another.
        self._workspaces: dict[bool, Layout | None] = {}
        self._structs = Placed(self._filled, (*names, "out", "lse", "workspace", "workspace_bytes"))
        _, self._lib = library.load()

    def _filled(self, values: dict[str, int]) -> tuple[Any, ...]:
        params = self.call.at(values)
        params.workspace_bytes = values["workspace_bytes"]
        c, pointed_to = decode_to_c(params)
        return c, *pointed_to

    def ask(self, addresses: Mapping[str, int]) -> Layout | None:
        """Have the C library check a call at these addresses, and return its workspace's layout."""
        nbytes = library.load()[0].new("int64_t *")
        self._structs.ask(self._lib.fmha_decode_workspace_bytes, addresses, nbytes)
        device = self.call.o.device
        workspace = contiguous((int(nbytes[0]),), "uint8", device) if nbytes[0] else None
        self._workspaces[_values_in_keys(addresses)] = workspace
        return workspace

    def workspace(self, addresses: Mapping[str, int]) -> Layout | None:
        """Return what `ask` has, which is called only if it has not been for such addresses."""
        try:
            return self._workspaces[_values_in_keys(addresses)]
        except KeyError:
            return self.ask(addresses)

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
