# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention over a KV cache: its arrays' layouts checked, and made parameters of the C call.

A cache is (pages, page_size, nhead_k, hdim), or without pages (batch, seqlen, nhead_k, hdim); or it is
vectorised: keys (pages, nhead_k, hdim / x, page_size, x) and values (pages, nhead_k, page_size / y, hdim, y),
or (pages, nhead_k, hdim, page_size) for y = page_size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyfa_rocm._call.cache import Cache, CacheScale, CacheTensor
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import check, lse_strides, output_layout, plain_fields, require_like, strided
from pyfa_rocm._call.decode import DecodeParams
from pyfa_rocm._call.numbers import truth
from pyfa_rocm._call.optional import DESCALES
from pyfa_rocm._call.params import FwdParams, Options, Strided
from pyfa_rocm._runtime.tensor import Layout, contiguous, contiguous_strides, layout_of
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = ["REQUIRED", "CachedCall", "CachedOptions", "cache_of", "cached_call", "refuse_uncached"]

# Arrays without which there is no call.
REQUIRED = ("q", "k_cache", "v_cache")

_PLAIN, _VECTORS = 4, 5  # dimensions of k_cache
_PACKED = 3  # of q and O
# Arrays that say where in a cache sequences are.
_LISTS = ("block_table", "kv_indptr", "kv_indices", "cache_batch_idx")


@dataclass(frozen=True, slots=True)
class CachedOptions:
    """The options of such a call beside those of attention: see `flash_attn_with_kvcache`.

    `hdim_v`: values are the first so many elements of the keys; None: there is a v_cache. `base2`: whether
    the log-sum-exp is to base 2. See `pyfa_rocm.jax.flash_attn_with_kvcache`.
    """

    num_splits: int = 0
    seqlen_new: int = 0
    scale_per_page: bool = False
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None
    hdim_v: int | None = None
    base2: bool = False


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A call that lacks only addresses.

    Attributes
    ----------
    params : DecodeParams
        The C call's.
    o : Layout
        Layout of the output.
    lse : Layout or None
        Layout of the log-sum-exp; None: not wanted.
    """

    params: DecodeParams
    o: Layout
    lse: Layout | None

    @property
    def packed(self) -> bool:
        """Tell whether there may be rows of no sequence, which the kernels leave as they are."""
        return len(self.o.shape) == _PACKED

    def at(self, addresses: dict[str, int]) -> DecodeParams:
        """Return the parameters at the addresses of arrays, by their names of the public functions."""
        p = self.params
        if "v_cache" not in addresses and "k_cache" in addresses:
            addresses = addresses | {"v_cache": addresses["k_cache"]}
        of = addresses.get
        fwd = replace(
            p.fwd,
            q=p.fwd.q._replace(data=of("q", 0)),
            o=p.fwd.o._replace(data=of("out", 0)),
            lse=None if p.fwd.lse is None else p.fwd.lse._replace(data=of("lse", 0)),
            seqused_k=of("cache_seqlens", 0),
            cu_seqlens_q=of("cu_seqlens_q", 0),
            cu_seqlens_k=of("cu_seqlens_k", 0),
            alibi_slopes=of("alibi_slopes", 0),
        )
        return replace(
            p,
            fwd=fwd,
            cache=cache_at(p.cache, addresses),
            leftpad_k=of("cache_leftpad", 0),
            sinks=of("sinks", 0),
            workspace=of("workspace", 0),
        )


def cache_at(cache: Cache, addresses: dict[str, int]) -> Cache:
    """Return a cache at the addresses of its arrays."""
    changes: dict[str, Any] = {name: addresses[name] for name in _LISTS if name in addresses}
    for name, field in (("k_cache", "k"), ("v_cache", "v"), ("k_scale", "k_scale"), ("v_scale", "v_scale")):
        if name in addresses:
            changes[field] = getattr(cache, field)._replace(data=addresses[name])
    return replace(cache, **changes)


def cached_call(
    layouts: dict[str, Layout], options: Options, cached: CachedOptions, out: Layout | None = None
) -> CachedCall:
    """Check a call; of arrays only the layouts are looked at.

    Parameters
    ----------
    layouts : dict
        By name: q, k_cache and, unless values are in the keys, v_cache, and any of alibi_slopes,
        cache_seqlens, cache_leftpad, cache_batch_idx, block_table, kv_indptr, kv_indices, sinks, k_scale,
        v_scale, cu_seqlens_q and cu_seqlens_k.
    options : Options
        Options of the attention.
    cached : CachedOptions
        Options of the cache.
    out : Layout, optional
        Layout of the output, if it was given.
    """
    q = layouts["q"]
    packed = cached.max_seqlen_q is not None
    dims = "(total_q, nhead_q, hdim)" if packed else "(batch, seqlen_q, nhead_q, hdim)"
    if len(q.shape) != (3 if packed else 4):
        raise InvalidArgumentError(f"q: got shape {q.shape}, expected {dims}")
    batch = _packed_batch(layouts) if packed else q.shape[0]
    if cached.hdim_v is not None:
        layouts = layouts | {"v_cache": _values_in_keys(layouts, cached.hdim_v)}
    cache, capacity, nhead_k, hdim_v = cache_of(layouts, batch, q, cached.scale_per_page)
    if cache.k_vector and not any(name in layouts for name in ("block_table", "kv_indptr")):
        raise InvalidArgumentError("block_table: got None, expected an array for a vectorised k_cache")
    for name, shape, dtype in (
        ("cache_seqlens", (batch,), "int32"),
        ("cache_leftpad", (batch,), "int32"),
        ("cu_seqlens_k", (batch + 1,), "int32"),
        ("sinks", (q.shape[-2],), "float32"),
    ):
        if name in layouts:
            require_like(name, layouts[name], shape, dtype, "q", q)
    longest = capacity if cached.max_seqlen_k is None else cached.max_seqlen_k
    checked = check(_as_forward(layouts, options, (batch, longest, nhead_k, hdim_v), cached.max_seqlen_q))
    fields = {name: x for name, x in plain_fields(checked).items() if name != "total_k"}
    o = output_layout(out, checked.o, options.out_dtype, q)
    lse = contiguous(checked.lse, "float32", q.device) if options.wants_lse else None
    none = Strided(0, 0, 0, 0)
    kernel = fields.pop("kernel", 0)
    fwd = FwdParams(
        **fields,
        q=strided(q),
        k=none,
        v=none,
        o=strided(o),
        lse=None if lse is None else lse_strides(lse),
        o_dtype=None if o.dtype == q.dtype else o.dtype,
    )
    params = DecodeParams(
        fwd,
        cache,
        num_splits=cached.num_splits,
        seqlen_new=cached.seqlen_new,
        lse_base=int(cached.base2),
        kernel=kernel,
    )
    return CachedCall(params, o, lse)


def _values_in_keys(layouts: dict[str, Layout], hdim_v: int) -> Layout:
    """Return the layout of values that are the first elements of the keys."""
    k = layouts["k_cache"]
    if "v_cache" in layouts:
        raise InvalidArgumentError("v_cache: got an array, expected None with hdim_v: values are in k_cache")
    if len(k.shape) != _PLAIN:
        raise InvalidArgumentError(
            f"k_cache: got shape {k.shape}, expected 4 dimensions with hdim_v: each key begins with its value"
        )
    if not 0 < hdim_v <= k.shape[-1]:
        raise InvalidArgumentError(
            f"hdim_v: got {hdim_v}, expected 1 to {k.shape[-1]}, the head dim of k_cache"
        )
    return layout_of((*k.shape[:-1], hdim_v), k.strides, k.dtype, k.device)


def _packed_batch(layouts: dict[str, Layout]) -> int:
    starts = layouts.get("cu_seqlens_q")
    if starts is None or starts.dtype != "int32" or len(starts.shape) != 1 or not starts.shape[0]:
        got = "None" if starts is None else f"{starts.dtype} {starts.shape}"
        raise InvalidArgumentError(f"cu_seqlens_q: got {got}, expected int32 (batch + 1,)")
    return starts.shape[0] - 1


def _as_forward(
    layouts: dict[str, Layout], options: Options, keys: tuple[int, int, int, int], max_seqlen_q: int | None
) -> Call:
    """Return the call as one of keys that are no cache, as long as each sequence may be in it."""
    q = layouts["q"]
    batch, longest, nhead_k, hdim_v = keys
    tokens = (batch, longest) if max_seqlen_q is None else (longest,)
    k, v = (contiguous((*tokens, nhead_k, d), q.dtype, q.device) for d in (q.shape[-1], hdim_v))
    arrays = {name: x for name, x in layouts.items() if name in ("alibi_slopes", "cu_seqlens_q")}
    if max_seqlen_q is None:
        return Call(q=q, k=k, v=v, options=options, arrays=arrays)
    arrays["cu_seqlens_k"] = contiguous((batch + 1,), "int32", q.device)
    return Call(
        q=q, k=k, v=v, options=options, arrays=arrays, max_seqlen_q=max_seqlen_q, max_seqlen_k=longest
    )


def refuse_uncached(options: Options, seqused_q: Any) -> None:
    """Raise for what attention of packed sequences over a cache is without."""
    if seqused_q is not None:
        raise UnsupportedError(
            "seqused_q: got an array with block_table, expected None: cu_seqlens_q has the lengths"
        )
    if options.return_attn_probs:
        raise UnsupportedError(
            "return_attn_probs: got True with block_table, expected False: return_lse gives the log-sum-exp"
        )
    arrays = ("bias", *DESCALES)
    for name in (*arrays, "dropout_p", "top_left", "out_dtype"):
        value = getattr(options, name)
        if value is not None and (name in arrays or value):
            raise UnsupportedError(
                f"{name}: got a value with block_table, expected none: attention over a cache is without; "
                "gather keys and values for a call without block_table"
            )


def cache_of(
    layouts: dict[str, Layout],
    batch: int,
    other: Layout,
    scale_per_page: bool,
    new: tuple[int, int] | None = None,
) -> tuple[Cache, int, int, int]:
    """Check a cache; `other` is q or k, which has the head dim; `new` are heads and hdim_v of new tokens.

    Returns
    -------
    cache : Cache
        Without addresses.
    capacity : int
        Tokens of a sequence that it has room for.
    nhead_k, hdim_v : int
    """
    k, v = layouts["k_cache"], layouts["v_cache"]
    if len(k.shape) not in (_PLAIN, _VECTORS):
        raise InvalidArgumentError(
            f"k_cache: got shape {k.shape}, expected 4 dimensions (pages, page_size, nhead_k, hdim) or "
            "(batch, seqlen, nhead_k, hdim), or 5 (pages, nhead_k, hdim / x, page_size, x)"
        )
    is_plain = len(k.shape) == _PLAIN
    fields = (_rows if is_plain else _vectors)(k, v, other, new)
    page_size, nhead_k, hdim_v = fields["page_size"], fields.pop("nhead_k"), fields.pop("hdim_v")
    capacity = page_size
    lists, listed = _lists(layouts, batch, other)
    if listed is not None:
        capacity = listed * page_size
    per_page = truth("scale_per_page", scale_per_page)
    scales: dict[str, Any] = {}
    for name in ("k_scale", "v_scale"):
        if name in layouts:
            shape = (fields["pages"] if per_page else batch, nhead_k)
            require_like(name, layouts[name], shape, "float32", "k_cache", other)
            scales[name] = CacheScale(0, *layouts[name].strides)
    cache = Cache(k.dtype, scale_per_page=per_page, **fields, **lists, **scales)
    return cache, capacity, nhead_k, hdim_v


def _rows(k: Layout, v: Layout, other: Layout, new: tuple[int, int] | None) -> dict[str, Any]:
    pages, page_size = k.shape[:2]
    nhead_k, hdim_v = new or (k.shape[2], v.shape[-1] if v.shape else 0)
    require_like("k_cache", k, (pages, page_size, nhead_k, other.shape[-1]), k.dtype, "q", other)
    require_like("v_cache", v, (pages, page_size, nhead_k, hdim_v), k.dtype, "k_cache", other)
    return {
        "pages": pages,
        "page_size": page_size,
        "nhead_k": nhead_k,
        "hdim_v": hdim_v,
        "k": CacheTensor(0, *k.strides[:3]),
        "v": CacheTensor(0, *v.strides[:3]),
    }


def _vectors(k: Layout, v: Layout, other: Layout, new: tuple[int, int] | None) -> dict[str, Any]:
    pages, nhead_k, _, page_size, vector = k.shape
    one_vector = len(v.shape) == _PLAIN  # of all tokens of a page
    tokens = page_size if one_vector else v.shape[-1] if v.shape else 0
    hdim_v = v.shape[-2] if len(v.shape) > 1 else 0
    nhead_k, hdim_v = new or (nhead_k, hdim_v)
    chunks = other.shape[-1] // max(vector, 1)
    require_like("k_cache", k, (pages, nhead_k, chunks, page_size, vector), k.dtype, "q", other)
    vectors = () if one_vector else (page_size // max(tokens, 1),)
    require_like("v_cache", v, (pages, nhead_k, *vectors, hdim_v, tokens), k.dtype, "k_cache", other)
    for name, layout in (("k_cache", k), ("v_cache", v)):
        steps = zip(layout.shape, layout.strides, contiguous_strides(layout.shape), strict=True)
        if any(size > 1 and step != expected for size, step, expected in list(steps)[2:]):
            raise InvalidArgumentError(
                f"{name}: got strides {layout.strides}, expected a page's head to be contiguous"
            )
    return {
        "pages": pages,
        "page_size": page_size,
        "nhead_k": nhead_k,
        "hdim_v": hdim_v,
        "k_vector": vector,
        "v_vector": tokens,
        "k": CacheTensor(0, k.strides[0], 0, k.strides[1]),
        "v": CacheTensor(0, v.strides[0], 0, v.strides[1]),
    }


def _lists(layouts: dict[str, Layout], batch: int, other: Layout) -> tuple[dict[str, Any], int | None]:
    """Return the fields of what says where sequences are, and how many pages one may have; None: no pages."""
    if ("kv_indptr" in layouts) != ("kv_indices" in layouts):
        missing = "kv_indices" if "kv_indptr" in layouts else "kv_indptr"
        raise InvalidArgumentError(f"{missing}: got None, expected both kv_indptr and kv_indices, or neither")
    given = [name for name in ("block_table", "kv_indptr", "cache_batch_idx") if name in layouts]
    if len(given) > 1:
        raise InvalidArgumentError(f"{given[1]}: got an array, expected None with {given[0]}")
    if "block_table" in layouts:
        table = layouts["block_table"]
        width = table.shape[1] if len(table.shape) == 2 else 0
        require_like("block_table", table, (batch, width), "int32", "q", other)
        return {"stride_block_table": table.strides[0], "max_pages": width}, width
    if "kv_indptr" in layouts:
        indices = layouts["kv_indices"]
        require_like("kv_indptr", layouts["kv_indptr"], (batch + 1,), "int32", "q", other)
        require_like("kv_indices", indices, indices.shape[:1], "int32", "q", other)
        return {"indices": indices.shape[0]}, indices.shape[0]
    if "cache_batch_idx" in layouts:
        require_like("cache_batch_idx", layouts["cache_batch_idx"], (batch,), "int32", "q", other)
    return {}, None
