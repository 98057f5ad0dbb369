# SPDX-License-Identifier: MIT OR Apache-2.0
"""Calls on a KV cache as JAX traces them, and the attributes of the custom calls that they become.

A cache that is written is an operand and a result of one name, which share their memory. A mapped call is one
launch for each index of the mapped axes, within one custom call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.c_struct import fill, new
from pyfa_rocm._call.cache import Cache, CacheScale, CacheTensor, cache_to_c
from pyfa_rocm._call.decode import DecodeParams, decode_to_c
from pyfa_rocm._call.kv_append import KvAppendParams, Rotary, kv_append_to_c
from pyfa_rocm._call.params import FwdParams, Lse, Strided
from pyfa_rocm._runtime import library
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
    repeat_attributes,
)  # fmt: skip

__all__ = ["DENSE", "Fields", "Numbered", "TracedAppend", "TracedDecode", "repeats", "words"]

# Operands of which the C struct has no strides, or one for two of them.
DENSE = frozenset(("slots", "positions", "rotary_cos", "rotary_sin"))
# Fields of a C struct that are known while tracing: hashable.
Fields = tuple[tuple[str, Any], ...]
_Structs = dict[str, npt.NDArray[np.int64]]
# An address that no array has, for questions about what is not there yet.
_SOMEWHERE = 1 << 46


class TracedDecode(NamedTuple):
    """An unmapped attention over a KV cache, hashable.

    Attributes
    ----------
    names : tuple of str
        The operands, by their names of the public functions, as in `TracedCall`.
    fwd, cache, decode : tuple of (str, value)
        The numbers among the fields of FwdParams, Cache and DecodeParams.
    results : tuple of Result
        "o", and "lse" if it is wanted.
    """

    names: tuple[str, ...]
    fwd: Fields
    cache: Fields
    decode: Fields
    results: tuple[Result, ...]

    @property
    def target(self) -> str:
        """Name of the custom call."""
        return DECODE

    @property
    def packed(self) -> bool:
        """Whether queries are packed: they then have no dimension of batches."""
        return "cu_seqlens_q" in self.names

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(result.name for result in self.results)

    def custom_call(
        self, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
    ) -> CustomCall:
        """Return what the custom call is told, as `pyfa_rocm.jax._traced.custom_call`.

        Raises
        ------
        FmhaError
            What the library says of a call that it refuses.
        """
        buffers, itemsizes = buffers_of(self.names, self.results, sizes, axes, operands)
        params = self._params(Numbered(buffers))
        nbytes = _workspace_bytes(params)
        if nbytes:
            nbytes += WORKSPACE_ALIGN
            params = replace(params, workspace=len(buffers) + 1)
        ffi, _ = library.load()
        c, _kept = decode_to_c(params)
        c.fwd, c.cache = ffi.NULL, ffi.NULL
        _, view = new()
        fill(view, params.fwd)
        structs = {"params": np.frombuffer(bytes(view), np.int64), "decode_params": words(c)}
        structs["cache"] = words(cache_to_c(params.cache))
        return CustomCall(structs | repeat_attributes(repeats(sizes, buffers), itemsizes, nbytes), nbytes)

    def _params(self, at: Numbered) -> DecodeParams:
        """Return the parameters with the numbers of buffers in place of addresses."""
        lse = at.buffer("lse")
        alibi = at.buffer("alibi_slopes")
        nowhere = Strided(0, 0, 0, 0)
        fwd = FwdParams(
            **dict(self.fwd), q=at.strided("q") or nowhere, k=nowhere, v=nowhere,
            o=at.strided("o") or nowhere,
            lse=None if lse is None else Lse(at.number("lse"), *([0] * (3 - len(lse.shape))), *lse.repeated),
            alibi_slopes=at.number("alibi_slopes"), cu_seqlens_q=at.number("cu_seqlens_q"),
            alibi_stride_batch=alibi.repeated[0] if alibi is not None and len(alibi.shape) == 2 else 0,
            seqused_k=at.number("cache_seqlens"),
        )  # fmt: skip
        return DecodeParams(
            fwd, at.cache(self.cache), leftpad_k=at.number("cache_leftpad"), sinks=at.number("sinks"),
            **dict(self.decode),
        )  # fmt: skip


class TracedAppend(NamedTuple):
    """An unmapped append to a KV cache, or only the rotation of queries, hashable.

    Attributes
    ----------
    names : tuple of str
        The operands, as of `TracedDecode`.
    append, cache, rotary : tuple of (str, value)
        The numbers among the fields of KvAppendParams, Cache and Rotary; `cache` is empty without k and v.
    results : tuple of Result
        What is written in the memory of the operand of that name: "k_cache" and "v_cache", "q".
    """

    names: tuple[str, ...]
    append: Fields
    cache: Fields
    rotary: Fields
    results: tuple[Result, ...]

    @property
    def target(self) -> str:
        """Name of the custom call."""
        return APPEND

    @property
    def packed(self) -> bool:
        """False: what the kernel leaves of a result is the operand's."""
        return False

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(result.name for result in self.results)

    def custom_call(
        self, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
    ) -> CustomCall:
        """Return what the custom call is told, as `pyfa_rocm.jax._traced.custom_call`."""
        buffers, itemsizes = buffers_of(self.names, self.results, sizes, axes, operands)
        at = Numbered(buffers)
        structs: _Structs = {}
        params = self._params(at)
        c, _kept = kv_append_to_c(params)
        if params.cache is not None:
            structs["cache"] = words(cache_to_c(params.cache))
            c.cache = library.load()[0].cast("fmha_cache *", 1)  # there is one
        structs["append_params"] = words(c)
        return CustomCall(structs | repeat_attributes(repeats(sizes, buffers), itemsizes, 0), 0)

    def _params(self, at: Numbered) -> KvAppendParams:
        rotary = None
        if self.rotary:
            cos = at.buffer("rotary_cos")
            assert cos is not None
            rotary = Rotary(
                cos=at.number("rotary_cos"), sin=at.number("rotary_sin"), stride_position=cos.strides[0],
                **dict(self.rotary),
            )  # fmt: skip
        return KvAppendParams(
            **dict(self.append), q=at.strided("q"), k=at.strided("k"), v=at.strided("v"),
            cu_seqlens=at.number("cu_seqlens"), seqused_k=at.number("cache_seqlens"),
            slots=at.number("slots"), positions=at.number("positions"), rotary=rotary,
            cache=at.cache(self.cache) if self.cache else None,
        )  # fmt: skip


class Numbered:
    """Buffers by name, and their numbers from 1. Of an operand and a result of one name it is the result."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = {buffer.name: (number, buffer) for number, buffer in enumerate(buffers, 1)}

    def number(self, name: str) -> int:
        """Return a buffer's number; 0: there is none."""
        return self._buffers[name][0] if name in self._buffers else 0

    def buffer(self, name: str) -> Buffer | None:
        return self._buffers[name][1] if name in self._buffers else None

    def strides(self, name: str) -> Shape:
        """Return the strides of an array's own dimensions but the last."""
        return self._buffers[name][1].strides[:-1]

    def strided(self, name: str) -> Strided | None:
        """Return (batch, seqlen, nhead, hdim), or packed without the batch."""
        buffer = self.buffer(name)
        if buffer is None:
            return None
        strides = buffer.strides[:-1]
        return Strided(self.number(name), *([0] * (3 - len(strides))), *strides)

    def cache(self, fields: Fields) -> Cache:
        """Return the cache of these numbers."""
        found: dict[str, Any] = dict(fields)
        for name, field in (("k_cache", "k"), ("v_cache", "v")):
            if (buffer := self.buffer(name)) is not None:
                found[field] = CacheTensor(self.number(name), *buffer.strides[:3])
        for name in ("k_scale", "v_scale"):
            if (buffer := self.buffer(name)) is not None:
                found[name] = CacheScale(self.number(name), *buffer.strides)
        if (table := self.buffer("block_table")) is not None:
            found["block_table"], found["stride_block_table"] = self.number("block_table"), table.strides[0]
        return Cache(cache_batch_idx=self.number("cache_batch_idx"), **found)


def words(c: Any) -> npt.NDArray[np.int64]:
    """Return the bytes of a C struct."""
    ffi, _ = library.load()
    return np.frombuffer(bytes(ffi.buffer(c)), np.int64)


def repeats(sizes: Shape, buffers: Sequence[Buffer]) -> list[Dim]:
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

    # What says that it is there has to have an address, aligned as the library asks.
    def there(x: Any) -> Any:
        return x._replace(data=_SOMEWHERE) if isinstance(x, CacheScale) else x and _SOMEWHERE

    fwd = replace(
        fwd, q=tensor(fwd.q), o=tensor(fwd.o), lse=tensor(fwd.lse), alibi_slopes=there(fwd.alibi_slopes),
        cu_seqlens_q=there(fwd.cu_seqlens_q), seqused_k=there(fwd.seqused_k),
    )  # fmt: skip
    cache = replace(
        cache, k=tensor(cache.k), v=tensor(cache.v), block_table=there(cache.block_table),
        cache_batch_idx=there(cache.cache_batch_idx), k_scale=there(cache.k_scale),
        v_scale=there(cache.v_scale),
    )  # fmt: skip
    asked = replace(
        params, fwd=fwd, cache=cache, leftpad_k=there(params.leftpad_k), sinks=there(params.sinks),
        flags=int(lib.FMHA_NO_MEMORY_CHECK),
    )  # fmt: skip
    return fmha_decode_workspace_bytes(asked)
