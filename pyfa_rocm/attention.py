# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention: `flash_attn_func` on arrays, and below it `fmha_fwd` on raw device pointers."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from pyfa_rocm import _hip, _lib
from pyfa_rocm._tensor import Tensor, as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import stream_handle, use_device
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError, check

__all__ = [
    "FwdParams",
    "KernelInfo",
    "Lse",
    "Strided",
    "flash_attn_func",
    "fmha_fwd",
    "fmha_fwd_kernel",
    "fmha_fwd_supported",
    "fmha_prepare",
]

_INT32_MAX = 2**31 - 1
_DTYPES = {"float16": "FMHA_FP16", "bfloat16": "FMHA_BF16"}
_MASKS = {
    "none": "FMHA_MASK_NONE",
    "causal": "FMHA_MASK_CAUSAL",
    "causal_top_left": "FMHA_MASK_CAUSAL_TOP_LEFT",
    "window": "FMHA_MASK_WINDOW",
}


class Strided(NamedTuple):
    """A (batch, seqlen, nhead, hdim) tensor: device address, and strides in elements (hdim's is 1)."""

    data: int
    stride_batch: int
    stride_seqlen: int
    stride_head: int


class Lse(NamedTuple):
    """A float32 (batch, nhead_q, seqlen_q) tensor: device address, and strides in elements."""

    data: int
    stride_batch: int
    stride_head: int


@dataclass(slots=True)
class FwdParams:
    """Arguments of a forward pass: ``fmha_fwd_params`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    dtype : str
        "float16" or "bfloat16", of q, k, v and o.
    batch, seqlen_q, seqlen_k, nhead_q, nhead_k, hdim_q, hdim_v : int
        Sizes.
    softmax_scale : float
        Factor on the scores.
    q, k, v, o : Strided
        The tensors.
    lse : Lse, optional
        Where to store the log-sum-exp; None: not wanted.
    mask : {"none", "causal", "causal_top_left", "window"}
        Which keys a query sees; "causal" and "window" are aligned bottom-right.
    window_left, window_right : int
        Keys to the left and right of a query's own column, seqlen_k or more being unlimited; read for
        "window" alone.
    """

    dtype: str
    batch: int
    seqlen_q: int
    seqlen_k: int
    nhead_q: int
    nhead_k: int
    hdim_q: int
    hdim_v: int
    softmax_scale: float
    q: Strided
    k: Strided
    v: Strided
    o: Strided
    lse: Lse | None = None
    mask: str = "none"
    window_left: int = 0
    window_right: int = 0


class KernelInfo(NamedTuple):
    """The kernel a call would run, and what it uses: ``fmha_kernel_info`` of fmha_rocm.h."""

    vgpr_count: int
    sgpr_count: int
    scratch_bytes: int
    lds_bytes: int
    block_size: int
    tile_m: int
    tile_n: int
    grid: tuple[int, int, int]
    name: str
    arch: str
    sha256: str


_TENSORS = ("q", "k", "v", "o")


@functools.cache
def _constants() -> dict[str, int]:
    """Values of the C constants behind the names used here, "float16" or "causal" say."""
    _, lib = _lib.load()
    return {name: int(getattr(lib, constant)) for name, constant in (_DTYPES | _MASKS).items()}


def _to_c(ffi: Any, p: FwdParams) -> Any:
    """Return an fmha_fwd_params. One initialiser, since this is on the path of every call."""
    constants = _constants()
    try:
        return ffi.new("fmha_fwd_params *", (
            ffi.sizeof("fmha_fwd_params"), constants[p.dtype], p.batch, p.seqlen_q, p.seqlen_k, p.nhead_q,
            p.nhead_k, p.hdim_q, p.hdim_v, p.softmax_scale, constants[p.mask], p.window_left, p.window_right,
            (ffi.cast("void *", p.q[0]), *p.q[1:]),
            (ffi.cast("void *", p.k[0]), *p.k[1:]),
            (ffi.cast("void *", p.v[0]), *p.v[1:]),
            (ffi.cast("void *", p.o[0]), *p.o[1:]),
            (ffi.cast("float *", p.lse[0]), *p.lse[1:]) if p.lse is not None else (ffi.NULL, 0, 0),
        ))  # fmt: skip
    except (KeyError, OverflowError, TypeError, IndexError) as error:
        raise _bad_field(ffi, p) from error


def _bad_field(ffi: Any, p: FwdParams) -> InvalidArgumentError:
    """Find the field that a C struct cannot hold, and say so."""
    for name, names in (("dtype", _DTYPES), ("mask", _MASKS)):
        if getattr(p, name) not in names:
            got = getattr(p, name)
            return InvalidArgumentError(f"{name}: got {got!r}, expected one of {', '.join(names)}")
    c = ffi.new("fmha_fwd_params *")
    for field in fields(p):
        value = getattr(p, field.name)
        try:
            if field.name in (*_TENSORS, "lse"):
                pointer = "float *" if field.name == "lse" else "void *"
                setattr(c, field.name, (ffi.cast(pointer, value[0]), *value[1:]))
            elif field.name not in ("dtype", "mask"):
                setattr(c, field.name, value)
        except (OverflowError, TypeError, IndexError) as error:
            return InvalidArgumentError(
                f"{field.name}: got {value!r}, expected a value of the C field ({error})"
            )
    return InvalidArgumentError(f"params: got {p!r}, expected values of the C struct")


def fmha_fwd(params: FwdParams, stream: int = 0) -> None:
    """Enqueue a forward pass on raw device pointers; returns at once.

    Parameters
    ----------
    params : FwdParams
        What to compute. The memory must stay valid until the stream has got there.
    stream : int
        The hipStream_t, 0 being the null stream. It and the memory belong to the thread's current device.

    Raises
    ------
    InvalidArgumentError, UnsupportedError, HipError
        Nothing was launched and nothing written; the message names argument, got, expected.

    Notes
    -----
    Source: ``fmha_fwd`` of native/include/fmha_rocm.h.
    """
    _hip.runtime()
    ffi, lib = _lib.load()
    check(lib.fmha_fwd(_to_c(ffi, params), ffi.cast("void *", stream)))


def fmha_fwd_supported(params: FwdParams) -> None:
    """Raise what `fmha_fwd` would raise on the current device. Addresses may be 0: then they are not read."""
    _hip.runtime()
    ffi, lib = _lib.load()
    check(lib.fmha_fwd_supported(_to_c(ffi, params)))


def fmha_fwd_kernel(params: FwdParams) -> KernelInfo:
    """Return the kernel that `fmha_fwd` would run; else as `fmha_fwd_supported`."""
    _hip.runtime()
    ffi, lib = _lib.load()
    info = ffi.new("fmha_kernel_info *")
    info.struct_size = ffi.sizeof("fmha_kernel_info")
    check(lib.fmha_fwd_kernel(_to_c(ffi, params), info))
    values: dict[str, Any] = {name: getattr(info, name) for name in KernelInfo._fields}
    values["grid"] = tuple(info.grid)
    for name in ("name", "arch", "sha256"):
        values[name] = ffi.string(values[name]).decode()
    return KernelInfo(**values)


def fmha_prepare(params: FwdParams) -> None:
    """Load the kernel of a problem onto the current device.

    The next `fmha_fwd` of the kind then only launches, which is legal while its stream is being captured
    into a graph. Raises as `fmha_fwd_supported`.
    """
    _hip.runtime()
    ffi, lib = _lib.load()
    check(lib.fmha_prepare(_to_c(ffi, params)))


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    return_lse: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Attention, O = softmax(softmax_scale * Q K^T, masked) V, with flash-attention's shapes and meaning.

    Parameters
    ----------
    q : array, (batch, seqlen_q, nhead_q, hdim)
        Float16 or bfloat16 on a ROCm device: a DeviceArray, or anything with ``__dlpack__`` or
        ``__cuda_array_interface__``. Any layout whose last dimension is contiguous and whose other strides
        are multiples of 8 elements.
    k, v : array, (batch, seqlen_k, nhead_k, hdim)
        As q. nhead_q is a multiple of nhead_k: query head h reads key head ``h // (nhead_q // nhead_k)``.
    softmax_scale : float, optional
        Factor on the scores; ``1 / sqrt(hdim)`` by default.
    causal : bool
        Query row i sees key columns up to ``i + seqlen_k - seqlen_q`` (aligned bottom-right).
    window_size : (int, int)
        Keys to the left and right of that column that a query sees; negative, or seqlen_k or more, means
        unlimited. With `causal` the right side is 0.
    return_lse : bool
        Whether to return the log-sum-exp too.
    out : array, optional
        Where to write O: shape, dtype and device as O's, layout as q's. Not overlapping q, k or v.
    stream : object, optional
        A hipStream_t as an integer, or a stream of pyfa_rocm, torch, CuPy or hip-python; None is the null
        stream.

    Returns
    -------
    out : array, (batch, seqlen_q, nhead_q, hdim)
        `out` itself if given. Else a new DeviceArray, whatever q is: frameworks take it without a copy
        through DLPack (``torch.from_dlpack(out)``).
    lse : DeviceArray, float32 (batch, nhead_q, seqlen_q)
        Natural logarithm; with `return_lse` alone.

    Raises
    ------
    TypeError
        An argument is no array (or stream).
    InvalidArgumentError
        Arguments make no sense, alone or together; nothing was written.
    UnsupportedError
        They make sense, but no kernel here does it: the message says what would work.
    HipError
        The HIP runtime refused.

    Notes
    -----
    The call returns when the work is enqueued. A query row that sees no key gives O = 0 and LSE = -inf.
    Source: ``fmha_fwd`` of native/include/fmha_rocm.h and native/kernels/fwd.hip.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_func
    >>> q, k, v = (DeviceArray.from_numpy(np.ones((1, 64, 2, 128), np.float16)) for _ in range(3))
    >>> flash_attn_func(q, k, v, causal=True).to_numpy().shape
    (1, 64, 2, 128)
    """
    _hip.runtime()
    handle = stream_handle(stream)
    tq, tk, tv = as_tensor(q, "q", handle), as_tensor(k, "k", handle), as_tensor(v, "v", handle)
    _check_inputs(tq, tk, tv)
    batch, seqlen_q, nhead_q, hdim = tq.shape
    seqlen_k, hdim_v = tk.shape[1], tv.shape[3]
    o_shape = (batch, seqlen_q, nhead_q, hdim_v)
    mask, left, right = _mask(causal, window_size)
    with use_device(tq.device):
        if out is None:
            out = DeviceArray.empty(o_shape, tq.dtype, tq.device)
        to = as_tensor(out, "out", handle)
        _check_out(to, o_shape, tq)
        lse = DeviceArray.empty((batch, nhead_q, seqlen_q), "float32", tq.device) if return_lse else None
        params = FwdParams(
            dtype=tq.dtype, batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_q=nhead_q,
            nhead_k=tk.shape[2], hdim_q=hdim, hdim_v=hdim_v, softmax_scale=_scale(softmax_scale, hdim),
            q=_strided(tq), k=_strided(tk), v=_strided(tv), o=_strided(to),
            lse=Lse(lse.data, *lse.strides[:2]) if lse is not None else None,
            mask=mask, window_left=left, window_right=right,
        )  # fmt: skip
        fmha_fwd(params, handle)
    for written in (out, lse):
        if isinstance(written, DeviceArray):
            written.mark_written(handle)
    return (out, lse) if return_lse else out


def _strided(tensor: Tensor) -> Strided:
    return Strided(tensor.data, *tensor.strides[:3])


def _scale(softmax_scale: float | None, hdim: int) -> float:
    if softmax_scale is not None:
        return float(softmax_scale)
    return 1.0 / math.sqrt(hdim) if hdim else 1.0


def _mask(causal: bool, window_size: tuple[int, int]) -> tuple[str, int, int]:
    """Return mask and window of the C call for flash-attention's pair of arguments."""
    try:
        left, right = (int(side) for side in window_size)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"window_size: got {window_size!r}, expected two integers") from error
    if causal:
        right = 0
    if left < 0 and right < 0:
        return "none", 0, 0
    if left < 0 and right == 0:
        return "causal", 0, 0
    return "window", left if left >= 0 else _INT32_MAX, right if right >= 0 else _INT32_MAX


def _check_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if len(tensor.shape) != 4:
            raise InvalidArgumentError(
                f"{name}: got shape {tensor.shape}, expected 4 dimensions (batch, seqlen, nhead, hdim)"
            )
        if tensor.dtype != q.dtype:
            raise InvalidArgumentError(f"{name}: got dtype {tensor.dtype}, expected {q.dtype} as q")
        if tensor.device != q.device:
            raise InvalidArgumentError(f"{name}: got device {tensor.device}, expected {q.device} as q")
        _check_last_stride(name, tensor)
    if q.dtype not in _DTYPES:
        raise UnsupportedError(f"q: got dtype {q.dtype}, expected one of {', '.join(_DTYPES)}")
    _check_shape("k", k.shape, (q.shape[0], k.shape[1], k.shape[2], q.shape[3]), "q")
    _check_shape("v", v.shape, (*k.shape[:3], v.shape[3]), "k")


def _check_shape(name: str, got: tuple[int, ...], expected: tuple[int, ...], other: str) -> None:
    if got != expected:
        raise InvalidArgumentError(f"{name}: got shape {got}, expected {expected} to fit {other}")


def _check_last_stride(name: str, tensor: Tensor) -> None:
    if tensor.shape[3] > 1 and tensor.strides[3] != 1:
        raise InvalidArgumentError(
            f"{name}: got stride {tensor.strides[3]} in the last dimension, expected 1 (contiguous)"
        )


def _check_out(out: Tensor, shape: tuple[int, ...], q: Tensor) -> None:
    if out.shape != shape:
        raise InvalidArgumentError(f"out: got shape {out.shape}, expected {shape}")
    if out.dtype != q.dtype:
        raise InvalidArgumentError(f"out: got dtype {out.dtype}, expected {q.dtype} as q")
    if out.device != q.device:
        raise InvalidArgumentError(f"out: got device {out.device}, expected {q.device} as q")
    if out.readonly:
        raise InvalidArgumentError("out: got a read-only array, expected one that may be written")
    _check_last_stride("out", out)
