# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functions of ``flash_attn_2_cuda``, flash-attn 2.8's extension module, by position as it has them.

They record no gradients, see no autocast, and take head dims that are multiples of 8. They differ so:
inputs whose rows the kernels cannot read are copied, and so are gradients that are parts of one tensor;
gradients may be float32; the backward pass of dropout needs the random state of the forward one; and
softmax_d has no factor of dropout.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NoReturn

import torch

from pyfa_rocm._call.numbers import can_drop, positive_scale
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.flash_attn._cached import attend, attend_packed
from pyfa_rocm.flash_attn._functions import number
from pyfa_rocm.flash_attn._install import missing
from pyfa_rocm.torch import functional
from pyfa_rocm.torch._copies import readable
from pyfa_rocm.torch._tensors import require_tensors

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]

# flash-attn pads rows and columns of S_dmask to a multiple of this.
S_DMASK_MULTIPLE = 128
_MOST_INT64 = 2**63 - 1


@torch.no_grad()
def fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out_: torch.Tensor | None,
    alibi_slopes_: torch.Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen_: torch.Generator | None = None,
) -> list[torch.Tensor]:
    """Attention of sequences of equal lengths.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        float16 or bfloat16.
    k, v : torch.Tensor, (batch, seqlen_k, nhead_k, hdim)
        As q.
    out_ : torch.Tensor, optional
        Where to write O.
    alibi_slopes_, p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap
        As in `pyfa_rocm.flash_attn.flash_attn_func`, with its window in two.
    return_softmax : bool
        Whether to return probabilities; only with dropout.
    gen_ : torch.Generator, optional
        Where dropout's random state is drawn from.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        q's dtype; `out_` if given.
    softmax_lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q)
        Log-sum-exp of the scores.
    S_dmask : torch.Tensor
        As `flash_attn_func` returns it.
    rng_state : torch.Tensor, int64 (2)
        Seed and offset of dropout's random numbers; 0 without dropout.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `pyfa_rocm.torch.flash_attn_func`.

    Notes
    -----
    Source: ``torch.ops.pyfa_rocm.fmha_fwd``.
    """
    options = _options(
        alibi_slopes_, p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap
    )
    return _forward("fmha_fwd", q, k, v, out_, {}, options, return_softmax, gen_)


@torch.no_grad()
def varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out_: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    seqused_k: torch.Tensor | None,
    leftpad_k_: torch.Tensor | None,
    block_table_: torch.Tensor | None,
    alibi_slopes_: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen_: torch.Generator | None = None,
    num_splits: int = 0,
) -> list[torch.Tensor]:
    """Like `fwd`, but for sequences of different lengths, packed one after the other.

    Parameters
    ----------
    q, k, v, out_ : torch.Tensor, (total, nhead, hdim)
        As in `fwd`.
    cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
        As in `pyfa_rocm.flash_attn.flash_attn_varlen_func`.
    seqused_k : torch.Tensor, optional, int32 (batch)
        Keys in use of each sequence.
    leftpad_k_ : torch.Tensor, optional, int32 (batch)
        Keys at the beginning of each sequence that are none, whose lengths count them.
    block_table_ : torch.Tensor, optional, int32 (batch, max_pages)
        Pages of each sequence, of keys and values (pages, page_size, nhead_k, hdim).
    zero_tensors : bool
        Whether rows of `out_` that belong to no sequence are to be 0; those of a new O are.
    num_splits : int
        Into how many parts the keys of a page table, or with `leftpad_k_`, are split. 0: the library chooses.

    Returns
    -------
    out, softmax_lse, S_dmask, rng_state : torch.Tensor
        As in `fwd`; softmax_lse is (nhead_q, total_q).

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `fwd`. UnsupportedError: dropout with `block_table_` or `leftpad_k_`; a split without
        either.
    """
    options = _options(
        alibi_slopes_, p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap
    )
    lengths = _lengths(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k) | {"seqused_k": seqused_k}
    if zero_tensors and out_ is not None:
        out_.zero_()
    if block_table_ is not None or leftpad_k_ is not None:
        _require_dropout(return_softmax, p_dropout)
        del options["window_left"], options["window_right"], lengths["seqused_q"]
        out, lse = attend_packed(
            q, k, v, out_, leftpad_k=leftpad_k_, block_table=block_table_,
            window_size=(window_size_left, window_size_right), num_splits=num_splits, **lengths, **options,
        )  # fmt: skip
        return [out, lse, q.new_empty(0), torch.zeros(2, dtype=torch.int64, device=q.device)]
    if num_splits not in (0, 1):
        raise UnsupportedError(
            f"num_splits: got {num_splits} without block_table_ or leftpad_k_, expected 0 or 1"
        )
    return _forward("fmha_varlen_fwd", q, k, v, out_, lengths, options, return_softmax, gen_)


@torch.no_grad()
def bwd(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    dq_: torch.Tensor | None,
    dk_: torch.Tensor | None,
    dv_: torch.Tensor | None,
    alibi_slopes_: torch.Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen_: torch.Generator | None = None,
    rng_state_: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Gradients of `fwd` with respect to q, k and v.

    Parameters
    ----------
    dout : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        Gradient of O.
    q, k, v : torch.Tensor
        As in `fwd`.
    out, softmax_lse : torch.Tensor
        What `fwd` returned; or O and LSE of several passes over parts of the keys, merged.
    dq_, dk_, dv_ : torch.Tensor, optional
        Where to write the gradients: shaped like q, k, v, of their type or all of float32.
    deterministic : bool
        Whether dQ has the same bits from run to run.
    gen_ : None
        Not used.
    rng_state_ : torch.Tensor, int64 (2)
        What `fwd` returned; required with dropout.

    Returns
    -------
    dq, dk, dv : torch.Tensor
        The given ones.
    softmax_d : torch.Tensor, float32 (batch, nhead_q, seqlen_q)
        Row sums of dO * O.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `pyfa_rocm.torch.flash_attn_func`.

    Notes
    -----
    Source: ``torch.ops.pyfa_rocm.fmha_bwd_out``.
    """
    options = _options(
        alibi_slopes_, p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap
    )
    options["deterministic"] = deterministic
    gradients = (dq_, dk_, dv_)
    return _backward("fmha_bwd_out", dout, (q, k, v), out, softmax_lse, gradients, {}, options, rng_state_)


@torch.no_grad()
def varlen_bwd(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    dq_: torch.Tensor | None,
    dk_: torch.Tensor | None,
    dv_: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    alibi_slopes_: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen_: torch.Generator | None = None,
    rng_state_: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Like `bwd`, but of `varlen_fwd`.

    Parameters
    ----------
    dout, q, k, v, out, dq_, dk_, dv_ : torch.Tensor, (total, nhead, hdim)
        As in `bwd`.
    softmax_lse : torch.Tensor, float32 (nhead_q, total_q)
        As in `bwd`.
    zero_tensors : bool
        Whether rows of given gradients that belong to no sequence are to be 0; those of new ones are.

    Returns
    -------
    dq, dk, dv, softmax_d : torch.Tensor
        As in `bwd`; softmax_d is (nhead_q, total_q).

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `bwd`.
    """
    options = _options(
        alibi_slopes_, p_dropout, softmax_scale, is_causal, window_size_left, window_size_right, softcap
    )
    options["deterministic"] = deterministic
    lengths = _lengths(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    gradients = tuple(
        torch.zeros_like(x, memory_format=torch.contiguous_format)
        if given is None
        else given.zero_()
        if zero_tensors
        else given
        for given, x in zip((dq_, dk_, dv_), (q, k, v), strict=True)
    )
    return _backward(
        "fmha_varlen_bwd_out", dout, (q, k, v), out, softmax_lse, gradients, lengths, options, rng_state_
    )


def fwd_kvcache(
    q: torch.Tensor,
    kcache: torch.Tensor,
    vcache: torch.Tensor,
    k_: torch.Tensor | None,
    v_: torch.Tensor | None,
    seqlens_k_: torch.Tensor | None,
    rotary_cos_: torch.Tensor | None,
    rotary_sin_: torch.Tensor | None,
    cache_batch_idx_: torch.Tensor | None,
    leftpad_k_: torch.Tensor | None,
    block_table_: torch.Tensor | None,
    alibi_slopes_: torch.Tensor | None,
    out_: torch.Tensor | None,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    is_rotary_interleaved: bool,
    num_splits: int,
) -> list[torch.Tensor]:
    """Attention over a KV cache, in which `k_` and `v_` are stored first.

    Parameters
    ----------
    q, kcache, vcache, k_, v_, rotary_cos_, rotary_sin_, cache_batch_idx_, block_table_, alibi_slopes_
        As in `pyfa_rocm.flash_attn.flash_attn_with_kvcache`, as is what is not listed.
    seqlens_k_ : torch.Tensor, optional, int32 (batch)
        Its `cache_seqlens`.
    leftpad_k_ : torch.Tensor, optional, int32 (batch)
        Its `cache_leftpad`; with pages too.
    out_ : torch.Tensor, optional
        Where to write O.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        q's dtype; `out_` if given.
    softmax_lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q)
        Log-sum-exp of the scores.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `fwd`.
    """
    return list(
        attend(
            q, kcache, vcache, k_, v_, out_, softmax_scale=softmax_scale, causal=is_causal,
            window_size=(window_size_left, window_size_right), softcap=softcap, rotary_cos=rotary_cos_,
            rotary_sin=rotary_sin_, cache_seqlens=seqlens_k_, cache_batch_idx=cache_batch_idx_,
            cache_leftpad=leftpad_k_, block_table=block_table_, rotary_interleaved=is_rotary_interleaved,
            alibi_slopes=alibi_slopes_, num_splits=num_splits,
        )
    )  # fmt: skip


def padded_s_dmask(s_dmask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return probabilities in flash-attn's size of them: to full tiles, with zeros."""
    rows, columns = (-n % S_DMASK_MULTIPLE for n in s_dmask.shape[-2:])
    return torch.nn.functional.pad(s_dmask, (0, columns, 0, rows)).to(dtype)


def drawn_state(device: torch.device, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return a random state of dropout, int64 (2): seed and offset."""
    return torch.randint(_MOST_INT64, (2,), generator=generator, dtype=torch.int64, device=device)


def _lengths(cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any) -> dict[str, Any]:
    require_tensors(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    return {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "max_seqlen_q": number(max_seqlen_q),
        "max_seqlen_k": number(max_seqlen_k),
        "seqused_q": None,
        "seqused_k": None,
    }


def _options(
    alibi_slopes: Any, p_dropout: float, softmax_scale: float, is_causal: bool, left: int, right: int,
    softcap: float,
) -> dict[str, Any]:  # fmt: skip
    """Return what forward and backward operators have in common."""
    # Under causal, flash-attn does not look at the window's right side.
    return {
        "alibi_slopes": alibi_slopes,
        "dropout_p": p_dropout,
        "softmax_scale": softmax_scale,
        "causal": is_causal,
        "window_left": left,
        "window_right": -1 if is_causal else right,
        "softcap": max(softcap, 0.0),
    }


def _forward(
    name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None,
    lengths: dict[str, Any], options: dict[str, Any], return_softmax: bool,
    generator: torch.Generator | None,
) -> list[torch.Tensor]:  # fmt: skip
    require_tensors(q=q, k=k, v=v)
    p_dropout = options["dropout_p"]
    _require_dropout(return_softmax, p_dropout)
    q, options["softmax_scale"] = positive_scale(q, options["softmax_scale"])
    q, k, v = readable(q), readable(k), readable(v)
    state = torch.zeros(2, dtype=torch.int64, device=q.device)
    if p_dropout:
        state = options["philox"] = drawn_state(q.device, generator)
    if return_softmax:
        return [*_with_probabilities(q, k, v, out, lengths, options), state]
    operators = torch.ops.pyfa_rocm
    if out is None:
        out, lse = getattr(operators, name)(q, k, v, **lengths, **options, return_lse=True)
    else:
        lse = getattr(operators, name + "_out")(q, k, v, out, **lengths, **options, return_lse=True)
    return [out, lse, q.new_empty(0), state]


def _require_dropout(return_softmax: bool, p_dropout: float) -> None:
    if return_softmax and not p_dropout > 0:
        raise InvalidArgumentError(
            f"return_softmax: got True with p_dropout {p_dropout}, expected p_dropout above 0"
        )


def _with_probabilities(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    lengths: dict[str, Any],
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return O, the log-sum-exp and S_dmask, of one call."""
    options = dict(options)
    window = options.pop("window_left"), options.pop("window_right")
    function = functional.flash_attn_varlen_func if lengths else functional.flash_attn_func
    with torch.autocast(q.device.type, enabled=False):
        result, lse, s_dmask = function(
            q, k, v, **lengths, **options, window_size=window, return_attn_probs=True, out=out
        )
    return result, lse, padded_s_dmask(s_dmask, q.dtype)


def _backward(
    name: str,
    dout: torch.Tensor,
    inputs: tuple[torch.Tensor, ...],
    out: torch.Tensor,
    lse: torch.Tensor,
    gradients: tuple[torch.Tensor | None, ...],
    lengths: dict[str, Any],
    options: dict[str, Any],
    state: torch.Tensor | None,
) -> list[torch.Tensor]:
    require_tensors(dout=dout, q=inputs[0], k=inputs[1], v=inputs[2], out=out, softmax_lse=lse)
    if can_drop(options["dropout_p"]):
        if state is None:
            raise InvalidArgumentError("rng_state: got None, expected what forward returned, as with dropout")
        options["philox"] = state
    new = [
        torch.empty_like(x, memory_format=torch.contiguous_format) if given is None else given
        for given, x in zip(gradients, inputs, strict=True)
    ]
    scale = options["softmax_scale"]
    q, options["softmax_scale"] = positive_scale(inputs[0], scale)
    q, k, v, dout, out = map(readable, (q, *inputs[1:], dout, out))
    # A copy, since rows that belong to no sequence stay as they are.
    written = [x.clone(memory_format=torch.contiguous_format) for x in new] if _mixed(new) else new
    getattr(torch.ops.pyfa_rocm, name)(dout, q, k, v, out, lse.contiguous(), *written, **lengths, **options)
    for x, result in zip(new, written, strict=True):
        if x is not result:
            x.copy_(result)
    if scale <= 0:  # that of -q, or of a q of 0
        new[0].mul_(-1 if scale else 0)
    # (..., row, head) -> (..., head, row), as the log-sum-exp is.
    softmax_d = (dout.float() * out.float()).sum(-1).transpose(-1, -2)
    # Rows of dO that belong to no sequence do not count.
    return [*new, softmax_d.masked_fill(lse == -math.inf, 0.0).contiguous()]


def _mixed(tensors: list[torch.Tensor]) -> bool:
    """Tell whether one tensor's memory starts before another's ends, as of parts of a packed one.

    The library takes that for an overlap.
    """
    spans = []
    for x in tensors:
        last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
        start = int(x.data_ptr())
        spans.append((start, start + (last + 1) * x.itemsize if x.numel() else start))
    spans.sort()
    return any(end > start for (_, end), (start, _) in itertools.pairwise(spans))


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(missing(f"flash_attn_2_cuda.{name}"))
