# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators over KV caches: ``torch.ops.pyfa_rocm.fmha_decode``, ``fmha_kv_append`` and ``fmha_merge``.

They declare what they write: caches, rotated queries, and results that were given. As with the operators of
`_operators`, tensors on a ROCm device are used where they are, those on the CPU are lent to the software
device, and those without memory get the same checks.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from pyfa_rocm._call.cached import CachedCall, CachedOptions, cached_call
from pyfa_rocm._call.cached_plan import CachedPlan
from pyfa_rocm._call.lengths import require_appended, require_cached
from pyfa_rocm._call.params import Options
from pyfa_rocm._call.plan import find, keep
from pyfa_rocm._runtime import host_memory, library
from pyfa_rocm._runtime.tensor import Layout, Tensor
from pyfa_rocm.device import enter_device, leave_device
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.kv_append import append_params, append_plan
from pyfa_rocm.merge import merge_plan, merged_layouts
from pyfa_rocm.torch._derivatives import refused_in_a_graph
from pyfa_rocm.torch._operators import allocate_workspace, define, new_lse, new_out, stream_handle
from pyfa_rocm.torch._schema import Argument
from pyfa_rocm.torch._tensors import (
    describe,
    device_index,
    dtype_name,
    dtype_named,
    known_lengths,
    require_one_device,
    symbolic,
)

__all__ = ["CACHED_SCHEMAS", "cached_kernels"]

# Tensors of attention over a cache, after q, k_cache and v_cache, by their names in
# `flash_attn_with_kvcache`.
_DECODE_TENSORS = (
    "cache_seqlens", "cache_leftpad", "cache_batch_idx", "block_table", "kv_indptr", "kv_indices",
    "alibi_slopes", "sinks", "k_scale", "v_scale", "cu_seqlens_q", "cu_seqlens_k",
)  # fmt: skip
# Lengths that change from call to call may be symbols, so that a compiled graph serves them all.
_DECODE_NUMBERS = (
    Argument("softmax_scale", "float?", None),
    Argument("causal", "bool", False),
    Argument("window_left", "int", -1),
    Argument("window_right", "int", -1),
    Argument("softcap", "float", 0.0),
    Argument("num_splits", "int", 0),
    Argument("seqlen_new", "SymInt", 0),
    Argument("scale_per_page", "bool", False),
    Argument("max_seqlen_q", "SymInt?", None),
    Argument("max_seqlen_k", "SymInt?", None),
    Argument("return_lse", "bool", False),
    Argument("candidate", "int", 0),
)
_APPEND_WRITTEN = ("k_cache", "v_cache", "q_out")
_APPEND_TENSORS = (
    "k", "v", "q", "cache_seqlens", "rotary_cos", "rotary_sin", "positions", "block_table", "kv_indptr",
    "kv_indices", "cache_batch_idx", "slots", "cu_seqlens", "k_scale", "v_scale",
)  # fmt: skip
_APPEND_NUMBERS = (
    Argument("rotary_interleaved", "bool", True),
    Argument("scale_per_page", "bool", False),
    Argument("max_seqlen", "SymInt?", None),
)


def _arguments_of(name: str, tensors: tuple[str, ...], numbers: tuple[Argument, ...]) -> Any:
    """Return the type of an operator's arguments from here on, in the schema's order."""
    defaults = [None] * len(tensors) + [x.default for x in numbers]
    return namedtuple(name, (*tensors, *(x.name for x in numbers)), defaults=defaults)


_Decode: Any = _arguments_of("_Decode", _DECODE_TENSORS, _DECODE_NUMBERS)
_Append: Any = _arguments_of("_Append", (*_APPEND_WRITTEN, *_APPEND_TENSORS), _APPEND_NUMBERS)


def _optional(tensors: tuple[str, ...], written: bool = False) -> str:
    """Return optional tensors of a schema."""
    kinds = [f"Tensor({'abc'[i]}!)?" if written else "Tensor?" for i in range(len(tensors))]
    return ", ".join(f"{kind} {name}=None" for kind, name in zip(kinds, tensors, strict=True))


def _numbers(numbers: tuple[Argument, ...]) -> str:
    return ", ".join(f"{x.type} {x.name}={x.default}" for x in numbers)


_caches = "Tensor q, Tensor k_cache, Tensor v_cache"
_decode = f"{_optional(_DECODE_TENSORS)}, {_numbers(_DECODE_NUMBERS)}"
_append = (
    f"{_optional(_APPEND_WRITTEN, written=True)}, {_optional(_APPEND_TENSORS)}, {_numbers(_APPEND_NUMBERS)}"
)
# The log-sum-exp has no elements if it is not wanted. Without q, an append rotates q_out in place.
# fmha_decode_check refuses what fmha_decode, or with `out` fmha_decode_out, would, and does nothing else.
CACHED_SCHEMAS = {
    "fmha_decode": f"({_caches}, {_decode}) -> (Tensor out, Tensor lse)",
    "fmha_decode_out": f"({_caches}, Tensor(a!) out, {_decode}) -> Tensor lse",
    # Declared as writing, so that the compiler keeps it, and before an append to that cache.
    "fmha_decode_check": (f"(Tensor q, Tensor(a!) k_cache, Tensor v_cache, Tensor? out, {_decode}) -> ()"),
    "fmha_kv_append": f"({_append}) -> ()",
    "fmha_merge": (
        "(Tensor outs, Tensor lses, ScalarType? out_dtype=None, bool base2=False) -> (Tensor out, Tensor lse)"
    ),
    "fmha_merge_out": (
        "(Tensor outs, Tensor lses, Tensor(a!) out, Tensor(b!) lse, bool base2=False, bool accumulate=False) "
        "-> ()"
    ),
}

_Tensors = dict[str, torch.Tensor]
_plans: dict[tuple[Any, ...], CachedPlan] = {}


def _given(**tensors: torch.Tensor | None) -> _Tensors:
    return {name: x for name, x in tensors.items() if x is not None}


def _named(arguments: Any, tensors: tuple[str, ...]) -> _Tensors:
    """Return those of an operator's tensors that were given, by name."""
    return _given(**{name: getattr(arguments, name) for name in tensors})


@contextmanager
def _in_use(tensors: _Tensors, index: int) -> Iterator[int]:
    """Make the tensors' device the current one, and yield the stream to launch on.

    Memory of the host is lent to the software device, and the way out waits for that.
    """
    first = next(iter(tensors.values()))
    if not first.is_cuda:
        with host_memory.registered([(x.data_ptr(), _span(x)) for x in tensors.values()]):
            yield 0
        return
    previous = enter_device(index)
    try:
        yield stream_handle(first)
    finally:
        leave_device(previous)


def _span(x: torch.Tensor) -> int:
    """Bytes from the first element to past the last."""
    if not x.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return int((last + 1) * x.element_size())


# Attention.


def _checked(layouts: dict[str, Layout], out: Layout | None, a: Any) -> CachedCall:
    """Check a call of attention over a cache but for addresses."""
    options = Options(
        softmax_scale=a.softmax_scale,
        causal=a.causal,
        window_size=(a.window_left, a.window_right),
        softcap=a.softcap,
        alibi_slopes=layouts.get("alibi_slopes"),
        return_lse=a.return_lse,
        kernel=a.candidate,
    )
    cached = CachedOptions(
        num_splits=a.num_splits,
        seqlen_new=a.seqlen_new,
        scale_per_page=a.scale_per_page,
        max_seqlen_q=a.max_seqlen_q,
        max_seqlen_k=a.max_seqlen_k,
    )
    if "cu_seqlens_q" in layouts and a.max_seqlen_q is None:
        cached = replace(cached, max_seqlen_q=layouts["q"].shape[0])
    return cached_call(layouts, options, cached, out)


def _planned(layouts: dict[str, Layout], out: Layout | None, a: Any) -> CachedPlan:
    """Look for the plan of a call, or check the call and make one."""
    key = (tuple(layouts.items()), out, a[len(_DECODE_TENSORS) :])
    plan = find(_plans, key)
    if plan is None:
        plan = CachedPlan(_checked(layouts, out, a), tuple(layouts))
        keep(_plans, key, plan)
    return plan


def _require_lengths(tensors: _Tensors, a: Any) -> None:
    if host := known_lengths(tensors):
        require_cached(host, _shapes(tensors), a.seqlen_new, a.max_seqlen_k)


def _shapes(tensors: _Tensors) -> dict[str, tuple[int, ...]]:
    return {name: tuple(x.shape) for name, x in tensors.items()}


def _run_decode(q: Any, k_cache: Any, v_cache: Any, out: Any, a: Any) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = _given(q=q, k_cache=k_cache, v_cache=v_cache) | _named(a, _DECODE_TENSORS)
    index = device_index(tensors | _given(out=out))
    layouts = {name: describe(x, index).layout for name, x in tensors.items()}
    plan = _planned(layouts, None if out is None else describe(out, index).layout, a)
    _require_lengths(tensors, a)
    results = _results(plan.call, q, out)
    addresses = {name: x.data_ptr() for name, x in tensors.items()}
    addresses |= {"out": results[0].data_ptr(), "lse": results[1].data_ptr() if plan.call.lse else 0}
    with _in_use(tensors | {"out": results[0], "lse": results[1]}, index) as handle:
        layout = plan.workspace(addresses)
        if layout is not None:
            workspace = allocate_workspace(layout, q)
            addresses["workspace"] = workspace.address
            addresses["workspace_bytes"] = layout.shape[0]
        plan.launch(addresses, handle)
    return results


def _run_check(q: Any, k_cache: Any, v_cache: Any, out: Any, a: Any) -> None:
    tensors = _given(q=q, k_cache=k_cache, v_cache=v_cache) | _named(a, _DECODE_TENSORS)
    there = tensors | _given(out=out)
    index = device_index(there)
    layouts = {name: describe(x, index).layout for name, x in tensors.items()}
    plan = _planned(layouts, None if out is None else describe(out, index).layout, a)
    _require_lengths(tensors, a)
    with _in_use(there, index):
        plan.ask({name: x.data_ptr() for name, x in there.items()})


def _trace_decode(q: Any, k_cache: Any, v_cache: Any, out: Any, a: Any) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = _given(q=q, k_cache=k_cache, v_cache=v_cache) | _named(a, _DECODE_TENSORS)
    require_one_device(tensors | _given(out=out))
    layouts = {name: symbolic(x).layout for name, x in tensors.items()}
    return _results(_checked(layouts, None if out is None else symbolic(out).layout, a), q, out)


def _trace_check(*arguments: Any) -> None:
    _trace_decode(*arguments)


def _results(
    call: CachedCall, q: torch.Tensor, out: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    if out is None:
        out = new_out(call.o.shape, dtype_named(call.o.dtype, "out"), q.device, call.packed)
    return out, new_lse(call.lse.shape if call.lse else (0,), q.device, call.packed)


# Append.


def _append_arrays(a: Any, describe_one: Callable[[torch.Tensor], Tensor]) -> tuple[_Tensors, dict[str, Any]]:
    tensors = _named(a, (*_APPEND_WRITTEN, *_APPEND_TENSORS))
    arrays: dict[str, Any] = {name: describe_one(x) for name, x in tensors.items()}
    if "q_out" in arrays:
        arrays.setdefault("q", arrays["q_out"])
    return tensors, arrays


def _run_append(a: Any) -> None:
    index = device_index(_named(a, (*_APPEND_TENSORS[:3], *_APPEND_WRITTEN, *_APPEND_TENSORS[3:])))
    tensors, arrays = _append_arrays(a, lambda x: describe(x, index))
    plan = append_plan(arrays, a.max_seqlen, a.rotary_interleaved, a.scale_per_page)
    if host := known_lengths(tensors):
        require_appended(host, {name: x.layout.shape for name, x in arrays.items()}, a.max_seqlen)
    with _in_use(tensors, index) as handle:
        addresses = {name: x.address for name, x in arrays.items()}
        plan.launch(library.load()[1].fmha_kv_append, addresses, handle)


def _trace_append(a: Any) -> None:
    require_one_device(_named(a, (*_APPEND_TENSORS[:3], *_APPEND_WRITTEN, *_APPEND_TENSORS[3:])))
    _, arrays = _append_arrays(a, symbolic)
    append_params(arrays, a.max_seqlen, a.rotary_interleaved, a.scale_per_page)


# Merge.


def _written(out: Any, lse: Any, describe_one: Callable[[torch.Tensor], Tensor]) -> dict[str, Any]:
    """Return the results that were given, by name."""
    return {name: describe_one(x) for name, x in (("out", out), ("lse", lse)) if x is not None}


def _new_results(
    layouts: dict[str, Layout], given: tuple[Any, Any], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate the results of a merge that were not given."""
    out, lse = (
        torch.empty(layouts[name].shape, dtype=dtype_named(layouts[name].dtype, name), device=device)
        if x is None
        else x
        for name, x in zip(("out", "lse"), given, strict=True)
    )
    return out, lse


def _run_merge(
    outs: Any, lses: Any, out: Any, lse: Any, out_dtype: Any, base2: bool, accumulate: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    index = device_index(_given(outs=outs, lses=lses, out=out, lse=lse))
    written = _written(out, lse, lambda x: describe(x, index))
    parts, part_lses = (describe(x, index).layout for x in (outs, lses))
    dtype = None if out_dtype is None else dtype_name(out_dtype)
    layouts, structs = merge_plan(parts, part_lses, written, dtype, base2, accumulate)
    out, lse = _new_results(layouts, (out, lse), outs.device)
    tensors = {"outs": outs, "lses": lses, "out": out, "lse": lse}
    with _in_use(tensors, index) as handle:
        addresses = {name: x.data_ptr() for name, x in tensors.items()}
        structs.launch(library.load()[1].fmha_merge, addresses, handle)
    return out, lse


def _trace_merge(
    outs: Any, lses: Any, out: Any, lse: Any, out_dtype: Any, *_: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    require_one_device(_given(outs=outs, lses=lses, out=out, lse=lse))
    dtype = None if out_dtype is None else dtype_name(out_dtype)
    parts, part_lses = symbolic(outs).layout, symbolic(lses).layout
    layouts = merged_layouts(parts, part_lses, _written(out, lse, symbolic), dtype)
    return _new_results(layouts, (out, lse), outs.device)


# The operators.


def _kernels(decode: Any, check: Any, append: Any, merge: Any) -> dict[str, Callable[..., Any]]:
    """Return the functions behind the operators, by name."""

    def fmha_decode(q: Any, k_cache: Any, v_cache: Any, *rest: Any) -> Any:
        return decode(q, k_cache, v_cache, None, _Decode(*rest))

    def fmha_decode_out(q: Any, k_cache: Any, v_cache: Any, out: Any, *rest: Any) -> Any:
        return decode(q, k_cache, v_cache, out, _Decode(*rest))[1]

    def fmha_decode_check(q: Any, k_cache: Any, v_cache: Any, out: Any, *rest: Any) -> None:
        check(q, k_cache, v_cache, out, _Decode(*rest))

    def fmha_kv_append(*arguments: Any) -> None:
        append(_Append(*arguments))

    def fmha_merge(outs: Any, lses: Any, out_dtype: Any = None, base2: bool = False) -> Any:
        return merge(outs, lses, None, None, out_dtype, base2, False)

    def fmha_merge_out(
        outs: Any, lses: Any, out: Any, lse: Any, base2: bool = False, accumulate: bool = False
    ) -> None:
        merge(outs, lses, out, lse, None, base2, accumulate)

    functions = (fmha_decode, fmha_decode_out, fmha_decode_check, fmha_kv_append, fmha_merge, fmha_merge_out)
    return {function.__name__: function for function in functions}


def _traced(trace: Callable[..., Any]) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        try:
            return trace(*arguments)
        except UnsupportedError as error:
            raise refused_in_a_graph(error) from error

    return function


cached_kernels = _kernels(_run_decode, _run_check, _run_append, _run_merge)
define(
    CACHED_SCHEMAS,
    cached_kernels,
    _kernels(*(_traced(x) for x in (_trace_decode, _trace_check, _trace_append, _trace_merge))),
    counted=False,
)
