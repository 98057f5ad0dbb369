# SPDX-License-Identifier: MIT OR Apache-2.0
"""The packed forms: q, k, v, or k and v, are views of one array. Nothing is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyfa_rocm._call.keywords import spelled_out
from pyfa_rocm._call.params import DTYPES, Keywords
from pyfa_rocm._runtime.tensor import Layout, Tensor, as_tensor, layout_of
from pyfa_rocm.array import dtype_of
from pyfa_rocm.attention import flash_attn_func
from pyfa_rocm.device import stream_for
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.varlen import flash_attn_varlen_func

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
]


# Layout of a part, and bytes from one part to the next, by the whole's layout and dimensions.
_parts: dict[tuple[Layout, str], tuple[Layout, int]] = {}
_MOST_PARTS = 1024


def _part(whole: Layout, names: str, dims: str) -> tuple[Layout, int]:
    """Check a packed array and work out its parts."""
    expected = dims.strip("()").split(", ")
    axis = expected.index(str(len(names)))
    if len(whole.shape) != len(expected) or whole.shape[axis] != len(names):
        raise InvalidArgumentError(f"{names}: got shape {whole.shape}, expected {dims}")
    shape = whole.shape[:axis] + whole.shape[axis + 1 :]
    strides = whole.strides[:axis] + whole.strides[axis + 1 :]
    if whole.dtype not in DTYPES:
        raise UnsupportedError(f"{names}: got dtype {whole.dtype}, expected one of {', '.join(DTYPES)}")
    step = whole.strides[axis] * dtype_of(whole.dtype).itemsize
    if len(_parts) >= _MOST_PARTS:
        _parts.clear()
    part = _parts[whole, dims] = layout_of(shape, strides, whole.dtype, whole.device), step
    return part


def _unpack(packed: Any, names: str, dims: str, stream: int) -> list[Tensor]:
    """Return the parts of a packed array. `dims` names its dimensions, including the number of parts."""
    whole = as_tensor(packed, names, stream)
    data, whole_layout, readonly, owner = whole
    layout, step = _parts.get((whole_layout, dims)) or _part(whole_layout, names, dims)
    return [Tensor(data + i * step, layout, readonly, owner) for i in range(len(names))]


@spelled_out
def flash_attn_qkvpacked_func(
    qkv: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `flash_attn_func`, but with q, k and v in one array.

    Parameters
    ----------
    qkv : array, (batch, seqlen, 3, nhead, hdim)
        q, k and v, in this order.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
        As in `flash_attn_func`.
    **ours
        The keyword-only arguments of `flash_attn_func`.

    Returns
    -------
    out, lse, S_dmask
        As `flash_attn_func`: out is (batch, seqlen, nhead, hdim).

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: `flash_attn_func` on the views ``qkv[:, :, 0]``, ``qkv[:, :, 1]``, ``qkv[:, :, 2]``.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_qkvpacked_func
    >>> qkv = DeviceArray.from_numpy(np.ones((1, 64, 3, 2, 128), np.float16))
    >>> flash_attn_qkvpacked_func(qkv, causal=True).to_numpy().shape
    (1, 64, 2, 128)
    """
    handle = stream_for(stream, qkv)
    q, k, v = _unpack(qkv, "qkv", "(batch, seqlen, 3, nhead, hdim)", handle)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    return flash_attn_func(q, k, v, *options, return_attn_probs, out=out, stream=handle, **ours)


@spelled_out
def flash_attn_kvpacked_func(
    q: Any,
    kv: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `flash_attn_func`, but with k and v in one array.

    Parameters
    ----------
    q : array, (batch, seqlen_q, nhead_q, hdim)
        As in `flash_attn_func`.
    kv : array, (batch, seqlen_k, 2, nhead_k, hdim)
        k and v, in this order.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
        As in `flash_attn_func`.
    **ours
        The keyword-only arguments of `flash_attn_func`.

    Returns
    -------
    out, lse, S_dmask
        As `flash_attn_func`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: `flash_attn_func` on the views ``kv[:, :, 0]`` and ``kv[:, :, 1]``.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_kvpacked_func
    >>> q = DeviceArray.from_numpy(np.ones((1, 64, 4, 128), np.float16))
    >>> kv = DeviceArray.from_numpy(np.ones((1, 100, 2, 1, 128), np.float16))
    >>> flash_attn_kvpacked_func(q, kv, causal=True).to_numpy().shape
    (1, 64, 4, 128)
    """
    handle = stream_for(stream, q)
    k, v = _unpack(kv, "kv", "(batch, seqlen, 2, nhead, hdim)", handle)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    return flash_attn_func(q, k, v, *options, return_attn_probs, out=out, stream=handle, **ours)


@spelled_out
def flash_attn_varlen_qkvpacked_func(
    qkv: Any,
    cu_seqlens: Any,
    max_seqlen: int,
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
    out: Any = None,
    stream: Any = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `flash_attn_varlen_func`, but with q, k and v in one array, so with the same lengths.

    Parameters
    ----------
    qkv : array, (total, 3, nhead, hdim)
        q, k and v, in this order.
    cu_seqlens : array, int32 (batch + 1)
        Where each sequence starts, and the end.
    max_seqlen : int
        Upper bound of the lengths.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
        As in `flash_attn_varlen_func`.
    **ours
        The keyword-only arguments of `flash_attn_varlen_func`.

    Returns
    -------
    out, lse, S_dmask
        As `flash_attn_varlen_func`: out is (total, nhead, hdim).

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_varlen_func`; cu_seqlens and max_seqlen are cu_seqlens_q and max_seqlen_q there.

    Notes
    -----
    Source: `flash_attn_varlen_func` on the views ``qkv[:, 0]``, ``qkv[:, 1]``, ``qkv[:, 2]``.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_varlen_qkvpacked_func
    >>> qkv = DeviceArray.from_numpy(np.ones((100, 3, 2, 128), np.float16))
    >>> cu_seqlens = DeviceArray.from_numpy(np.array([0, 30, 100], np.int32))
    >>> flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, 70).to_numpy().shape
    (100, 2, 128)
    """
    handle = stream_for(stream, qkv)
    q, k, v = _unpack(qkv, "qkv", "(total, 3, nhead, hdim)", handle)
    lengths = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    options = (*lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    given: dict[str, Any] = {"seqused_q": seqused_q, "seqused_k": seqused_k, "out": out, "stream": handle}
    return flash_attn_varlen_func(q, k, v, *options, deterministic, return_attn_probs, **given, **ours)


@spelled_out
def flash_attn_varlen_kvpacked_func(
    q: Any,
    kv: Any,
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
    out: Any = None,
    stream: Any = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `flash_attn_varlen_func`, but with k and v in one array.

    Parameters
    ----------
    q : array, (total_q, nhead_q, hdim)
        As in `flash_attn_varlen_func`.
    kv : array, (total_k, 2, nhead_k, hdim)
        k and v, in this order.
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
        As in `flash_attn_varlen_func`.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
        As in `flash_attn_varlen_func`.
    **ours
        The keyword-only arguments of `flash_attn_varlen_func`.

    Returns
    -------
    out, lse, S_dmask
        As `flash_attn_varlen_func`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_varlen_func`.

    Notes
    -----
    Source: `flash_attn_varlen_func` on the views ``kv[:, 0]`` and ``kv[:, 1]``.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_varlen_kvpacked_func
    >>> q = DeviceArray.from_numpy(np.ones((100, 2, 128), np.float16))
    >>> kv = DeviceArray.from_numpy(np.ones((60, 2, 2, 128), np.float16))
    >>> starts = [DeviceArray.from_numpy(np.array(n, np.int32)) for n in ([0, 30, 100], [0, 40, 60])]
    >>> flash_attn_varlen_kvpacked_func(q, kv, *starts, 70, 40).to_numpy().shape
    (100, 2, 128)
    """
    handle = stream_for(stream, q)
    k, v = _unpack(kv, "kv", "(total, 2, nhead, hdim)", handle)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = (*lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    given: dict[str, Any] = {"seqused_q": seqused_q, "seqused_k": seqused_k, "out": out, "stream": handle}
    return flash_attn_varlen_func(q, k, v, *options, deterministic, return_attn_probs, **given, **ours)
