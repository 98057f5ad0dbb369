# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_with_kvcache`, `flash_attn_kv_append` and `flash_attn_merge` on torch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pyfa_rocm._call.cached import refuse_uncached
from pyfa_rocm._call.lengths import require_room
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.optional import DESCALES
from pyfa_rocm._call.params import Options
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.kvcache import require_new, require_positions
from pyfa_rocm.torch import _autograd  # noqa: F401 - the operators' derivatives, which are refused
from pyfa_rocm.torch._arguments import length, output_type, window
from pyfa_rocm.torch._tensors import autocast, real, require_tensors

__all__ = ["attend_paged", "flash_attn_kv_append", "flash_attn_merge", "flash_attn_with_kvcache"]

_ops = torch.ops.pyfa_rocm


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
    *,
    kv_indptr: torch.Tensor | None = None,
    kv_indices: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    scale_per_page: bool = False,
    cu_seqlens_q: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    kernel: int = 0,
    out: torch.Tensor | None = None,
) -> Any:
    """Like `pyfa_rocm.flash_attn_with_kvcache`, but of torch tensors, to torch tensors, and compilable.

    All other parameters are as there. The stream is torch's current one.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim), or (total_q, nhead_q, hdim) with `cu_seqlens_q`
        Queries, the last tokens of their sequences: float16 or bfloat16. Not written. Under autocast q, k and
        v are cast to its type; caches never are.
    k_cache, v_cache : torch.Tensor
        Caches of any layout that is described there. With `k` they are written in place.
    k, v : torch.Tensor, (batch, seqlen_new, nhead_k, hdim), optional
        New keys and values.
    cache_seqlens : int or torch.Tensor, int32 (batch), optional
        Tokens in the cache, without the new ones. Not written: a captured graph, or a compiled one, serves
        sequences that grow if the caller adds to it on the device.
    max_seqlen_q, max_seqlen_k : int, optional
        As there. In a compiled graph they are symbols.
    out : torch.Tensor, optional
        Where to write O. It must not overlap any other tensor.

    Returns
    -------
    out : torch.Tensor, shaped like q, with hdim_v
        `out` itself if given.
    lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q) or (nhead_q, total_q)
        Natural logarithm; only with `return_softmax_lse`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func` of this module. There are no gradients: a tensor that requires one is an
        UnsupportedError. A call that is refused has stored nothing, compiled or not.

    Notes
    -----
    The operators are ``torch.ops.pyfa_rocm.fmha_decode`` (with `out`, ``fmha_decode_out``) and
    ``fmha_kv_append``, which declares that it writes to the caches: the compiler keeps them where they are.
    Before an append, ``fmha_decode_check`` refuses what the attention would.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.torch import flash_attn_with_kvcache
    >>> k_cache, v_cache = torch.zeros(2, 2, 64, 1, 64, dtype=torch.float16)
    >>> q, new = torch.ones(2, 1, 4, 64).half(), torch.ones(2, 1, 1, 64).half()
    >>> lengths = torch.tensor([0, 0], dtype=torch.int32)
    >>> flash_attn_with_kvcache(q, k_cache, v_cache, new, new, cache_seqlens=lengths)[:, 0, 0, 0].tolist()
    [1.0, 1.0]
    """
    require_tensors(q=q, k_cache=k_cache, v_cache=v_cache)
    require_new(k, v, rotary_cos, rotary_sin, cache_seqlens, cu_seqlens_q)
    (q,) = autocast(q)
    if isinstance(cache_seqlens, int):
        cache = _there(k_cache=k_cache, block_table=block_table, kv_indices=kv_indices)
        shapes = {name: tuple(x.shape) for name, x in cache.items()}
        require_room(cache_seqlens, 0 if k is None else _seqlen_new(k), shapes)
    lengths = _lengths(cache_seqlens, q, cu_seqlens_q)
    where = _there(
        block_table=block_table,
        kv_indptr=kv_indptr,
        kv_indices=kv_indices,
        cache_batch_idx=cache_batch_idx,
        k_scale=k_scale,
        v_scale=v_scale,
        cache_seqlens=lengths,
    )
    if scale_per_page:
        where["scale_per_page"] = True
    left, right = window(window_size)
    new: tuple[torch.Tensor, ...] = ()
    if k is not None and v is not None:
        require_tensors(k=k, v=v)
        new = autocast(k, v)
    arguments = where | _there(
        cache_leftpad=cache_leftpad, alibi_slopes=alibi_slopes, sinks=sinks, cu_seqlens_q=cu_seqlens_q
    )
    arguments |= _attention(softmax_scale, causal, (left, right), softcap, return_softmax_lse)
    if max_seqlen_q is not None and cu_seqlens_q is None:
        raise InvalidArgumentError(f"max_seqlen_q: got {max_seqlen_q}, expected None without cu_seqlens_q")
    for name, bound in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        if bound is not None:
            arguments[name] = length(name, bound)
    arguments |= {
        "num_splits": to_integer("num_splits", num_splits),
        "seqlen_new": _seqlen_new(new[0]) if new else 0,
        "candidate": to_integer("kernel", kernel),
    }
    if new:
        at_places = causal or left >= 0 or right >= 0
        rotary = _there(rotary_cos=rotary_cos, rotary_sin=rotary_sin)
        if rotary and q.dim() == 4:
            rows = max(arguments["seqlen_new"], q.shape[1] if at_places else 1)
            require_positions(rotary_cos, cache_seqlens, rows)
        rotated = torch.empty(q.shape, dtype=q.dtype, device=q.device) if rotary else q
        _ops.fmha_decode_check.default(rotated, k_cache, v_cache, out, **arguments)
        if rotary:
            rotary["rotary_interleaved"] = bool(rotary_interleaved)
        _append((k_cache, v_cache), new, (q, rotated), where, rotary, at_places)
        q = rotated
    return _decode(q, k_cache, v_cache, out, arguments)


def attend_paged(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    block_table: torch.Tensor,
    lengths: Mapping[str, Any],
    arguments: Mapping[str, Any],
    out: torch.Tensor | None,
    return_attn_probs: bool,
) -> Any:
    """Attention of packed queries over pages: `flash_attn_varlen_func` with a block table.

    Parameters
    ----------
    lengths : mapping
        Arrays that say where packed sequences are, by the names of that function.
    arguments : mapping
        Those of the operator ``fmha_varlen_fwd``. Any that attention over a cache lacks is refused.
    """
    require_tensors(block_table=block_table)
    refused: dict[str, Any] = {name: arguments.get(name) for name in ("bias", "out_dtype", *DESCALES)}
    refuse_uncached(
        Options(
            **refused,
            dropout_p=arguments.get("dropout_p", 0.0),
            top_left=arguments.get("top_left", False),
            return_attn_probs=return_attn_probs,
        ),
        lengths["seqused_q"],
    )
    used = {"cache_seqlens": lengths["seqused_k"]}
    if used["cache_seqlens"] is None:
        used = {"cu_seqlens_k": lengths["cu_seqlens_k"]}
    same = (
        "softmax_scale",
        "causal",
        "window_left",
        "window_right",
        "softcap",
        "alibi_slopes",
        "sinks",
        "return_lse",
        "candidate",
    )
    decode = {name: arguments[name] for name in same if name in arguments} | used
    decode |= {name: lengths[name] for name in ("cu_seqlens_q", "max_seqlen_q", "max_seqlen_k")}
    return _decode(q, k, v, out, decode | {"block_table": block_table})


def _decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    out: torch.Tensor | None,
    arguments: dict[str, Any],
) -> Any:
    if out is None:
        result, lse = _ops.fmha_decode.default(q, k_cache, v_cache, **arguments)
    else:
        result, lse = out, _ops.fmha_decode_out.default(q, k_cache, v_cache, out, **arguments)
    return (result, lse) if arguments.get("return_lse") else result


def _attention(
    softmax_scale: Any, causal: Any, sides: tuple[int, int], softcap: Any, return_lse: Any
) -> dict[str, Any]:
    arguments = {
        "causal": bool(causal),
        "window_left": sides[0],
        "window_right": sides[1],
        "softcap": real("softcap", softcap),
        "return_lse": bool(return_lse),
    }
    if softmax_scale is not None:
        arguments["softmax_scale"] = real("softmax_scale", softmax_scale)
    return arguments


def _there(**tensors: Any) -> dict[str, Any]:
    """Return the tensors that were given."""
    there = {name: x for name, x in tensors.items() if x is not None}
    require_tensors(**there)
    return there


def _lengths(cache_seqlens: Any, q: torch.Tensor, cu_seqlens_q: torch.Tensor | None) -> torch.Tensor | None:
    """Return the lengths as a tensor, or None."""
    if cache_seqlens is None or isinstance(cache_seqlens, torch.Tensor):
        return cache_seqlens
    number = length("cache_seqlens", cache_seqlens)
    if isinstance(number, int) and number < 0:
        raise InvalidArgumentError(f"cache_seqlens: got {number}, expected 0 or more")
    if cu_seqlens_q is not None or q.dim() == 0:
        raise InvalidArgumentError("cache_seqlens: got an integer, expected a tensor with cu_seqlens_q")
    return torch.full(q.shape[:1], number, dtype=torch.int32, device=q.device)


def _seqlen_new(k: torch.Tensor) -> int:
    if k.dim() != 4:
        raise InvalidArgumentError(
            f"k: got shape {tuple(k.shape)}, expected (batch, seqlen_new, nhead_k, hdim)"
        )
    return int(k.shape[1]) if isinstance(k.shape[1], int) else k.shape[1]


def _append(
    caches: tuple[torch.Tensor, torch.Tensor],
    new: tuple[torch.Tensor, ...],
    queries: tuple[torch.Tensor, torch.Tensor],
    where: dict[str, Any],
    rotary: dict[str, Any],
    at_places: bool,
) -> None:
    """Store the new tokens and, if there is rotary, rotate the first of `queries` to the second.

    Queries go with the keys if there are as many, and stand where these do. They are `at_places` of their
    own, or all at that of the first. The caches are written last: what is refused before has not touched
    them.
    """
    append = _ops.fmha_kv_append.default
    q, rotated = queries
    together = bool(rotary) and q.shape[1] == new[0].shape[1] and (at_places or q.shape[1] == 1)
    with_q = {"q": q, "q_out": rotated} if rotary else {}
    if rotary and not together:
        lengths = where["cache_seqlens"]
        if not at_places:
            with_q["positions"] = lengths[:, None].expand(q.shape[:2]).contiguous()
        append(**with_q, **rotary, cache_seqlens=lengths)
        with_q = {}
    append(*caches, k=new[0], v=new[1], **where, **rotary, **with_q)


def flash_attn_kv_append(
    k_cache: torch.Tensor | None,
    v_cache: torch.Tensor | None,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    cache_seqlens: torch.Tensor | None = None,
    *,
    q: torch.Tensor | None = None,
    q_out: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    positions: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    kv_indptr: torch.Tensor | None = None,
    kv_indices: torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    slots: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    scale_per_page: bool = False,
) -> torch.Tensor | None:
    """Like `pyfa_rocm.flash_attn_kv_append`, but of torch tensors, and compilable.

    All arguments are as there. The stream is torch's current one.

    Returns
    -------
    torch.Tensor or None
        `q_out`, or `q` if it was rotated in place.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_with_kvcache`.

    Notes
    -----
    The operator is ``torch.ops.pyfa_rocm.fmha_kv_append``, which declares that it writes to the caches and to
    `q_out`.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.torch import flash_attn_kv_append
    >>> k_cache, v_cache = torch.zeros(2, 2, 64, 1, 32, dtype=torch.float16)
    >>> new = torch.ones(2, 1, 1, 32, dtype=torch.float16)
    >>> flash_attn_kv_append(k_cache, v_cache, new, new, torch.tensor([3, 10], dtype=torch.int32))
    >>> k_cache[..., 0, 0].nonzero().tolist()
    [[0, 3], [1, 10]]
    """
    out = q if q_out is None else q_out
    tensors = _there(
        k_cache=k_cache, v_cache=v_cache, k=k, v=v, q=None if q_out is None else q, q_out=out,
        cache_seqlens=cache_seqlens, rotary_cos=rotary_cos, rotary_sin=rotary_sin, positions=positions,
        block_table=block_table, kv_indptr=kv_indptr, kv_indices=kv_indices, cache_batch_idx=cache_batch_idx,
        slots=slots, cu_seqlens=cu_seqlens, k_scale=k_scale, v_scale=v_scale,
    )  # fmt: skip
    if q_out is not None and q is None:
        raise InvalidArgumentError("q_out: got a tensor, expected None without q")
    _ops.fmha_kv_append.default(
        **tensors,
        rotary_interleaved=bool(rotary_interleaved),
        scale_per_page=bool(scale_per_page),
        max_seqlen=None if max_seqlen is None else length("max_seqlen", max_seqlen),
    )
    return out


def flash_attn_merge(
    outs: torch.Tensor,
    lses: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
    out_dtype: torch.dtype | str | None = None,
    base2: bool = False,
    accumulate: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like `pyfa_rocm.flash_attn_merge`, but of torch tensors, to torch tensors, and compilable.

    All other parameters are as there. The stream is torch's current one.

    Parameters
    ----------
    out, lse : torch.Tensor, optional
        Where to write: both or neither.
    out_dtype : torch.dtype or str, optional
        Type of the output: by default that of `outs`. Not with `out`, which has one.

    Returns
    -------
    out, lse : torch.Tensor
        `out` and `lse` themselves if given.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_with_kvcache`.

    Notes
    -----
    The operator is ``torch.ops.pyfa_rocm.fmha_merge`` (with `out` and `lse`, ``fmha_merge_out``).

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.torch import flash_attn_merge
    >>> outs = torch.tensor([1.0, 5.0]).expand(1, 4, 2, 64, 2).movedim(-1, 0).contiguous()
    >>> lses = torch.tensor([3.0, 1.0]).log().expand(1, 2, 4, 2).movedim(-1, 0).contiguous()
    >>> out, lse = flash_attn_merge(outs, lses)
    >>> out[0, 0, 0, 0].item(), round(lse[0, 0, 0].exp().item(), 4)
    (2.0, 4.0)
    """
    require_tensors(outs=outs, lses=lses)
    if out is None and lse is None:
        if accumulate:
            raise InvalidArgumentError("out: got None, expected an array to accumulate in")
        result: tuple[torch.Tensor, torch.Tensor] = _ops.fmha_merge.default(
            outs, lses, output_type(out_dtype), bool(base2)
        )
        return result
    if out is None or lse is None:
        missing = "out" if out is None else "lse"
        raise InvalidArgumentError(f"{missing}: got None, expected both out and lse, or neither")
    require_tensors(out=out, lse=lse)
    if out_dtype is not None and output_type(out_dtype) != out.dtype:
        raise InvalidArgumentError(f"out: got dtype {out.dtype}, expected out_dtype {out_dtype}")
    _ops.fmha_merge_out.default(outs, lses, out, lse, bool(base2), bool(accumulate))
    return out, lse
