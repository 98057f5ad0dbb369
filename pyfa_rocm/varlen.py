# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_varlen_func`: attention over packed sequences of different lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyfa_rocm._call.arrays import to_read, to_write
from pyfa_rocm._call.cached import REQUIRED, CachedOptions, refuse_uncached
from pyfa_rocm._call.cached_plan import cached_plan
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import require_like
from pyfa_rocm._call.keywords import add_keywords, key_of, options_of, spelled_out
from pyfa_rocm._call.numbers import to_integer, truth
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import Keywords, Options
from pyfa_rocm._call.plan import Plans, find, make
from pyfa_rocm._call.run import described, run, run_on_device
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import stream_for
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.kvcache import attend_cached

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["flash_attn_varlen_func"]

_plans: Plans = {}


@spelled_out
def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
    *,
    seqused_q: Any = None,
    seqused_k: Any = None,
    out: Any = None,
    stream: Any = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `flash_attn_func`, but for sequences of different lengths, packed one after the other.

    Sequence b has the rows ``cu_seqlens_q[b]`` up to ``cu_seqlens_q[b + 1]`` of q, and the rows
    ``cu_seqlens_k[b]`` up to ``cu_seqlens_k[b + 1]`` of k and v; each attends only to itself. Either may be
    empty. All else is as in `flash_attn_func`, with the sequence's own lengths for seqlen_q and seqlen_k.

    Parameters
    ----------
    q : array, (total_q, nhead_q, hdim)
        All queries.
    k : array, (total_k, nhead_k, hdim)
        All keys.
    v : array, (total_k, nhead_k, hdim_v)
        All values.
    cu_seqlens_q, cu_seqlens_k : array, int32 (batch + 1)
        Where each sequence starts, and the end: from 0, not decreasing, up to total_q or total_k. They are in
        device memory, so their values are not checked.
    max_seqlen_q, max_seqlen_k : int
        Upper bounds of the lengths. If a sequence is longer, its rows of q beyond max_seqlen_q may be left
        out, like rows of no sequence. A side of `window_size` is unlimited from max_seqlen_k on.
    dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs
        As in `flash_attn_func`.
    alibi_slopes : array, optional, float32 (nhead_q) or (batch, nhead_q)
        As in `flash_attn_func`.
    block_table : array, optional, int32 (batch, max_pages)
        Pages of each sequence: k and v are caches, (pages, page_size, nhead_k, hdim), in any form that
        `flash_attn_with_kvcache` takes. Lengths of keys are `seqused_k`, or without it the differences of
        `cu_seqlens_k`, which may be None beside it. They are at most `max_seqlen_k`. Not together with
        `seqused_q`, dropout, `bias`, `top_left`, `out_dtype`, descales or `return_attn_probs`.
    seqused_q, seqused_k : array, optional, int32 (batch)
        Lengths in use, if sequences fill only the first part of their rows. The other rows belong to no
        sequence, and are neither read nor written.
    bias : array, optional, (nhead_q, total_q, max_seqlen_k)
        Rows are those of q; column j is key j of the row's own sequence. Any dimension except the last may
        have size 1, which is broadcast.
    top_left, philox, out_dtype, q_descale, k_descale, v_descale, return_lse, kernel, sinks, stream
        As in `flash_attn_func`.
    out : array, optional
        Where to write O; of O's shape and dtype, on q's device, in any layout that q may have. It must not
        overlap any other array.

    Returns
    -------
    out : array, (total_q, nhead_q, hdim_v)
        `out` itself if given, with its rows of no sequence unchanged; else a new DeviceArray, where they are
        0.
    lse : DeviceArray, float32 (nhead_q, total_q)
        Natural logarithm, -inf for rows of no sequence; only with `return_lse` or `return_attn_probs`.
    S_dmask : DeviceArray, float32 (batch, nhead_q, max_seqlen_q, max_seqlen_k)
        As in `flash_attn_func`, 0 beyond a sequence; only with `return_attn_probs`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: ``fmha_fwd`` of native/include/fmha_rocm.h and native/kernels/ck/fwd_kernel.h; with `block_table`
    ``fmha_decode``.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_varlen_func
    >>> q, k, v = (DeviceArray.from_numpy(np.ones((100, 2, 128), np.float16)) for _ in range(3))
    >>> cu_seqlens = DeviceArray.from_numpy(np.array([0, 30, 100], np.int32))
    >>> flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, 70, 70, causal=True).to_numpy().shape
    (100, 2, 128)
    """
    handle = 0 if stream is None and type(q) is DeviceArray else stream_for(stream, q)
    if block_table is not None:
        options = options_of(
            "flash_attn_varlen_func", ours, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
            window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
            return_attn_probs=return_attn_probs,
        )  # fmt: skip
        arrays = {
            "q": q,
            "k_cache": k,
            "v_cache": v,
            "block_table": block_table,
            "cu_seqlens_q": cu_seqlens_q,
            "cu_seqlens_k": cu_seqlens_k,
            "seqused_q": seqused_q,
            "cache_seqlens": seqused_k,
            "alibi_slopes": alibi_slopes,
            "sinks": options.sinks,
        }
        return _attend_paged(arrays, max_seqlen_q, max_seqlen_k, options, out, handle)
    optional = OptionalArguments(handle)
    optional.add("cu_seqlens_q", cu_seqlens_q)
    optional.add("cu_seqlens_k", cu_seqlens_k)
    optional.add("seqused_q", seqused_q)
    optional.add("seqused_k", seqused_k)
    optional.add("alibi_slopes", alibi_slopes)
    if ours or truth("dropout_p", dropout_p):
        add_keywords(optional, ours, dropout_p)
    q, k, v, to = described(q, k, v, out, handle)
    # All that a plan depends on. It is only compared, so the order of its items means nothing.
    key = (
        q.layout, k.layout, v.layout, None if to is None else to.layout, optional.key, max_seqlen_q,
        max_seqlen_k, dropout_p, softmax_scale, causal, window_size, softcap, return_attn_probs,
        key_of(ours) if ours else None,
    )  # fmt: skip
    plan = find(_plans, key)
    if plan is None:
        options = options_of(
            "flash_attn_varlen_func", ours, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
            window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
            return_attn_probs=return_attn_probs,
        )  # fmt: skip
        plan = make(
            _plans, key,
            Call(
                q=q.layout, k=k.layout, v=v.layout, out=None if to is None else to.layout, options=options,
                arrays=optional.layouts(), max_seqlen_q=to_integer("max_seqlen_q", max_seqlen_q),
                max_seqlen_k=to_integer("max_seqlen_k", max_seqlen_k),
            ),
        )  # fmt: skip
    if plan.direct:
        return run(plan, q, k, v, out, to, optional, handle)
    return run_on_device(plan, q, k, v, out, to, optional, handle)


def _attend_paged(
    arrays: dict[str, Any], max_seqlen_q: Any, max_seqlen_k: Any, options: Options, out: Any, handle: int
) -> Any:
    """Attend with packed queries over pages; `arrays` has the names of `flash_attn_with_kvcache`."""
    refuse_uncached(options, arrays.pop("seqused_q"))
    if arrays["cache_seqlens"] is not None:
        arrays["cu_seqlens_k"] = None
    elif arrays["cu_seqlens_k"] is None:
        raise InvalidArgumentError("cu_seqlens_k: got None, expected an array, or one in seqused_k")
    given = {
        name: to_read(x, name, handle) for name, x in arrays.items() if x is not None or name in REQUIRED
    }
    to = None if out is None else to_write(out, "out", handle)
    cached = CachedOptions(
        max_seqlen_q=to_integer("max_seqlen_q", max_seqlen_q),
        max_seqlen_k=to_integer("max_seqlen_k", max_seqlen_k),
    )
    layouts = {name: x.layout for name, x in given.items()}
    if (used := layouts.get("cache_seqlens")) is not None:
        batch = layouts["block_table"].shape[:1]
        require_like("seqused_k", used, batch, "int32", "q", layouts["q"])
    plan = cached_plan(layouts, options, cached, None if to is None else to.layout)
    result, lse = attend_cached(plan, given, to, handle)
    result = result if out is None else out
    return (result, lse) if options.wants_lse else result
