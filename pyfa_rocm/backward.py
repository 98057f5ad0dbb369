# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_bwd` and `flash_attn_varlen_bwd`: the gradients of attention."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._call.bwd_plan import BwdCall, BwdPlan, BwdPlans, make_bwd
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.numbers import to_integer, truth
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import Options
from pyfa_rocm._call.plan import find
from pyfa_rocm._runtime.tensor import Tensor, as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import enter_device, leave_device, stream_for
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["flash_attn_bwd", "flash_attn_varlen_bwd"]

_Array = DeviceArray | Tensor
_plans: BwdPlans = {}


def flash_attn_bwd(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    *,
    bias: Any = None,
    top_left: bool = False,
    philox: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dbias: Any = None,
    grad_dtype: str | None = None,
    accumulate: bool = False,
    kernel: int = 0,
    stream: Any = None,
) -> tuple[Any, ...]:
    """Gradients of `flash_attn_func` with respect to q, k and v, and to the bias if asked.

    Parameters
    ----------
    dout : array, (batch, seqlen_q, nhead_q, hdim_v)
        Gradient of O, of q's dtype.
    q, k, v : array
        The arrays given to `flash_attn_func`: float16, bfloat16 or float32, head dims up to 256;
        of 16 bits up to 512 on MI300 and MI350, without dropout and bias.
    out, lse : array
        Its results with ``return_lse=True``. O and LSE may also be merged from several passes over parts of
        the keys, and k and v be any of these parts, as in ring attention.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, bias, top_left, philox
        As they were given to `flash_attn_func`.
    deterministic : bool
        Make dQ have the same bits from run to run, for which some kernels take 8 times the workspace.
    dq, dk, dv : array, optional
        Where to write the gradients: shaped like q, k and v, all of the same dtype, in any layout that those
        may have, without overlaps. By default new DeviceArrays.
    dbias : array or True, optional
        Where to write the gradient of the bias, summed along the dimensions in which the bias is broadcast:
        shaped like `bias`, of the same dtype as the others. True: a new DeviceArray. By default it is not
        computed.
    grad_dtype : str, optional
        Type of new arrays: q's by default, or "float32".
    accumulate : bool
        Add the gradients to `dq`, `dk`, `dv` and `dbias`, which must be given.
    kernel : int
        0: the library's choice; n: the n-th of the kernels that can do this (`fmha_bwd_kernel` says which).
    stream : object, optional
        As in `flash_attn_func`.

    Returns
    -------
    dq, dk, dv : array
        `dq`, `dk` and `dv` themselves if given, and `dbias` as the fourth if asked for. The gradients of rows
        that see no key, and of keys that no row sees, are 0.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    The call returns when the work is enqueued. It allocates the workspace, which `fmha_bwd` takes as a
    parameter.
    Source: ``fmha_bwd`` of native/include/fmha_rocm.h and native/kernels/ck/bwd_kernel.h.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_bwd, flash_attn_func
    >>> q, k, v, dout = (DeviceArray.from_numpy(np.ones((1, 64, 2, 64), np.float16)) for _ in range(4))
    >>> out, lse = flash_attn_func(q, k, v, causal=True, return_lse=True)
    >>> dq, dk, dv = flash_attn_bwd(dout, q, k, v, out, lse, causal=True)
    >>> dv.to_numpy()[0, -1, 0, 0]
    np.float16(0.015625)
    """
    options = Options(
        dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        softcap=softcap, alibi_slopes=alibi_slopes, bias=bias, top_left=top_left, philox=philox,
        return_lse=True,
    )  # fmt: skip
    return _run(
        {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}, options,
        {"dq": dq, "dk": dk, "dv": dv, "dbias": dbias}, grad_dtype, accumulate, deterministic, kernel, stream,
    )  # fmt: skip


def flash_attn_varlen_bwd(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
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
    *,
    seqused_q: Any = None,
    seqused_k: Any = None,
    bias: Any = None,
    top_left: bool = False,
    philox: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dbias: Any = None,
    grad_dtype: str | None = None,
    accumulate: bool = False,
    kernel: int = 0,
    stream: Any = None,
) -> tuple[Any, ...]:
    """Gradients of `flash_attn_varlen_func` with respect to q, k and v, and to the bias if asked.

    Parameters
    ----------
    dout : array, (total_q, nhead_q, hdim_v)
        Gradient of O, of q's dtype.
    q, k, v, out : array
        As in `flash_attn_bwd`, packed as in `flash_attn_varlen_func`.
    lse : array, float32 (nhead_q, total_q)
        The log-sum-exp that `flash_attn_varlen_func` returned.
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k
        As they were given to `flash_attn_varlen_func`. Rows beyond seqused have gradient 0.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, bias, top_left, philox
        As in `flash_attn_bwd`.
    deterministic, dq, dk, dv, dbias, grad_dtype, accumulate, kernel, stream
        As in `flash_attn_bwd`.

    Returns
    -------
    dq, dk, dv : array
        As in `flash_attn_bwd`, and `dbias` as the fourth if asked for. Rows that belong to no sequence are 0
        in new arrays; given arrays get 0 there or stay unchanged.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: ``fmha_bwd`` of native/include/fmha_rocm.h and native/kernels/ck/bwd_kernel.h.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_varlen_bwd, flash_attn_varlen_func
    >>> q, k, v, dout = (DeviceArray.from_numpy(np.ones((100, 2, 64), np.float16)) for _ in range(4))
    >>> lengths = (DeviceArray.from_numpy(np.array([0, 30, 100], np.int32)),) * 2 + (70, 70)
    >>> out, lse = flash_attn_varlen_func(q, k, v, *lengths, causal=True, return_lse=True)
    >>> dq, dk, dv = flash_attn_varlen_bwd(dout, q, k, v, out, lse, *lengths, causal=True)
    >>> dk.to_numpy().shape
    (100, 2, 64)
    """
    options = Options(
        dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        softcap=softcap, alibi_slopes=alibi_slopes, bias=bias, top_left=top_left, philox=philox,
        return_lse=True,
    )  # fmt: skip
    sequences = {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_q": seqused_q,
        "seqused_k": seqused_k,
    }
    return _run(
        {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}, options,
        {"dq": dq, "dk": dk, "dv": dv, "dbias": dbias}, grad_dtype, accumulate, deterministic, kernel,
        stream, sequences, max_seqlen_q=to_integer("max_seqlen_q", max_seqlen_q),
        max_seqlen_k=to_integer("max_seqlen_k", max_seqlen_k),
    )  # fmt: skip


def _optional(options: Options, sequences: dict[str, Any], handle: int) -> OptionalArguments:
    optional = OptionalArguments(handle)
    optional.add("alibi_slopes", options.alibi_slopes)
    optional.add("bias", options.bias)
    if options.dropout_p:
        optional.add_philox(options.philox, options.dropout_p)
    for name, array in sequences.items():
        optional.add(name, array)
    return optional


def _taken(array: Any, name: str, handle: int) -> _Array:
    """Return an array of any library with its address and layout, marked as in use on the stream."""
    if type(array) is DeviceArray:
        array.mark_used(handle)
        return array
    return as_tensor(array, name, handle)


def _outputs(given: dict[str, Any], handle: int) -> dict[str, _Array | None]:
    """Return the wanted gradients by name: the caller's arrays, or None for those to allocate."""
    outputs: dict[str, _Array | None] = {}
    for name, x in given.items():
        if name == "dbias" and (x is None or x is False):
            continue
        outputs[name] = None if x is None or x is True else _taken(x, name, handle)
    return outputs


def _may_be_written(name: str, array: _Array, handle: int) -> None:
    if isinstance(array, DeviceArray):
        array.mark_written(handle)
    elif array.readonly:
        raise InvalidArgumentError(f"{name}: got a read-only array, expected one that may be written")


def _run(
    arrays: dict[str, Any],
    options: Options,
    gradients: dict[str, Any],
    grad_dtype: str | None,
    accumulate: bool,
    deterministic: bool,
    kernel: int,
    stream: Any,
    sequences: dict[str, Any] | None = None,
    **lengths: int,
) -> tuple[Any, ...]:
    """Check, allocate, launch, and return the gradients."""
    accumulate, deterministic = truth("accumulate", accumulate), truth("deterministic", deterministic)
    kernel = to_integer("kernel", kernel)
    handle = stream_for(stream, arrays["q"])
    optional = _optional(options, sequences or {}, handle)
    inputs = {name: _taken(array, name, handle) for name, array in arrays.items()}
    outputs = _outputs(gradients, handle)
    layouts = {name: None if x is None else x.layout for name, x in outputs.items()}
    key = (
        tuple(x.layout for x in inputs.values()), tuple(layouts.items()), optional.key, options.dropout_p,
        options.softmax_scale, options.causal, options.window_size, options.softcap, options.top_left,
        grad_dtype, accumulate, deterministic, kernel, tuple(lengths.items()),
    )  # fmt: skip
    plan = find(_plans, key)
    if plan is None:
        q, k, v, out = (inputs[name].layout for name in ("q", "k", "v", "out"))
        call = Call(q=q, k=k, v=v, out=out, options=options, arrays=optional.layouts(), **lengths)
        plan = make_bwd(
            _plans, key,
            BwdCall(
                forward=call, dout=inputs["dout"].layout, lse=inputs["lse"].layout, gradients=layouts,
                grad_dtype=grad_dtype, accumulate=accumulate, deterministic=deterministic, kernel=kernel,
            ),
        )  # fmt: skip
    for name, array in outputs.items():
        if array is not None:
            _may_be_written(name, array, handle)
    return _run_planned(plan, inputs, outputs, gradients, optional, handle)


def _run_planned(
    plan: BwdPlan,
    inputs: dict[str, _Array],
    outputs: dict[str, _Array | None],
    given: dict[str, Any],
    optional: OptionalArguments,
    handle: int,
) -> tuple[Any, ...]:
    """Allocate the arrays that were not given, launch, and return the gradients as the caller gave them."""
    results = []
    previous = enter_device(plan.device)
    try:
        addresses = {name: x.address for name, x in inputs.items()}
        if not plan.asked:
            there = {name: x.address for name, x in outputs.items() if x is not None}
            plan.ask(addresses | there, optional)
        for name, array in outputs.items():
            if array is None:
                layout = plan.gradients[name]
                array = (
                    DeviceArray.filled(layout, handle, 0.0)
                    if plan.packed
                    else DeviceArray.allocate(layout, handle)
                )
                results.append(array)
            else:
                results.append(given[name])
            addresses[name] = array.address
        workspace = None if plan.workspace is None else DeviceArray.allocate(plan.workspace, handle)
        plan.launch(addresses, 0 if workspace is None else workspace.address, optional, handle)
    finally:
        leave_device(previous)
    return tuple(results)
