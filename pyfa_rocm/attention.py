# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_func`: attention over sequences of equal lengths."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._call.call import Call
from pyfa_rocm._call.numbers import truth
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import Options
from pyfa_rocm._call.plan import Plans, find, make
from pyfa_rocm._call.run import described, run, run_on_device
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import stream_for

__all__ = ["flash_attn_func"]

_plans: Plans = {}


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    bias: Any = None,
    top_left: bool = False,
    philox: Any = None,
    out_dtype: Any = None,
    q_descale: float | None = None,
    k_descale: float | None = None,
    v_descale: float | None = None,
    return_lse: bool = False,
    kernel: int = 0,
    sinks: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Attention, O = softmax(softmax_scale * Q K^T, masked) V, with flash-attention's arguments and meaning.

    Positional arguments are flash-attention's; those after `return_attn_probs` are ours, by keyword only.

    Parameters
    ----------
    q : array, (batch, seqlen_q, nhead_q, hdim)
        Float16, bfloat16, float32, or whichever of float8_e4m3fnuz and float8_e4m3fn the device has, on a
        ROCm device: a DeviceArray, or anything with ``__dlpack__`` or ``__cuda_array_interface__``. Any
        layout whose last dimension is contiguous and whose other strides are multiples of 8 elements.
    k : array, (batch, seqlen_k, nhead_k, hdim)
        As q. nhead_q is a multiple of nhead_k: query head h reads key head ``h // (nhead_q // nhead_k)``.
    v : array, (batch, seqlen_k, nhead_k, hdim_v)
        As k.
    dropout_p : float
        Chance to drop an element of the probabilities, from 0 to below 1, in steps of 1/256. The kept
        elements are scaled by ``1 / (1 - dropout_p)``. Pass 0 in evaluation.
    softmax_scale : float, optional
        Factor on the scores; ``1 / sqrt(hdim)`` by default.
    causal : bool
        Query row i sees key columns up to its own, ``i + seqlen_k - seqlen_q`` (aligned bottom-right). k and
        v must be finite where hidden, too: a NaN there may reach rows that do not see it.
    window_size : (int, int)
        Keys to the left and right of that column that a query sees; negative, or seqlen_k or more, means
        unlimited. With `causal` the right side is 0.
    softcap : float
        If above 0 (up to 819), scaled scores become ``softcap * tanh(score / softcap)``. Not together with
        `bias` or `alibi_slopes`.
    alibi_slopes : array, optional, float32 (nhead_q) or (batch, nhead_q)
        ``-slope * |j - own column|`` is added to the scaled score of key j.
    deterministic : bool
        Accepted because flash-attention has it. The forward pass is always deterministic.
    return_attn_probs : bool
        Also return the log-sum-exp and the probabilities. Only for tests: the host computes the
        probabilities, and waits for the device.
    bias : array, optional, (batch, nhead_q, seqlen_q, seqlen_k)
        Added to the scaled scores; q's dtype, last dimension contiguous. Any dimension except the last may
        have size 1, which is broadcast. A value beyond +-2.3e38 may count as infinite. Not together with
        `alibi_slopes`.
    top_left : bool
        Let query row i stand at key column i instead: masks and ALiBi are then aligned top-left.
    philox : (int, int) or array, optional
        Seed and offset of dropout's random numbers; required with dropout, and ignored without. Two integers
        below 2**64, or a device array of two uint64 (or int64) that the kernel reads, so a replayed graph can
        take new ones. The same pair gives the same numbers, so change it between calls.
    out_dtype : str or dtype, optional
        Type of O. By default q's; for 8-bit floats that of `out`, or bfloat16 without `out`.
    q_descale, k_descale, v_descale : float, optional
        Only for 8-bit floats: the factor on each element of q, k, v; 1 by default.
    return_lse : bool
        Also return the log-sum-exp.
    kernel : int
        0: the library's choice; n: the n-th of the kernels that can do this (`fmha_fwd_kernel` says which).
    sinks : array, optional, float32 (nhead_q)
        Attention sinks: a logit of each query head that takes part in the softmax and has no value. A row's
        log-sum-exp counts it, so that `flash_attn_bwd` gives right gradients of q, k and v.
    out : array, optional
        Where to write O; of O's shape and dtype, on q's device, in any layout that q may have. It must not
        overlap any other array.
    stream : object, optional
        A hipStream_t as an integer, or a stream of pyfa_rocm, torch, CuPy or hip-python. None is the current
        stream of q's library if that is torch or CuPy, else the null stream.

    Returns
    -------
    out : array, (batch, seqlen_q, nhead_q, hdim_v)
        `out` itself if given, else a new DeviceArray, whatever q is. Frameworks take it without a copy
        through DLPack (``torch.from_dlpack(out)``). A row whose largest scaled score is beyond +-1.8e8
        (8-bit floats: 7.2e5) is NaN, unless there is a bias, ALiBi or softcap: the kernels cannot compute it.
    lse : DeviceArray, float32 (batch, nhead_q, seqlen_q)
        Natural logarithm, of the softmax before dropout; only with `return_lse` or `return_attn_probs`.
    S_dmask : DeviceArray, float32 (batch, nhead_q, seqlen_q, seqlen_k)
        The probabilities before dropout, 0 for masked keys, with the sign bit set where one was dropped;
        only with `return_attn_probs`.

    Raises
    ------
    TypeError
        An argument is not an array (or not a stream).
    InvalidArgumentError
        An argument, or a combination of them, makes no sense; nothing was written.
    UnsupportedError
        The arguments make sense, but no kernel here can do it; the message says what would work.
    HipError
        The HIP runtime refused.

    Notes
    -----
    The call returns when the work is enqueued. A query row that sees no key gives O = 0 and LSE = -inf,
    or its head's sink.
    Source: ``fmha_fwd`` of native/include/fmha_rocm.h and native/kernels/ck/fwd_kernel.h.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_func
    >>> q, k, v = (DeviceArray.from_numpy(np.ones((1, 64, 2, 128), np.float16)) for _ in range(3))
    >>> flash_attn_func(q, k, v, causal=True).to_numpy().shape
    (1, 64, 2, 128)
    """
    handle = 0 if stream is None and type(q) is DeviceArray else stream_for(stream, q)
    optional = None
    drops = dropout_p if type(dropout_p) is float else truth("dropout_p", dropout_p)
    if (
        drops
        or bias is not None
        or alibi_slopes is not None
        or sinks is not None
        or q_descale is not None
        or k_descale is not None
        or v_descale is not None
    ):
        optional = OptionalArguments(handle)
        optional.add("bias", bias)
        optional.add("alibi_slopes", alibi_slopes)
        optional.add("sinks", sinks)
        if drops:
            optional.add_philox(philox, dropout_p)
        optional.add_descale("q_descale", q_descale)
        optional.add_descale("k_descale", k_descale)
        optional.add_descale("v_descale", v_descale)
    q, k, v, to = described(q, k, v, out, handle)
    # All that a plan depends on. It is only compared, so the order of its items means nothing.
    key = (
        q.layout, k.layout, v.layout, None if to is None else to.layout,
        None if optional is None else optional.key, dropout_p, softmax_scale, causal, window_size, softcap,
        return_attn_probs, top_left, out_dtype, return_lse, kernel,
    )  # fmt: skip
    plan = find(_plans, key)
    if plan is None:
        options = Options(
            dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
            softcap=softcap, alibi_slopes=alibi_slopes, return_attn_probs=return_attn_probs, bias=bias,
            top_left=top_left, philox=philox, out_dtype=out_dtype, q_descale=q_descale, k_descale=k_descale,
            v_descale=v_descale, return_lse=return_lse, kernel=kernel,
            sinks=sinks,
        )  # fmt: skip
        plan = make(
            _plans,
            key,
            Call(
                q=q.layout,
                k=k.layout,
                v=v.layout,
                out=None if to is None else to.layout,
                options=options,
                arrays={} if optional is None else optional.layouts(),
            ),
        )
    if plan.direct:
        return run(plan, q, k, v, out, to, optional, handle)
    return run_on_device(plan, q, k, v, out, to, optional, handle)
