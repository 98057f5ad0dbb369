# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functions of ``flash_attn_interface``, flash-attention 3's module: its arguments and results.

Names, order, defaults and results are those of its version 3.0.0, which has no dropout, ALiBi or packed k, v.
Hints for its scheduler change nothing here: `num_splits` of a call without a cache, `pack_gqa`, `sm_margin`
and `scheduler_metadata`. Arguments that no kernel here obeys are refused by name. As in
`pyfa_rocm.flash_attn`, a query that sees no key has the log-sum-exp -inf, inputs that the kernels cannot read
are copied, and autocast casts q, k and v of calls without a cache.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import torch

from pyfa_rocm._call.params import FP8
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.flash_attn._cached import attend
from pyfa_rocm.flash_attn._functions import applied, number, require_inputs
from pyfa_rocm.flash_attn._install import missing_3
from pyfa_rocm.flash_attn.flash_attn_interface import call
from pyfa_rocm.torch import flash_attn_merge, functional
from pyfa_rocm.torch._tensors import require_tensors

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]

__version__ = "3.0.0"
# So that `flash_attn_3.flash_attn_interface`, which is this module too, can be imported.
__path__: list[str] = []
flash_attn_interface = sys.modules[__name__]

_FP8 = tuple(getattr(torch, name) for name in FP8)
_MOST_SPLITS = 128


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """Attention of sequences of equal lengths.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        float16, bfloat16, or the 8-bit float that the device has.
    k : torch.Tensor, (batch, seqlen_k, nhead_k, hdim)
        nhead_q is a multiple of nhead_k.
    v : torch.Tensor, (batch, seqlen_k, nhead_k, hdim_v)
        As k.
    softmax_scale : float, optional
        Factor on the scores; ``1 / sqrt(hdim)`` by default, hdim_v counted with it if there is `qv`.
    causal : bool
        Query i sees only keys up to ``i + seqlen_k - seqlen_q``.
    qv : torch.Tensor, (batch, seqlen_q, nhead_q, hdim_v), optional
        Queries of the values, whose product with v is added to the scores. k and v are copied into one
        tensor, unless k lies behind v in one already and nothing is compiled.
    q_descale, k_descale, v_descale : torch.Tensor, float32 (batch, nhead_k), optional
        Factors on 8-bit floats, and not read with other types. The elements of each must be equal; the call
        waits for the device to know.
    window_size : (int, int)
        Keys to the left and right of that one that a query sees; -1: all.
    attention_chunk : int
        Only 0.
    softcap : float
        Above 0, scores become ``softcap * tanh(score / softcap)``.
    num_splits, pack_gqa, sm_margin
        Hints, which change nothing.
    deterministic : bool
        q's gradient has the same bits from run to run.
    return_attn_probs : bool
        Also return the log-sum-exp.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen_q, nhead_q, hdim_v)
        q's dtype; bfloat16 for 8-bit floats.
    softmax_lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q)
        With `return_attn_probs`. It may be differentiated.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `pyfa_rocm.torch.flash_attn_func`. UnsupportedError is a NotImplementedError.

    Notes
    -----
    Source: `pyfa_rocm.torch.flash_attn_func`. 8-bit floats have no gradients.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.flash_attn.flash_attn_3 import flash_attn_func
    >>> q, k, v = torch.ones(3, 1, 64, 2, 128, dtype=torch.float16)
    >>> flash_attn_func(q, k, v, causal=True).shape
    torch.Size([1, 64, 2, 128])
    """
    return _attention(
        functional.flash_attn_func, (q, k, v), (), qv, (q_descale, k_descale, v_descale), attention_chunk,
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
        deterministic=deterministic, return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """Like `flash_attn_func`, but for sequences of different lengths, packed one after the other.

    Parameters
    ----------
    q : torch.Tensor, (total_q, nhead_q, hdim)
        All queries.
    k, v : torch.Tensor, (total_k, nhead_k, hdim)
        All keys and values.
    cu_seqlens_q, cu_seqlens_k : torch.Tensor, int32 (batch + 1)
        Where each sequence starts, and the end.
    max_seqlen_q, max_seqlen_k : int
        The longest.
    seqused_q, seqused_k : torch.Tensor, optional, int32 (batch)
        Rows in use of each sequence. The others are 0 in O, and have gradients of 0.

    Returns
    -------
    out : torch.Tensor, (total_q, nhead_q, hdim_v)
        As in `flash_attn_func`.
    softmax_lse : torch.Tensor, float32 (nhead_q, total_q)
        With `return_attn_probs`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.
    """
    lengths = (cu_seqlens_q, cu_seqlens_k, number(max_seqlen_q), number(max_seqlen_k))
    return _attention(
        functional.flash_attn_varlen_func, (q, k, v), lengths, qv, (q_descale, k_descale, v_descale),
        attention_chunk, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        softcap=softcap, deterministic=deterministic, return_attn_probs=return_attn_probs,
        seqused_q=seqused_q, seqused_k=seqused_k,
    )  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:
    """Like `flash_attn_func`, but of q, k, v in one tensor.

    Parameters
    ----------
    qkv : torch.Tensor, (batch, seqlen, 3, nhead, hdim) or (batch, seqlen, nhead_q + 2 * nhead_k, hdim)
        The latter with `num_heads_q`, which is nhead_q.
    """
    require_tensors(qkv=qkv)
    if qkv.dim() == 5 and qkv.shape[2] == 3:
        q, k, v = qkv.unbind(2)
    elif qkv.dim() == 4 and num_heads_q is not None and (qkv.shape[2] - num_heads_q) % 2 == 0:
        nhead_k = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split([num_heads_q, nhead_k, nhead_k], dim=2)
    else:
        raise InvalidArgumentError(
            f"qkv: got shape {tuple(qkv.shape)} with num_heads_q {num_heads_q}, expected (batch, seqlen, 3, "
            "nhead, hdim), or (batch, seqlen, num_heads_q + 2 * nhead_k, hdim)"
        )
    scales = (q_descale, k_descale, v_descale)
    options = (softmax_scale, causal, None, *scales, window_size, attention_chunk, softcap)
    rest: dict[str, Any] = {"deterministic": deterministic, "return_attn_probs": return_attn_probs}
    return flash_attn_func(q, k, v, *options, **rest)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    qv: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: torch.Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Attention over a KV cache. With `k` and `v` the new tokens are stored first, and seen by `q`.

    There are no gradients, and the result requires none. The other arguments are those of
    `pyfa_rocm.flash_attn.flash_attn_with_kvcache`, with `page_table` for `block_table`, and of
    `flash_attn_func`.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim), or (total_q, nhead_q, hdim) with `cu_seqlens_q`
        float16, bfloat16, or the 8-bit float of the cache, which is computed with as bfloat16.
    k, v : torch.Tensor, (batch, seqlen_new, nhead_k, hdim), optional
        New keys and values; not with `qv` or `cu_seqlens_q`.
    qv : torch.Tensor, (batch, seqlen_q, nhead_q, hdim_v), optional
        As in `flash_attn_func`. With caches that are parts of one tensor, values first, this is latent
        attention, of hdim 64 and hdim_v 512, without a copy.
    cu_seqlens_q : torch.Tensor, int32 (batch + 1), optional
        Where each sequence's queries start, and the end.
    cu_seqlens_k_new, rotary_seqlens
        Not read without `k`; only None with it.
    max_seqlen_q : int, optional
        The longest of packed queries.
    q_descale, k_descale, v_descale : torch.Tensor, float32 (batch, nhead_k), optional
        Factors on 8-bit floats, of any values; not read with other types.
    scheduler_metadata
        Not read.

    Returns
    -------
    out : torch.Tensor, shaped like q, with hdim_v
        q's dtype; bfloat16 for 8-bit floats. A query that sees no key gives 0.
    softmax_lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q) or (nhead_q, total_q)
        With `return_softmax_lse`.
    out_accum, softmax_lse_accum : torch.Tensor
        With `return_softmax_lse`: of no elements.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: `pyfa_rocm.torch.flash_attn_with_kvcache`.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.flash_attn.flash_attn_3 import flash_attn_with_kvcache
    >>> k_cache, v_cache = torch.zeros(2, 2, 256, 1, 64, dtype=torch.float16)
    >>> q = torch.ones(2, 1, 4, 64, dtype=torch.float16)
    >>> lengths = torch.tensor([3, 100], dtype=torch.int32)
    >>> flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lengths).shape
    torch.Size([2, 1, 4, 64])
    """
    _require_no_chunk(attention_chunk)
    if k is not None:
        _refuse_with_new("cu_seqlens_k_new", cu_seqlens_k_new)
        _refuse_with_new("rotary_seqlens", rotary_seqlens)
        _refuse_with_new("qv", qv)
        _refuse_with_new("cu_seqlens_q", cu_seqlens_q)
    dims = "(batch, seqlen_q, nhead, hdim)" if cu_seqlens_q is None else "(total_q, nhead, hdim)"
    require_inputs(dims, q=q)
    require_inputs("(pages or batch, tokens, nhead_k, hdim)", k_cache=k_cache, v_cache=v_cache)
    if q.dtype in _FP8:
        if k_cache.dtype != q.dtype:
            raise InvalidArgumentError(f"q: got {q.dtype}, expected that of k_cache, {k_cache.dtype}")
        descales = [x for x in (q_descale, k_descale) if x is not None]
        k_descale = functools.reduce(torch.mul, descales) if descales else None
        q, qv = q.bfloat16(), None if qv is None else qv.bfloat16()
    if k_cache.dtype not in _FP8:
        k_descale = v_descale = None
    if qv is not None:
        q, k_cache, v_cache = _with_qv(q, k_cache, v_cache, qv)
    lengths = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": number(max_seqlen_q)}
    packed = {} if cu_seqlens_q is None else lengths
    out, lse = attend(
        q, k_cache, v_cache, k, v, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        softcap=softcap, rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, block_table=page_table,
        rotary_interleaved=rotary_interleaved, num_splits=min(max(num_splits, 0), _MOST_SPLITS),
        k_scale=k_descale, v_scale=v_descale, **packed,
    )  # fmt: skip
    return (out, lse, q.new_empty(0), q.new_empty(0)) if return_softmax_lse else out


def flash_attn_combine(
    out_partial: torch.Tensor,
    lse_partial: torch.Tensor,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Merge outputs of attention over disjoint parts of the keys.

    Parameters
    ----------
    out_partial : torch.Tensor, (parts, batch, seqlen, nhead, hdim_v)
        O of each part.
    lse_partial : torch.Tensor, float32 (parts, batch, seqlen, nhead)
        Log-sum-exp of each.
    out : torch.Tensor, optional, (batch, seqlen, nhead, hdim_v)
        Where to write O.
    out_dtype : torch.dtype, optional
        Of O; that of `out_partial` by default.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen, nhead, hdim_v)
        `out` if given.
    softmax_lse : torch.Tensor, float32 (batch, seqlen, nhead)
        Log-sum-exp of all parts.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: `pyfa_rocm.torch.flash_attn_merge`.
    """
    require_tensors(out_partial=out_partial, lse_partial=lse_partial)
    merged, lse = flash_attn_merge(
        out_partial.contiguous(),
        lse_partial.transpose(-1, -2).contiguous(),
        out_dtype=out_dtype if out is None or out_dtype is not None else out.dtype,
    )
    return (merged if out is None else out.copy_(merged)), lse.transpose(-1, -2)


def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads_q: int,
    num_heads_kv: int,
    headdim: int,
    cache_seqlens: torch.Tensor,
    qkv_dtype: torch.dtype = torch.bfloat16,
    headdim_v: int | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_size: int | None = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> torch.Tensor:
    """Return what `flash_attn_with_kvcache` takes as `scheduler_metadata`: one int32, which it does not read.

    The library plans a call by itself, from lengths that stay on the device.
    """
    require_tensors(cache_seqlens=cache_seqlens)
    return torch.zeros(1, dtype=torch.int32, device=cache_seqlens.device)


def _attention(
    function: Any, inputs: tuple[torch.Tensor, ...], lengths: tuple[Any, ...], qv: torch.Tensor | None,
    descales: tuple[torch.Tensor | None, ...], attention_chunk: int, **options: Any,
) -> Any:  # fmt: skip
    """Call one of `pyfa_rocm.torch`'s functions as flash-attention 3 would; return what that would."""
    _require_no_chunk(attention_chunk)
    dims = "(total, nhead, hdim)" if lengths else "(batch, seqlen, nhead, hdim)"
    require_inputs(dims, **dict(zip("qkv", inputs, strict=True)))
    if qv is not None:
        inputs = _with_qv(inputs[0], inputs[1], inputs[2], qv)
    for name, x in zip("qkv", descales, strict=True):
        if x is not None and x.numel() and inputs[0].dtype in _FP8:
            options[f"{name}_descale"] = _one_of(f"{name}_descale", x)
    result = call(function, *inputs, *lengths, dropout_p=0.0, **options)
    return result[:2] if options["return_attn_probs"] else result


def _with_qv(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, qv: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries of values and keys, the values and keys in one tensor, and the values as part of it."""
    require_tensors(qv=qv)
    if qv.shape != (*q.shape[:-1], v.shape[-1]):
        raise InvalidArgumentError(
            f"qv: got shape {tuple(qv.shape)}, expected {(*q.shape[:-1], v.shape[-1])}: q's, with hdim_v"
        )
    hdim_v = v.shape[-1]
    keys = _in_one(v, k)
    return torch.cat([qv, q], -1), keys, keys[..., :hdim_v]


def _in_one(v: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return v and k behind one another: the tensor whose parts they are, or a copy."""
    if not torch.compiler.is_compiling() and not (k.requires_grad or v.requires_grad):  # compiled: no address
        same = k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()
        behind = same and k.storage_offset() == v.storage_offset() + v.shape[-1]
        if behind and k.dtype == v.dtype and k.stride() == v.stride() and k.shape[:-1] == v.shape[:-1]:
            return v.as_strided((*v.shape[:-1], v.shape[-1] + k.shape[-1]), v.stride())
    return torch.cat([v, k], -1)


def _one_of(name: str, x: torch.Tensor) -> float:
    """Return the number that all elements of the scales of an 8-bit float are."""
    require_tensors(**{name: x})
    low, high = x.aminmax()
    if low != high:
        raise UnsupportedError(
            f"{name}: got values from {low.item():g} to {high.item():g}, expected equal ones: only a cache's "
            "may differ, in flash_attn_with_kvcache"
        )
    return float(low)


def _require_no_chunk(attention_chunk: int) -> None:
    if attention_chunk:
        raise UnsupportedError(
            f"attention_chunk: got {attention_chunk}, expected 0: no kernel has chunks; give each chunk to "
            "flash_attn_varlen_func as a sequence"
        )


def _refuse_with_new(name: str, x: Any) -> None:
    if x is not None:
        raise UnsupportedError(
            f"{name}: got a tensor with k, expected None: store the new tokens by "
            "pyfa_rocm.torch.flash_attn_kv_append first, and attend without them"
        )


# flash-attention 3's autograd functions, for those who call their `apply`.
FlashAttnFunc = applied("FlashAttnFunc", flash_attn_func)
FlashAttnQKVPackedFunc = applied("FlashAttnQKVPackedFunc", flash_attn_qkvpacked_func)


def __getattr__(name: str) -> Any:
    if name in ("_flash_attn_forward", "_flash_attn_backward"):  # of a module that imports this one
        return getattr(importlib.import_module("pyfa_rocm.flash_attn._private_3"), name)
    raise AttributeError(missing_3(name))
