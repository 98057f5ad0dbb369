# SPDX-License-Identifier: MIT OR Apache-2.0
"""Calls on a KV cache as JAX traces them, and the attributes of the custom calls that they become.

A cache that is written is an operand and a result of one name, which share their memory. A mapped call is one
launch for each index of the mapped axes, within one custom call. The checks are those of the plain functions,
which are told the numbers of buffers for addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.arrays import Array
from pyfa_rocm._call.cache import CacheScale, cache_to_c
from pyfa_rocm._call.cached import CachedOptions, cached_call
from pyfa_rocm._call.decode import DecodeParams, decode_to_c
from pyfa_rocm._call.kv_append import KvAppendParams, kv_append_to_c
from pyfa_rocm._call.params import Options
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.tensor import Layout, Tensor, layout_of
from pyfa_rocm.fmha import fmha_decode_workspace_bytes
from pyfa_rocm.jax._library import APPEND, DECODE
from pyfa_rocm.jax._traced import (
    WORKSPACE_ALIGN,
    Axes,
    Buffer,
    CustomCall,
    Dim,
    Result,
    Shape,
    buffers_of,
    fwd_words,
    names_of,
    repeat_attributes,
    words,
)
from pyfa_rocm.kv_append import append_params

__all__ = [
    "DENSE",
    "Fields",
    "TracedAppend",
    "TracedDecode",
    "repeats",
    "traced_append",
    "traced_decode",
]

# Operands of which the C struct has no strides, or one for two of them.
DENSE = frozenset(("slots", "positions", "rotary_cos", "rotary_sin"))
# Arguments by name that are known while tracing: hashable.
Fields = tuple[tuple[str, Any], ...]
# An address that no array has, for questions about what is not there yet.
_SOMEWHERE = 1 << 46


class TracedDecode(NamedTuple):
    """An unmapped attention over a KV cache, hashable.

    Attributes
    ----------
    names, dtypes : tuple of str
        The operands, by their names of the public functions, as in `TracedCall`, and their types.
    options : tuple of (str, value)
        Those of `Options`.
    cached : CachedOptions
        The options of the cache.
    results : tuple of Result
        "out", and "lse" if it is wanted.
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    options: Fields
    cached: CachedOptions
    results: tuple[Result, ...]

    @property
    def target(self) -> str:
        """Name of the custom call."""
        return DECODE

    @property
    def packed(self) -> bool:
        """Tell whether queries are packed: they then have no dimension of batches."""
        return "cu_seqlens_q" in self.names

    def custom_call(
        self, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
    ) -> CustomCall:
        """Return what the custom call is told, as `pyfa_rocm.jax._traced.custom_call`.

        Raises
        ------
        FmhaError
            If the library refuses the call; the message is its own.
        """
        buffers, itemsizes = buffers_of(self.names, self.results, sizes, axes, operands)
        arrays = _numbered(buffers, self)
        layouts = {name: arrays[name].layout for name in self.names if name not in names_of(self.results)}
        call = cached_call(layouts, Options(**dict(self.options)), self.cached)
        params = call.at({name: array.address for name, array in arrays.items()})
        nbytes = _workspace_bytes(params)
        if nbytes:
            nbytes += WORKSPACE_ALIGN
            params = replace(params, workspace=len(buffers) + 1)
        ffi, _ = library.load()
        c, _kept = decode_to_c(params)
        c.fwd, c.cache = ffi.NULL, ffi.NULL
        structs = {
            "params": fwd_words(params.fwd),
            "decode_params": words(c),
            "cache": words(cache_to_c(params.cache)),
        }
        return CustomCall(structs | repeat_attributes(repeats(sizes, buffers), itemsizes, nbytes), nbytes)


def traced_decode(layouts: dict[str, Layout], options: Fields, cached: CachedOptions) -> TracedDecode:
    """Check attention over a KV cache of arrays, by name, and return it as JAX traces it."""
    call = cached_call(layouts, Options(**dict(options)), cached)
    results = [Result("out", call.o.shape, call.o.dtype)]
    if call.lse is not None:
        results.append(Result("lse", call.lse.shape, "float32"))
    dtypes = tuple(layout.dtype for layout in layouts.values())
    return TracedDecode(tuple(layouts), dtypes, options, cached, tuple(results))


class TracedAppend(NamedTuple):
    """An unmapped append to a KV cache, or only the rotation of queries, hashable.

    Attributes
    ----------
    names, dtypes : tuple of str
        The operands, as of `TracedDecode`.
    options : tuple of (str, value)
        Those of `append_params`.
    results : tuple of Result
        Results in the memory of the operand of the same name: "k_cache" and "v_cache", "q".
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    options: Fields
    results: tuple[Result, ...]

    @property
    def target(self) -> str:
        """Name of the custom call."""
        return APPEND

    @property
    def packed(self) -> bool:
        """False: what the kernel leaves of a result is the operand's."""
        return False

    def custom_call(
        self, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
    ) -> CustomCall:
        """Return what the custom call is told, as `pyfa_rocm.jax._traced.custom_call`."""
        buffers, itemsizes = buffers_of(self.names, self.results, sizes, axes, operands)
        params = _append_params(_numbered(buffers, self), self.options)
        structs: dict[str, npt.NDArray[np.int64]] = {}
        c, _kept = kv_append_to_c(params)
        if params.cache is not None:
            structs["cache"] = words(cache_to_c(params.cache))
            c.cache = library.load()[0].cast("fmha_cache *", 1)  # there is one
        structs["append_params"] = words(c)
        return CustomCall(structs | repeat_attributes(repeats(sizes, buffers), itemsizes, 0), 0)


def traced_append(layouts: dict[str, Layout], options: Fields) -> TracedAppend:
    """Check an append of arrays, by name, and return it as JAX traces it."""
    arrays: dict[str, Array] = {name: Tensor(0, layout, False, None) for name, layout in layouts.items()}
    _append_params(arrays, options)
    results = [
        Result(name, layouts[name].shape, layouts[name].dtype)
        for name in ("k_cache", "v_cache", "q")
        if name in layouts
    ]
    dtypes = tuple(layout.dtype for layout in layouts.values())
    return TracedAppend(tuple(layouts), dtypes, options, tuple(results))


def _append_params(arrays: dict[str, Array], options: Fields) -> KvAppendParams:
    """Return the parameters; queries are rotated where they are."""
    return append_params(arrays | ({"q_out": arrays["q"]} if "q" in arrays else {}), **dict(options))


def _numbered(buffers: Sequence[Buffer], call: TracedDecode | TracedAppend) -> dict[str, Array]:
    """Return buffers by name, their numbers from 1 in place of addresses.

    If an operand and a result share a name, it is the result.
    """
    types = dict(zip(call.names, call.dtypes, strict=False)) | {
        name: dtype for name, _, dtype in call.results
    }
    return {
        buffer.name: Tensor(
            number, layout_of(buffer.shape, buffer.strides, types[buffer.name], 0), False, None
        )
        for number, buffer in enumerate(buffers, 1)
    }


def repeats(sizes: Shape, buffers: Sequence[Buffer]) -> list[Dim]:
    """Return the mapped axes as dimensions of repetition."""
    return [Dim(size, tuple(buffer.mapped[i] for buffer in buffers)) for i, size in enumerate(sizes)]


def _workspace_bytes(params: DecodeParams) -> int:
    """Return the workspace of a call that has numbers of buffers in place of addresses.

    The device is asked, so a HIP runtime is chosen: JAX's own, if it has opened one.

    Raises
    ------
    FmhaError
        The library refuses the call, or has no device.
    """
    jax.default_backend()  # has JAX open its HIP runtime first
    _, lib = library.load()
    fwd, cache = params.fwd, params.cache

    def tensor(x: Any) -> Any:
        return x and x._replace(data=0)

    # An array that is there needs an address, aligned as the library asks.
    def there(x: Any) -> Any:
        return x._replace(data=_SOMEWHERE) if isinstance(x, CacheScale) else x and _SOMEWHERE

    fwd = replace(
        fwd,
        q=tensor(fwd.q),
        o=tensor(fwd.o),
        lse=tensor(fwd.lse),
        alibi_slopes=there(fwd.alibi_slopes),
        cu_seqlens_q=there(fwd.cu_seqlens_q),
        cu_seqlens_k=there(fwd.cu_seqlens_k),
        seqused_k=there(fwd.seqused_k),
    )
    cache = replace(
        cache,
        k=tensor(cache.k),
        v=tensor(cache.v),
        block_table=there(cache.block_table),
        kv_indptr=there(cache.kv_indptr),
        kv_indices=there(cache.kv_indices),
        cache_batch_idx=there(cache.cache_batch_idx),
        k_scale=there(cache.k_scale),
        v_scale=there(cache.v_scale),
    )
    asked = replace(
        params,
        fwd=fwd,
        cache=cache,
        leftpad_k=there(params.leftpad_k),
        sinks=there(params.sinks),
        flags=int(lib.FMHA_NO_MEMORY_CHECK),
    )
    return fmha_decode_workspace_bytes(asked)
