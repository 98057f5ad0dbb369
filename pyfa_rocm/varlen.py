# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_varlen_func`: attention of sequences of different lengths, packed one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyfa_rocm._call.arguments import (
    Checked,
    Options,
    array_fields,
    option_fields,
    output_layout,
    require_inputs,
    require_shape,
    require_vector,
    tensor_fields,
)
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm._call.plan import Plan, Plans, Request, call
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import stream_for
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["flash_attn_varlen_func"]

_plans: Plans = {}


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
    *,
    seqused_q: Any = None,
    seqused_k: Any = None,
    bias: Any = None,
    top_left: bool = False,
    philox: Any = None,
    out_dtype: Any = None,
    q_descale: float | None = None,
    k_descale: float | None = None,
    v_descale: float | None = None,
    return_lse: bool = False,
    out: Any = None,
    kernel: int = 0,
    stream: Any = None,
) -> Any:
    """Like `flash_attn_func`, but for sequences of different lengths, packed one after the other.

    Sequence b has the rows ``cu_seqlens_q[b]`` up to ``cu_seqlens_q[b + 1]`` of q, and the rows
    ``cu_seqlens_k[b]`` up to ``cu_seqlens_k[b + 1]`` of k and v; each attends to itself alone. Either may be
    empty. What is not listed is as in `flash_attn_func`, with the sequence's own lengths for seqlen_q and
    seqlen_k.

    Parameters
    ----------
    q : array, (total_q, nhead_q, hdim)
        All queries.
    k : array, (total_k, nhead_k, hdim)
        All keys.
    v : array, (total_k, nhead_k, hdim_v)
        All values.
    cu_seqlens_q, cu_seqlens_k : array, int32 (batch + 1)
        Where each sequence starts, and the end: from 0, not decreasing, up to total_q or total_k. In device
        memory, so what they hold is not checked.
    max_seqlen_q, max_seqlen_k : int
        Upper bounds of the lengths. Rows of q beyond max_seqlen_q of a longer sequence are not computed. A
        side of `window_size` is unlimited from max_seqlen_k on.
    dropout_p, softmax_scale, causal, window_size, softcap, deterministic, return_attn_probs
        As in `flash_attn_func`.
    alibi_slopes : array, optional, float32 (nhead_q) or (batch, nhead_q)
        As in `flash_attn_func`.
    seqused_q, seqused_k : array, optional, int32 (batch)
        Lengths in use, of sequences that fill a part of their rows, from the first: what is beyond is neither
        read nor written. (Where `out` is allocated here, such rows of it, and of lse, hold anything.)
    bias : array, optional, (nhead_q, total_q, max_seqlen_k)
        Rows are those of q; column j is key j of the row's own sequence. A size of 1 in place of any but the
        last is broadcast.
    top_left, philox, out_dtype, q_descale, k_descale, v_descale, return_lse, kernel, stream
        As in `flash_attn_func`.
    out : array, optional
        Where to write O: its shape, dtype and device, layout as q's. Not overlapping any other array.

    Returns
    -------
    out : array, (total_q, nhead_q, hdim_v)
        `out` itself if given, else a new DeviceArray.
    lse : DeviceArray, float32 (nhead_q, total_q)
        Natural logarithm; with `return_lse` or `return_attn_probs` alone.
    S_dmask : DeviceArray, float32 (batch, nhead_q, max_seqlen_q, max_seqlen_k)
        As in `flash_attn_func`, 0 beyond a sequence; with `return_attn_probs` alone.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: ``fmha_fwd`` of native/include/fmha_rocm.h and native/kernels/ck/fwd_kernel.h.

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
    descales = (q_descale, k_descale, v_descale)
    optional = OptionalArguments(bias, alibi_slopes, dropout_p, philox, descales, handle)
    optional.add("cu_seqlens_q", cu_seqlens_q, handle, "cu_seqlens_q")
    optional.add("cu_seqlens_k", cu_seqlens_k, handle, "cu_seqlens_k")
    optional.add("seqused_q", seqused_q, handle, "seqused_q")
    optional.add("seqused_k", seqused_k, handle, "seqused_k")
    options = (
        softmax_scale, causal, window_size, top_left, dropout_p, softcap, out_dtype, return_lse,
        return_attn_probs, kernel, max_seqlen_q, max_seqlen_k,
    )  # fmt: skip
    return call(_plans, make_plan, (q, k, v), out, optional, options, handle)


def check(request: Request) -> Checked:
    """Check everything but addresses and `out`. Sizes may be symbols: nothing is made of them but shapes."""
    q, k, v, options = request.q.layout, request.k.layout, request.v.layout, Options(*request.options[:-2])
    require_inputs(q, k, v, "(total, nhead, hdim)")
    total_q, nhead_q, hdim = q.shape
    total_k, nhead_k, hdim_v = k.shape[0], k.shape[1], v.shape[2]
    require_shape("k", k.shape, (total_k, nhead_k, hdim), "q")
    require_shape("v", v.shape, (total_k, nhead_k, hdim_v), "k")
    assert request.optional is not None
    batch = _batch({name: array.layout for name, array in request.optional.arrays.items()}, q)
    max_seqlen_q, max_seqlen_k = request.options[-2:]
    fields = option_fields(options, q, request.optional)
    fields |= array_fields(request.optional, batch, (nhead_q, total_q, max_seqlen_k), q)
    scores = (batch, nhead_q, max_seqlen_q, max_seqlen_k)
    return Checked((total_q, nhead_q, hdim_v), (nhead_q, total_q), scores, batch, fields)


def make_plan(request: Request) -> Plan:
    """Check everything but addresses."""
    q, k, v, options = request.q.layout, request.k.layout, request.v.layout, Options(*request.options[:-2])
    lengths = map(to_integer, ("max_seqlen_q", "max_seqlen_k"), request.options[-2:])
    request = replace(request, options=(*request.options[:-2], *lengths))
    checked = check(request)
    total_q, total_k, (max_seqlen_q, max_seqlen_k) = q.shape[0], k.shape[0], request.options[-2:]
    # Without rows no length is above 0. The C library wants that said: a total of 0 is a forgotten one there.
    seqlen_q, seqlen_k = max_seqlen_q if total_q else 0, max_seqlen_k if total_k else 0
    o = output_layout(request.o, checked.o, options.out_dtype, q)
    lse = contiguous(checked.lse, "float32", q.device) if options.wants_lse else None
    params = FwdParams(
        batch=checked.batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, total_q=total_q, total_k=total_k,
        **tensor_fields(q, k, v, o, lse), **checked.fields,
    )  # fmt: skip
    return Plan(params, o, lse, checked.scores if options.return_attn_probs else None)


def _batch(arrays: dict[str, Layout], q: Layout) -> int:
    """Check the arrays of lengths against each other, and return how many sequences they say there are."""
    for name in ("cu_seqlens_q", "cu_seqlens_k"):
        if name not in arrays:
            raise InvalidArgumentError(f"{name}: got None, expected an int32 array (batch + 1,)")
    require_vector("cu_seqlens_q", arrays["cu_seqlens_q"], ("int32",), None, q)
    batch = arrays["cu_seqlens_q"].shape[0] - 1
    require_vector("cu_seqlens_k", arrays["cu_seqlens_k"], ("int32",), batch + 1, q)
    for name in ("seqused_q", "seqused_k"):
        if name in arrays:
            require_vector(name, arrays[name], ("int32",), batch, q)
    return batch
