# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_bwd` and `flash_attn_varlen_bwd`: the gradients of attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import bias_strides, check, lse_strides, params_of, require_like, strided
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import FwdParams, Options
from pyfa_rocm._runtime.tensor import Tensor, as_tensor, contiguous
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import enter_device, leave_device, stream_for
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.fmha import fmha_bwd, fmha_bwd_workspace_bytes

__all__ = ["flash_attn_bwd", "flash_attn_varlen_bwd"]

_Array = DeviceArray | Tensor


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
        As they were given to `flash_attn_func`: float16 or bfloat16, head dims up to 256.
    out, lse : array
        What it returned with ``return_lse=True``; or O and LSE of several passes over parts of the keys,
        merged, of which the gradients of any part may be asked for, as ring attention does.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, bias, top_left, philox
        As they were given to `flash_attn_func`.
    deterministic : bool
        Whether dQ has the same bits from run to run. It takes up to 8 times the workspace, and is slower.
    dq, dk, dv : array, optional
        Where to write the gradients: shaped like q, k and v, all of the same dtype, in any layout that those
        may have, without overlaps. By default new DeviceArrays.
    dbias : array or True, optional
        Where to write the gradient of the bias, which is its sum where the bias is broadcast: shaped like
        `bias`, of the same dtype as the others. True: a new DeviceArray. By default it is not computed.
    grad_dtype : str, optional
        Of new arrays: q's by default, or "float32".
    accumulate : bool
        Whether the gradients are added to what `dq`, `dk`, `dv` and `dbias` hold, which must be given.
    kernel : int
        0: the library's choice; n: the n-th of the kernels that can do this (`fmha_bwd_kernel` says which).
    stream : object, optional
        As in `flash_attn_func`.

    Returns
    -------
    dq, dk, dv : array
        `dq`, `dk` and `dv` themselves if given, and `dbias` as the fourth if asked for. Rows that see no key, and keys that no row sees, have 0.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    The call returns when the work is enqueued. The workspace is allocated here; `fmha_bwd` takes one.
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
        As in `flash_attn_bwd`, packed as `flash_attn_varlen_func` has them.
    lse : array, float32 (nhead_q, total_q)
        As it returned it.
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k
        As they were given to `flash_attn_varlen_func`. Rows beyond seqused have gradient 0.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, bias, top_left, philox
        As in `flash_attn_bwd`.
    deterministic, dq, dk, dv, dbias, grad_dtype, accumulate, kernel, stream
        As in `flash_attn_bwd`.

    Returns
    -------
    dq, dk, dv : array
        As in `flash_attn_bwd`, and `dbias` as the fourth if asked for.

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
        "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_q": seqused_q,
        "seqused_k": seqused_k,
    }  # fmt: skip
    return _run(
        {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}, options,
        {"dq": dq, "dk": dk, "dv": dv, "dbias": dbias}, grad_dtype, accumulate, deterministic, kernel, stream, sequences,
        max_seqlen_q=to_integer("max_seqlen_q", max_seqlen_q),
        max_seqlen_k=to_integer("max_seqlen_k", max_seqlen_k),
    )  # fmt: skip


def _optional(options: Options, sequences: dict[str, Any], handle: int) -> OptionalArguments:
    optional = OptionalArguments(handle)
    optional.add("alibi_slopes", options.alibi_slopes)
    optional.add("bias", options.bias)
    if options.dropout_p:
        optional.add_philox(options.philox)
    for name, array in sequences.items():
        optional.add(name, array)
    return optional


def _taken(array: Any, name: str, handle: int) -> _Array:
    """Return an array of any library as one with address and layout, in use on the stream."""
    if type(array) is DeviceArray:
        array.mark_used(handle)
        return array
    return as_tensor(array, name, handle)


class _Gradients:
    """Where the gradients go: what the caller gave, as it gave it, and what is written."""

    def __init__(
        self, handle: int, given: dict[str, Any], grad_dtype: str | None, accumulate: bool, call: Call
    ) -> None:
        self.accumulate = bool(accumulate)
        self.given = given
        self.arrays: dict[str, _Array] = {}
        shapes = {"dq": call.q.shape, "dk": call.k.shape, "dv": call.v.shape}
        if given["dbias"] is None or given["dbias"] is False:
            del given["dbias"]
        elif "bias" not in call.arrays:
            raise InvalidArgumentError("dbias: got a gradient to compute, expected None without bias")
        else:
            shapes["dbias"] = call.arrays["bias"].shape
        taken = {name: _taken(x, name, handle) for name, x in given.items() if x is not None and x is not True}
        if accumulate and len(taken) < len(shapes):
            missing = next(name for name in shapes if name not in taken)
            raise InvalidArgumentError(f"{missing}: got {given[missing]}, expected an array to accumulate in")
        self.dtype = next(iter(taken.values())).layout.dtype if taken else grad_dtype or call.q.dtype
        if self.dtype not in (call.q.dtype, "float32"):
            name = next(iter(taken), "grad_dtype")
            raise InvalidArgumentError(f"{name}: got dtype {self.dtype}, expected {call.q.dtype} or float32")
        if grad_dtype not in (None, self.dtype):
            raise InvalidArgumentError(f"grad_dtype: got {grad_dtype!r}, expected None or {self.dtype} as dq")
        for name, shape in shapes.items():
            array = taken.get(name)
            if array is not None:
                require_like(name, array.layout, shape, self.dtype, name[1:], call.q)
                self._may_be_written(name, array, handle)
                self.arrays[name] = array
        self.shapes = shapes
        self.device = call.q.device

    @staticmethod
    def _may_be_written(name: str, array: _Array, handle: int) -> None:
        if isinstance(array, DeviceArray):
            array.mark_written(handle)
        elif array.readonly:
            raise InvalidArgumentError(f"{name}: got a read-only array, expected one that may be written")

    def layout(self, name: str) -> Any:
        """Return the layout of a gradient, that is given or to be allocated."""
        if name in self.arrays:
            return self.arrays[name].layout
        return contiguous(self.shapes[name], self.dtype, self.device)

    def allocate(self, handle: int) -> None:
        """Allocate what was not given."""
        for name in self.shapes:
            if name not in self.arrays:
                array = DeviceArray.allocate(self.layout(name), handle)
                self.arrays[name] = self.given[name] = array


def _forward_params(call: Call, inputs: dict[str, _Array], optional: OptionalArguments) -> FwdParams:
    """Return the forward call's parameters with all addresses."""
    checked = check(call)
    params, o, _ = params_of(call, checked)
    require_like("dout", inputs["dout"].layout, checked.o, o.dtype, "out", call.q)
    require_like("lse", inputs["lse"].layout, checked.lse, "float32", "q", call.q)
    lse = inputs["lse"]
    return replace(
        params, q=params.q._replace(data=inputs["q"].address), k=params.k._replace(data=inputs["k"].address),
        v=params.v._replace(data=inputs["v"].address), o=params.o._replace(data=inputs["out"].address),
        lse=lse_strides(lse.layout)._replace(data=lse.address), **optional.fields(params),
    )  # fmt: skip


def _run(
    arrays: dict[str, Any], options: Options, gradients: dict[str, Any], grad_dtype: str | None,
    accumulate: bool, deterministic: bool, kernel: int, stream: Any,
    sequences: dict[str, Any] | None = None, **lengths: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Check, allocate, launch, and return the gradients."""
    handle = stream_for(stream, arrays["q"])
    optional = _optional(options, sequences or {}, handle)
    inputs = {name: _taken(array, name, handle) for name, array in arrays.items()}
    q, k, v, out = (inputs[name].layout for name in ("q", "k", "v", "out"))
    call = Call(q=q, k=k, v=v, out=out, options=options, arrays=optional.layouts(), **lengths)
    grads = _Gradients(handle, gradients, grad_dtype, accumulate, call)
    dout = inputs["dout"]
    params = BwdParams(
        fwd=_forward_params(call, inputs, optional), dout=strided(dout.layout)._replace(data=dout.address),
        dq=strided(grads.layout("dq")), dk=strided(grads.layout("dk")), dv=strided(grads.layout("dv")),
        grad_dtype=grads.dtype, accumulate=grads.accumulate, deterministic=bool(deterministic), kernel=kernel,
        dbias=bias_strides(grads.layout("dbias")) if "dbias" in grads.given else None,
    )  # fmt: skip
    previous = enter_device(call.q.device)
    try:
        grads.allocate(handle)
        for name, array in grads.arrays.items():
            setattr(params, name, getattr(params, name)._replace(data=array.address))
        nbytes = fmha_bwd_workspace_bytes(params)
        if nbytes:
            workspace = DeviceArray.allocate(contiguous((nbytes,), "uint8", call.q.device), handle)
            params.workspace, params.workspace_bytes = workspace.address, nbytes
        fmha_bwd(params, handle)
    finally:
        leave_device(previous)
    return tuple(grads.given.values())
