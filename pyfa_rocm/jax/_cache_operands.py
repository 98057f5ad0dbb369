# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments of the functions on KV caches, checked while JAX traces."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import check, plain_fields, require_like
from pyfa_rocm._call.params import Options
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.jax._cached import Fields, TracedAppend, TracedDecode
from pyfa_rocm.jax._operands import Arrays
from pyfa_rocm.jax._traced import Result

__all__ = ["append_call", "cached_batch", "decode_call"]

_INTEGERS = ("int32", "int64")
_SCALES = ("k_scale", "v_scale")


def cached_batch(q: Any, cu_seqlens_q: Any = None) -> int:
    """Return how many sequences there are."""
    rows = q if cu_seqlens_q is None else cu_seqlens_q
    name, ndim = ("q", 4) if cu_seqlens_q is None else ("cu_seqlens_q", 1)
    shape = getattr(rows, "shape", None)
    if shape is None:
        raise TypeError(f"{name}: got {type(rows).__name__}, expected a JAX or NumPy array")
    if len(shape) != ndim or (ndim == 1 and not shape[0]):
        expected = "(batch, seqlen_q, nhead_q, hdim)" if ndim == 4 else "(batch + 1,)"
        raise InvalidArgumentError(f"{name}: got shape {shape}, expected {expected}")
    return int(shape[0]) - (ndim == 1)


def decode_call(
    operands: Arrays, options: Options, *, num_splits: int, scale_per_page: bool, max_seqlen_q: int | None
) -> TracedDecode:
    """Check attention over a KV cache, and return it as JAX traces it.

    Parameters
    ----------
    operands : Arrays
        q, k_cache and v_cache, and any of alibi_slopes, cache_seqlens, cache_leftpad, cache_batch_idx,
        block_table, sinks, k_scale, v_scale and cu_seqlens_q.
    options : Options
        Of the attention.
    num_splits : int
        Parts that the keys are dealt to; 0: the library's choice.
    scale_per_page : bool
        Whether scales are by page, not by sequence.
    max_seqlen_q : int or None
        Upper bound of the lengths of packed queries.
    """
    layouts = operands.layouts
    packed = max_seqlen_q is not None
    q = layouts["q"]
    batch = layouts["cu_seqlens_q"].shape[0] - 1 if packed else q.shape[0]
    if len(q.shape) != (3 if packed else 4):
        dims = "(total_q, nhead_q, hdim)" if packed else "(batch, seqlen_q, nhead_q, hdim)"
        raise InvalidArgumentError(f"q: got shape {q.shape}, expected {dims}")
    cache, capacity = _cache(layouts, batch, q, scale_per_page)
    for name in ("cache_seqlens", "cache_leftpad"):
        if name in layouts:
            require_like(name, layouts[name], (batch,), "int32", "q", q)
    if "sinks" in layouts:
        require_like("sinks", layouts["sinks"], (q.shape[-2],), "float32", "q", q)
    checked = check(_as_forward(layouts, options, batch, capacity, max_seqlen_q))
    fields = plain_fields(checked)
    fields = {name: x for name, x in fields.items() if name not in ("total_k", "alibi_stride_batch")}
    results = [Result("o", checked.o, q.dtype)]
    if options.wants_lse:
        results.append(Result("lse", checked.lse, "float32"))
    decode = (("num_splits", num_splits), ("kernel", fields["kernel"]))
    return TracedDecode(tuple(operands.arrays), tuple(fields.items()), cache, decode, tuple(results))


def _as_forward(
    layouts: dict[str, Layout], options: Options, batch: int, capacity: int, max_seqlen_q: int | None
) -> Call:
    """Return the call as one of keys that are no cache, as long as each sequence may be in it."""
    q, hdim_v = layouts["q"], layouts["v_cache"].shape[-1]
    nhead, hdim = layouts["k_cache"].shape[-2:]
    tokens = (batch, capacity) if max_seqlen_q is None else (capacity,)
    k, v = (contiguous((*tokens, nhead, d), q.dtype, q.device) for d in (hdim, hdim_v))
    taken = ("alibi_slopes", "cu_seqlens_q")
    arrays: dict[str, Layout] = {name: x for name, x in layouts.items() if name in taken}
    if max_seqlen_q is None:
        return Call(q=q, k=k, v=v, options=options, arrays=arrays)
    arrays["cu_seqlens_k"] = contiguous((batch + 1,), "int32", q.device)
    return Call(
        q=q, k=k, v=v, options=options, arrays=arrays, max_seqlen_q=max_seqlen_q, max_seqlen_k=capacity
    )


def append_call(
    operands: Arrays, *, max_seqlen: int | None, interleaved: bool, scale_per_page: bool
) -> TracedAppend:
    """Check an append to a KV cache, and return it as JAX traces it.

    Parameters
    ----------
    operands : Arrays
        k_cache, v_cache, k and v, or none of them; and any of q, cache_seqlens, cache_batch_idx, block_table,
        slots, positions, cu_seqlens, rotary_cos, rotary_sin, k_scale and v_scale.
    max_seqlen : int or None
        The most new tokens of a packed sequence; None: all.
    interleaved : bool
        Whether rotary pairs are neighbours.
    scale_per_page : bool
        Whether scales are by page, not by sequence.
    """
    layouts = operands.layouts
    new = layouts["k" if "k" in layouts else "q"]
    if len(new.shape) not in (3, 4):
        raise InvalidArgumentError(
            f"k: got shape {new.shape}, expected (batch, seqlen, nhead, hdim) or (total, nhead, hdim)"
        )
    *tokens, nhead, hdim = new.shape
    hdim_v = hdim
    if "v" in layouts:
        hdim_v = layouts["v"].shape[-1] if layouts["v"].shape else 0
        require_like("v", layouts["v"], (*tokens, nhead, hdim_v), new.dtype, "k", new)
    packed = "cu_seqlens" in layouts
    if packed:
        _require_starts(layouts["cu_seqlens"], tokens)
    batch = layouts["cu_seqlens"].shape[0] - 1 if packed else tokens[0] if len(tokens) == 2 else 1
    fields = {
        "dtype": new.dtype, "batch": batch, "seqlen": tokens[-1] if max_seqlen is None else max_seqlen,
        "nhead_k": nhead, "hdim_q": hdim, "hdim_v": hdim_v, "total": tokens[0] if packed else 0,
        "nhead_q": _query_heads(layouts, tokens, new),
    }  # fmt: skip
    fields |= _token_numbers(layouts, tokens, batch, new)
    cache: Fields = ()
    if "k_cache" in layouts:
        cache, _ = _cache(layouts, batch, new, scale_per_page)
        require_like(
            "v_cache", layouts["v_cache"], (*layouts["k_cache"].shape[:-2], nhead, hdim_v),
            layouts["k_cache"].dtype, "v", new,
        )  # fmt: skip
    results = [
        Result(name, layouts[name].shape, layouts[name].dtype)
        for name in ("k_cache", "v_cache", "q")
        if name in layouts
    ]
    rotary = _rotary(layouts, new, interleaved)
    return TracedAppend(tuple(operands.arrays), tuple(fields.items()), cache, rotary, tuple(results))


def _require_starts(starts: Layout, tokens: list[int]) -> None:
    if len(tokens) != 1:
        raise InvalidArgumentError("cu_seqlens: got an array, expected None for new tokens (batch, seqlen)")
    if len(starts.shape) != 1 or not starts.shape[0] or starts.dtype != "int32":
        raise InvalidArgumentError(
            f"cu_seqlens: got {starts.dtype} {starts.shape}, expected int32 (batch + 1,)"
        )


def _query_heads(layouts: dict[str, Layout], tokens: list[int], new: Layout) -> int:
    if "q" not in layouts:
        return 0
    q = layouts["q"]
    if "rotary_cos" not in layouts:
        raise InvalidArgumentError(
            "q: got an array, expected None without rotary_cos: it would stay as it is"
        )
    nhead = q.shape[-2] if len(q.shape) > 1 else 0
    require_like("q", q, (*tokens, nhead, new.shape[-1]), new.dtype, "k", new)
    return nhead


def _token_numbers(layouts: dict[str, Layout], tokens: list[int], batch: int, new: Layout) -> dict[str, bool]:
    """Check what there is for each token or sequence, and return the fields that say of what type it is."""
    fields = {}
    for name in ("slots", "positions"):
        if name in layouts:
            dtype = layouts[name].dtype if layouts[name].dtype in _INTEGERS else "int32"
            require_like(name, layouts[name], tuple(tokens), dtype, "k", new)
            if jax.dtypes.canonicalize_dtype(np.dtype(dtype)) != dtype:
                raise InvalidArgumentError(
                    f"{name}: got dtype int64, expected int32: JAX has 64 bits with jax_enable_x64 only"
                )
            fields[f"{name}_int64"] = dtype == "int64"
    if "cache_seqlens" in layouts:
        require_like("cache_seqlens", layouts["cache_seqlens"], (batch,), "int32", "k", new)
    return fields


def _rotary(layouts: dict[str, Layout], new: Layout, interleaved: bool) -> Fields:
    if ("rotary_cos" in layouts) != ("rotary_sin" in layouts):
        missing = "rotary_sin" if "rotary_cos" in layouts else "rotary_cos"
        raise InvalidArgumentError(
            f"{missing}: got None, expected both rotary_cos and rotary_sin, or neither"
        )
    if "rotary_cos" not in layouts:
        return ()
    cos = layouts["rotary_cos"]
    if len(cos.shape) != 2 or cos.dtype not in (new.dtype, "float32"):
        raise InvalidArgumentError(
            f"rotary_cos: got {cos.dtype} {cos.shape}, expected {new.dtype} or float32, "
            "(positions, rotary_dim / 2)"
        )
    require_like("rotary_sin", layouts["rotary_sin"], cos.shape, cos.dtype, "rotary_cos", new)
    positions, half = cos.shape
    fields = {"positions": positions, "dim": 2 * half, "dtype": cos.dtype, "interleaved": interleaved}
    return tuple(fields.items())


def _cache(layouts: dict[str, Layout], batch: int, other: Layout, scale_per_page: bool) -> tuple[Fields, int]:
    """Check a cache; return its fields, and how many tokens of a sequence it can have.

    `other` is q or k, which has the head dim.
    """
    k, v = layouts["k_cache"], layouts["v_cache"]
    for name, layout in (("k_cache", k), ("v_cache", v)):
        if len(layout.shape) != 4:
            raise InvalidArgumentError(
                f"{name}: got shape {layout.shape}, expected 4 dimensions (pages, page_size, nhead_k, hdim), "
                "or (batch, seqlen, nhead_k, hdim)"
            )
    pages, page_size, nhead, _ = k.shape
    require_like("k_cache", k, (pages, page_size, nhead, other.shape[-1]), k.dtype, "q", other)
    require_like("v_cache", v, (pages, page_size, nhead, v.shape[-1]), k.dtype, "k_cache", other)
    fields = {"dtype": k.dtype, "pages": pages, "page_size": page_size, "scale_per_page": scale_per_page}
    capacity = page_size
    if "block_table" in layouts:
        table = layouts["block_table"]
        width = table.shape[1] if len(table.shape) == 2 else 0
        require_like("block_table", table, (batch, width), "int32", "q", other)
        if "cache_batch_idx" in layouts:
            raise InvalidArgumentError("cache_batch_idx: got an array, expected None with block_table")
        fields["max_pages"], capacity = width, width * page_size
    if "cache_batch_idx" in layouts:
        require_like("cache_batch_idx", layouts["cache_batch_idx"], (batch,), "int32", "q", other)
    for name in _SCALES:
        if name in layouts:
            shape = (pages if scale_per_page else batch, nhead)
            require_like(name, layouts[name], shape, "float32", "k_cache", other)
    return tuple(fields.items()), capacity
