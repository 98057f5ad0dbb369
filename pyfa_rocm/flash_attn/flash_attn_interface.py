# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functions of ``flash_attn.flash_attn_interface``: its arguments and results over `pyfa_rocm.torch`.

flash-attn's documentation of them holds, with these differences. A query that sees no
key has the log-sum-exp -inf, as on flash-attn's own ROCm backend. The probabilities, for tests, are right.
Gradients are of q, k and v, or of the tensor that they are packed in.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from pyfa_rocm._call.numbers import positive_scale
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.flash_attn import flash_attn_2_cuda as flash_attn_gpu
from pyfa_rocm.flash_attn._cached import attend, attend_packed, without_gradient
from pyfa_rocm.flash_attn._functions import applied, number, require_inputs
from pyfa_rocm.flash_attn._install import missing
from pyfa_rocm.flash_attn._private import (
    _flash_attn_backward as _flash_attn_backward,
)
from pyfa_rocm.flash_attn._private import (
    _flash_attn_forward as _flash_attn_forward,
)
from pyfa_rocm.flash_attn._private import (
    _flash_attn_varlen_backward as _flash_attn_varlen_backward,
)
from pyfa_rocm.flash_attn._private import (
    _flash_attn_varlen_forward as _flash_attn_varlen_forward,
)
from pyfa_rocm.flash_attn._private import (
    _wrapped_flash_attn_backward as _wrapped_flash_attn_backward,
)
from pyfa_rocm.flash_attn._private import (
    _wrapped_flash_attn_forward as _wrapped_flash_attn_forward,
)
from pyfa_rocm.flash_attn._private import (
    _wrapped_flash_attn_varlen_backward as _wrapped_flash_attn_varlen_backward,
)
from pyfa_rocm.flash_attn._private import (
    _wrapped_flash_attn_varlen_forward as _wrapped_flash_attn_varlen_forward,
)
from pyfa_rocm.torch import functional
from pyfa_rocm.torch._copies import readable
from pyfa_rocm.torch._tensors import autocast, real

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]

# Programs import this from flash-attn: there is no backend in Triton.
USE_TRITON_ROCM = False

# So that `from ... import` of what is missing asks the finder of `install`, which says what there is.
__path__: list[str] = []


def maybe_contiguous(x: torch.Tensor | None) -> torch.Tensor | None:
    """Return a tensor with a contiguous last dimension: itself, or a copy."""
    return x.contiguous() if x is not None and x.stride(-1) != 1 else x


def round_multiple(x: int, m: int) -> int:
    """Return the next multiple of m."""
    return -(-x // m) * m


def _get_block_size_n(device: Any, head_dim: int, is_dropout: bool, is_causal: bool) -> int:
    """Return what the columns of S_dmask are padded to. It has no tiles of keys to be put in order."""
    return flash_attn_gpu.S_DMASK_MULTIPLE


def _unpacked(packed: Any, name: str, dim: int) -> Any:
    """Return the tensors that are one behind the other in a dimension of `packed`: as many as `name` says."""
    dims = f"(batch, seqlen, {len(name)}, nhead, hdim)" if dim == 2 else f"(total, {len(name)}, nhead, hdim)"
    require_inputs(dims, **{name: packed})
    if packed.shape[dim] != len(name):
        raise InvalidArgumentError(f"{name}: got shape {tuple(packed.shape)}, expected {dims}")
    return packed.unbind(dim)


def call(
    function: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *lengths: Any,
    dropout_p: float,
    softmax_scale: float | None,
    softcap: float,
    return_attn_probs: bool,
    **options: Any,
) -> Any:
    """Call one of `pyfa_rocm.torch`'s functions as flash-attn would, and return what flash-attn would."""
    dims = "(total, nhead, hdim)" if lengths else "(batch, seqlen, nhead, hdim)"
    require_inputs(dims, q=q, k=k, v=v)
    q, k, v = autocast(q, k, v)
    hdim_v = v.shape[-1]
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else real("softmax_scale", softmax_scale)
    q, scale = positive_scale(q, scale)
    options |= {"softcap": max(real("softcap", softcap), 0.0), "return_lse": return_attn_probs}
    # Random numbers make probabilities worth looking at: without dropout flash-attn returns none.
    with_probabilities = return_attn_probs and real("dropout_p", dropout_p) > 0
    if with_probabilities:
        options["philox"] = flash_attn_gpu.drawn_state(q.device)
        options["return_attn_probs"] = True
    result = function(readable(q), readable(k), readable(v), *lengths, dropout_p, scale, **options)
    if not return_attn_probs:
        return result[..., :hdim_v]
    out, lse, *s_dmask = result
    probabilities = flash_attn_gpu.padded_s_dmask(s_dmask[0], q.dtype) if s_dmask else q.new_empty(0)
    return out[..., :hdim_v], lse, probabilities


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Attention of sequences of equal lengths.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        float16 or bfloat16; on a ROCm device, or on the CPU if the software device is in use. Under autocast,
        q, k and v are cast to its type.
    k, v : torch.Tensor, (batch, seqlen_k, nhead_k, hdim)
        nhead_q is a multiple of nhead_k.
    dropout_p : float
        Chance to drop a probability; random numbers are drawn from torch's generator of q's device.
    softmax_scale : float, optional
        Factor on the scores; ``1 / sqrt(hdim)`` by default. q is copied if it is not above 0.
    causal : bool
        Whether query i sees only keys up to ``i + seqlen_k - seqlen_q``.
    window_size : (int, int)
        Keys to the left and right of that one that a query sees; -1: all.
    softcap : float
        Above 0, scores become ``softcap * tanh(score / softcap)``.
    alibi_slopes : torch.Tensor, optional, float32 (nhead_q) or (batch, nhead_q)
        ``-slope * |i + seqlen_k - seqlen_q - j|`` is added to the scores.
    deterministic : bool
        Give q's gradient the same bits in each run. That may take more memory and time. All other results
        have them anyway.
    return_attn_probs : bool
        Whether to return the log-sum-exp and the probabilities too; for tests.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        q's dtype.
    softmax_lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q)
        With `return_attn_probs`. It may be differentiated; flash-attn takes its gradient for 0.
    S_dmask : torch.Tensor, (batch, nhead_q, seqlen_q, seqlen_k), both to the next multiple of 128
        With `return_attn_probs`: probabilities, negative where one was dropped, 0 beyond the lengths; q's
        dtype. Without dropout, as in flash-attn, a tensor of no elements.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `pyfa_rocm.torch.flash_attn_func`. UnsupportedError is a NotImplementedError.

    Notes
    -----
    Source: `pyfa_rocm.torch.flash_attn_func`. As in flash-attn, an input whose last dimension is not
    contiguous, or no multiple of 8 long, is copied; and one whose rows are not aligned to 16 bytes.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.flash_attn import flash_attn_func
    >>> q, k, v = torch.ones(3, 1, 64, 2, 128, dtype=torch.float16)
    >>> flash_attn_func(q, k, v, causal=True).shape
    torch.Size([1, 64, 2, 128])
    """
    return call(
        functional.flash_attn_func, q, k, v, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
        window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
        deterministic=deterministic, return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Like `flash_attn_func`, but of q, k, v in one tensor, (batch, seqlen, 3, nhead, hdim)."""
    q, k, v = _unpacked(qkv, "qkv", 2)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    return flash_attn_func(q, k, v, *options, return_attn_probs)


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Like `flash_attn_func`, but of k, v in one tensor, (batch, seqlen_k, 2, nhead_k, hdim)."""
    k, v = _unpacked(kv, "kv", 2)
    options = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    return flash_attn_func(q, k, v, *options, return_attn_probs)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> Any:
    """Like `flash_attn_func`, but for sequences of different lengths, packed one after the other.

    Parameters
    ----------
    q : torch.Tensor, (total_q, nhead_q, hdim)
        All queries.
    k, v : torch.Tensor, (total_k, nhead_k, hdim), or (pages, page_size, nhead_k, hdim)
        All keys and values; the latter with `block_table`, of any page_size that is a power of two.
    cu_seqlens_q, cu_seqlens_k : torch.Tensor, int32 (batch + 1)
        Where each sequence starts, and the end. For keys in pages, only the lengths are taken from it.
    max_seqlen_q, max_seqlen_k : int
        The longest.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
        As in `flash_attn_func`.
    block_table : torch.Tensor, optional, int32 (batch, max_pages)
        Pages of each sequence; entries beyond its length do not matter. Without dropout, gradients and
        autocast.

    Returns
    -------
    out : torch.Tensor, (total_q, nhead_q, hdim)
        q's dtype.
    softmax_lse : torch.Tensor, float32 (nhead_q, total_q)
        With `return_attn_probs`.
    S_dmask : torch.Tensor, (batch, nhead_q, max_seqlen_q, max_seqlen_k), both to the next multiple of 128
        As in `flash_attn_func`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`. With a `block_table`, UnsupportedError when a gradient is asked for.
    """
    if block_table is not None:
        return _over_pages(
            q, k, v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q,
            max_seqlen_k=max_seqlen_k, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
            window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes, block_table=block_table,
            return_attn_probs=return_attn_probs,
        )  # fmt: skip
    return call(
        functional.flash_attn_varlen_func, q, k, v, cu_seqlens_q, cu_seqlens_k,
        number(max_seqlen_q), number(max_seqlen_k),
        dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        softcap=softcap, alibi_slopes=alibi_slopes, deterministic=deterministic,
        return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Like `flash_attn_varlen_func`, but of q, k, v in one tensor, (total, 3, nhead, hdim)."""
    q, k, v = _unpacked(qkv, "qkv", 1)
    lengths = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    options = (*lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return flash_attn_varlen_func(q, k, v, *options, deterministic, return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Like `flash_attn_varlen_func`, but of k, v in one tensor, (total_k, 2, nhead_k, hdim)."""
    k, v = _unpacked(kv, "kv", 1)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = (*lengths, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return flash_attn_varlen_func(q, k, v, *options, deterministic, return_attn_probs)


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Attention over a KV cache. With `k` and `v` the new tokens are stored first, and seen by `q`.

    There are no gradients, and the result requires none. Autocast changes nothing.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        Queries, the last tokens of their sequences: float16 or bfloat16.
    k_cache, v_cache : torch.Tensor, (batch_cache, seqlen_cache, nhead_k, hdim), or (pages, page_size, ...)
        The cache; the latter with `block_table`, of any page_size that is a power of two. Written in place
        with `k`, which takes a copy if its head dim is no multiple of 8 or its rows are not aligned.
    k, v : torch.Tensor, (batch, seqlen_new, nhead_k, hdim), optional
        New keys and values, stored behind `cache_seqlens`. The cache has to have room for them.
    rotary_cos, rotary_sin : torch.Tensor, (positions, rotary_dim / 2), optional
        Only with `k`; of q's dtype, or float32; at least as many positions as a sequence of the cache has
        room for tokens. New keys are rotated by their places in the sequence, as are queries if `causal` or
        with a window; otherwise all queries by the place of the first new key.
    cache_seqlens : int or torch.Tensor, int32 (batch), optional
        Tokens in the cache, without the new ones; padding at the left counts. None: the cache is full.
    cache_batch_idx : torch.Tensor, int32 (batch), optional
        The element of the cache for each sequence; only without pages.
    cache_leftpad : torch.Tensor, int32 (batch), optional
        Tokens at the beginning of each sequence that are no keys.
    block_table : torch.Tensor, int32 (batch, max_pages), optional
        Pages of each sequence; entries beyond its length do not matter.
    softmax_scale, causal, window_size, softcap, alibi_slopes
        As in `flash_attn_func`, seqlen_k being the sequence's own length with the new tokens.
    rotary_interleaved : bool
        Whether elements 2 i and 2 i + 1 are a pair; else i and i + rotary_dim / 2.
    num_splits : int
        Parts into which the keys of a sequence are divided, at most 128; 0: the library's choice.
    return_softmax_lse : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        q's dtype. A query that sees no key gives 0.
    softmax_lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q)
        With `return_softmax_lse`; -inf for a query that sees no key.

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
    >>> from pyfa_rocm.flash_attn import flash_attn_with_kvcache
    >>> k_cache, v_cache = torch.zeros(2, 2, 256, 1, 64, dtype=torch.float16)
    >>> q, new = torch.ones(2, 1, 4, 64, dtype=torch.float16), torch.ones(2, 1, 1, 64, dtype=torch.float16)
    >>> lengths = torch.tensor([3, 100], dtype=torch.int32)
    >>> flash_attn_with_kvcache(q, k_cache, v_cache, new, new, cache_seqlens=lengths).shape
    torch.Size([2, 1, 4, 64])
    >>> k_cache[:, :, 0, 0].nonzero().tolist()
    [[0, 3], [1, 100]]
    """
    out, lse = attend(
        q, k_cache, v_cache, k, v, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        softcap=softcap, rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad, block_table=block_table,
        rotary_interleaved=rotary_interleaved, alibi_slopes=alibi_slopes, num_splits=num_splits,
    )  # fmt: skip
    return (out, lse) if return_softmax_lse else out


def _over_pages(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_attn_probs: bool, **options: Any
) -> Any:
    """`flash_attn_varlen_func` with a block table: its options by name, and its results."""
    out, lse = attend_packed(q, k, v, None, seqused_k=None, leftpad_k=None, **options)
    out = without_gradient(out, q, k, v)
    return (out, lse, q.new_empty(0)) if return_attn_probs else out


# flash-attn's autograd functions, for those who call their `apply`.
FlashAttnFunc = applied("FlashAttnFunc", flash_attn_func)
FlashAttnQKVPackedFunc = applied("FlashAttnQKVPackedFunc", flash_attn_qkvpacked_func)
FlashAttnKVPackedFunc = applied("FlashAttnKVPackedFunc", flash_attn_kvpacked_func)
FlashAttnVarlenFunc = applied("FlashAttnVarlenFunc", flash_attn_varlen_func)
FlashAttnVarlenQKVPackedFunc = applied("FlashAttnVarlenQKVPackedFunc", flash_attn_varlen_qkvpacked_func)
FlashAttnVarlenKVPackedFunc = applied("FlashAttnVarlenKVPackedFunc", flash_attn_varlen_kvpacked_func)


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(missing(f"flash_attn_interface.{name}"))
