# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention over a key-value cache where it lies: torch tensors -> `pyfa_rocm.fmha_decode`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from pyfa_rocm import fmha
from pyfa_rocm._call.cache import Cache, CacheTensor
from pyfa_rocm._call.decode import DecodeParams
from pyfa_rocm._call.params import FwdParams, Strided
from pyfa_rocm._runtime import host_memory
from pyfa_rocm._runtime.tensor import contiguous
from pyfa_rocm.device import enter_device, leave_device
from pyfa_rocm.torch._operators import allocate_workspace, stream_handle
from pyfa_rocm.torch._tensors import device_index, dtype_name

__all__ = ["Keys", "Scores", "can_decode", "decode"]

_DTYPES = (torch.float16, torch.bfloat16)
_UNLIMITED = 2**31 - 1
_NOWHERE = Strided(0, 0, 0, 0)


@dataclass(frozen=True)
class Scores:
    """What is made of the products of queries and keys.

    Attributes
    ----------
    scale : float
        Factor on them.
    causal : bool
        Whether a query sees no key after its own; the last query's is the last key.
    window_size : (int, int)
        Keys that it sees before its own and after; -1: all.
    softcap : float
        Above 0, scores become ``softcap * tanh(score / softcap)``.
    sinks : torch.Tensor or None, (nhead_q)
        A logit of each head that takes part in the softmax and has no value.
    """

    scale: float
    causal: bool
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: torch.Tensor | None = None


@dataclass(frozen=True)
class Keys:
    """Which tokens of a cache belong to which sequence. All tensors are int32.

    Attributes
    ----------
    longest : int
        The most tokens of a sequence.
    lengths, begins : torch.Tensor or None, (batch)
        Tokens of each sequence, and how many of them at the beginning are no keys. None: `longest`, and none.
    starts : torch.Tensor or None, (batch + 1)
        Instead of `lengths`, if queries are packed: sums of those before each sequence, and of all.
    table : torch.Tensor or None, (batch, pages)
        The pages of each sequence.
    tokens : torch.Tensor or None, (starts[batch] or more)
        Or the tokens of all, of a cache whose pages have one. Without either, a sequence is an element of the
        cache.
    """

    longest: int
    lengths: torch.Tensor | None = None
    begins: torch.Tensor | None = None
    starts: torch.Tensor | None = None
    table: torch.Tensor | None = None
    tokens: torch.Tensor | None = None


def can_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> bool:
    """Whether a cache can be read where it lies: no gradient nor dropout, 16 bits, rows of whole 16 bytes."""
    if dropout or (torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))):
        return False
    if q.dtype not in _DTYPES or k.shape[-1] > 512 or v.shape[-1] > 512:
        return False
    return all(_is_readable(x) for x in (q, k, v))


def _is_readable(x: torch.Tensor) -> bool:
    if x.stride(-1) != 1 or any(n % 8 for n in (x.shape[-1], *x.stride()[:-1])):
        return False
    # In a graph there are no addresses; what torch allocates is aligned.
    return bool(torch.compiler.is_compiling() or x.data_ptr() % 16 == 0)


def decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keys: Keys, scores: Scores,
    starts: torch.Tensor | None = None, longest: int = 0,
) -> torch.Tensor:  # fmt: skip
    """Return attention over a cache.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim), or (total_q, nhead_q, hdim)
        Queries, packed if `starts`, int32 (batch + 1), says where each sequence's begin; at most `longest`.
    k, v : torch.Tensor, (pages or batch, tokens, nhead_k, hdim)
        The cache.
    keys : Keys
        Which tokens of it each sequence has.
    scores : Scores
        The attention.

    Returns
    -------
    torch.Tensor
        Of q's shape, with v's hdim. 0 for a query that sees no key.
    """
    if torch.compiler.is_compiling() and starts is None:
        return _decode_of_graph(
            q, k, v, keys.longest, keys.lengths, keys.begins, scores.scale, scores.causal,
            list(scores.window_size), scores.softcap, scores.sinks,
        )  # fmt: skip
    out = _empty(q, v)
    sinks = None if scores.sinks is None else scores.sinks.detach().float()
    given = {
        "q": q, "k": k, "v": v, "out": out, "sinks": sinks, "starts_q": starts, "starts_k": keys.starts,
        "lengths": keys.lengths, "begins": keys.begins, "table": keys.table, "tokens": keys.tokens,
    }  # fmt: skip
    tensors = {name: x for name, x in given.items() if x is not None}
    index = device_index(tensors)
    params = _params(tensors, replace(scores, sinks=None), keys.longest, longest)
    if q.is_cuda:
        previous = enter_device(index)
        try:
            _launch(params, q, index, stream_handle(q))
        finally:
            leave_device(previous)
    else:
        with host_memory.registered([(x.data_ptr(), _span(x)) for x in tensors.values()]):
            _launch(params, q, index, 0)
    return out


@torch.library.custom_op("pyfa_rocm_transformers::decode", mutates_args=())
def _decode_of_graph(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, longest: int, lengths: torch.Tensor | None,
    begins: torch.Tensor | None, scale: float, causal: bool, window_size: list[int], softcap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """`decode` of a cache without pages, as one operator of a compiled graph."""
    left, right = window_size
    return decode(
        q, k, v, Keys(longest, lengths, begins), Scores(scale, causal, (left, right), softcap, sinks)
    )


@_decode_of_graph.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> torch.Tensor:
    return _empty(q, v)


def _empty(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)


def _launch(params: DecodeParams, q: torch.Tensor, index: int, handle: int) -> None:
    nbytes = fmha.fmha_decode_workspace_bytes(params)
    if nbytes:
        workspace = allocate_workspace(contiguous((nbytes,), "uint8", index), q)
        params.workspace, params.workspace_bytes = workspace.address, nbytes
    fmha.fmha_decode(params, handle)


def _span(x: torch.Tensor) -> int:
    """Bytes from the first element to past the last."""
    if not x.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return int((last + 1) * x.element_size())


def _strided(x: torch.Tensor) -> Strided:
    return Strided(x.data_ptr(), x.stride(0) if x.ndim == 4 else 0, x.stride(-3), x.stride(-2))


def _mask(scores: Scores) -> dict[str, Any]:
    left, right = (size if size >= 0 else _UNLIMITED for size in scores.window_size)
    if scores.causal and left == _UNLIMITED:
        return {"mask": "causal"}
    right = 0 if scores.causal else right
    if left == right == _UNLIMITED:
        return {"mask": "none"}
    return {"mask": "window", "window_left": left, "window_right": right}


def _params(given: dict[str, torch.Tensor], scores: Scores, seqlen_k: int, longest: int) -> DecodeParams:
    """Return the raw call's arguments."""
    q, k, v = (given[name] for name in "qkv")
    address = {name: x.data_ptr() for name, x in given.items()}
    packed = "starts_q" in given
    fwd = FwdParams(
        dtype=dtype_name(q.dtype), batch=len(given["starts_q"]) - 1 if packed else q.shape[0],
        seqlen_q=longest if packed else q.shape[1], seqlen_k=seqlen_k, nhead_q=q.shape[-2],
        nhead_k=k.shape[2], hdim_q=q.shape[-1], hdim_v=v.shape[-1], softmax_scale=scores.scale,
        q=_strided(q), k=_NOWHERE, v=_NOWHERE, o=_strided(given["out"]), softcap=scores.softcap,
        seqused_k=address.get("lengths", 0), **_mask(scores),
    )  # fmt: skip
    if packed:
        fwd.cu_seqlens_q, fwd.total_q = address["starts_q"], q.shape[0]
        fwd.cu_seqlens_k = address.get("starts_k", 0)
    tensors: dict[str, Any] = {
        name: CacheTensor(given[name].data_ptr(), *given[name].stride()[:3]) for name in "kv"
    }
    cache = Cache(dtype_name(k.dtype), k.shape[0], k.shape[1], **tensors)
    if "table" in given:
        table = given["table"]
        cache.block_table, cache.stride_block_table, cache.max_pages = (
            table.data_ptr(), table.stride(0), table.shape[1],
        )  # fmt: skip
    if "tokens" in given:
        cache.kv_indptr, cache.kv_indices = address["starts_k"], address["tokens"]
        cache.indices = len(given["tokens"])
    return DecodeParams(fwd, cache, leftpad_k=address.get("begins", 0), sinks=address.get("sinks", 0))
