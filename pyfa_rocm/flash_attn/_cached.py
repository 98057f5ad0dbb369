# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention over KV caches as flash-attn asks for it: by `pyfa_rocm.torch`, of what the kernels can read.

Like flash-attn, this records no gradients and sees no autocast.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm._call.numbers import positive_scale
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.flash_attn._functions import number, require_inputs
from pyfa_rocm.torch import flash_attn_with_kvcache
from pyfa_rocm.torch._arguments import window
from pyfa_rocm.torch._copies import readable
from pyfa_rocm.torch._tensors import real, require_tensors

__all__ = ["attend", "attend_packed", "without_gradient"]

_CACHE = "(pages or batch, tokens, nhead_k, hdim)"
_NO_GRADIENT = (
    "block_table: a gradient of attention over pages was asked for; there is none: gather the pages into "
    "k and v of a call without block_table"
)


@torch.no_grad()
def attend(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    *,
    softmax_scale: float | None,
    causal: bool,
    window_size: Any,
    softcap: float,
    **rest: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Call `pyfa_rocm.torch.flash_attn_with_kvcache`; return O and the log-sum-exp.

    Tensors that the kernels cannot read are copied: inputs whose rows are not aligned to 16 bytes, or of a
    head dim that is no multiple of 8, which is padded; tables that are not contiguous. Such caches are copied
    back if they are written.

    Parameters
    ----------
    out : torch.Tensor, optional
        Where to write O, and what is then returned.
    rest
        What else that function takes, by its names.
    """
    dims = "(total_q, nhead, hdim)" if "cu_seqlens_q" in rest else "(batch, seqlen_q, nhead, hdim)"
    require_inputs(dims, q=q)
    require_inputs(_CACHE, k_cache=k_cache, v_cache=v_cache)
    new = {name: x for name, x in (("k", k), ("v", v)) if x is not None}
    require_inputs("(batch, seqlen_new, nhead_k, hdim)", **new)
    if new:
        _require_table(_capacity(k_cache, rest), rest)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else real("softmax_scale", softmax_scale)
    q, scale = positive_scale(q, scale)
    caches, hdim_v = (readable(k_cache), readable(v_cache)), v_cache.shape[-1]
    writable = out is not None and out.shape[-1:] == (hdim_v,) and readable(out) is out
    if out is not None and not writable:
        _require_alike(out, (*q.shape[:-1], hdim_v), q.dtype)
    rest = {name: x.contiguous() if isinstance(x, torch.Tensor) else x for name, x in rest.items()}
    options: dict[str, Any] = {name: readable(x) for name, x in new.items()} | rest
    options |= {
        "softmax_scale": scale,
        "causal": causal,
        "softcap": max(real("softcap", softcap), 0.0),
        "window_size": _window(window_size, causal, _capacity(k_cache, rest)),
        "return_softmax_lse": True,
        "out": None if out is None else readable(out),  # a copy has the rows of no sequence too
    }
    with torch.autocast(q.device.type, enabled=False):
        result, lse = flash_attn_with_kvcache(readable(q), *caches, **options)
    if new:
        for given, read in zip((k_cache, v_cache), caches, strict=True):
            if given is not read:
                given.copy_(read[..., : given.shape[-1]])
    result = result[..., :hdim_v]
    if out is None:
        return result, lse
    return (out if writable else out.copy_(result)), lse


def attend_packed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, *,
    cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: Any, max_seqlen_k: Any,
    seqused_k: torch.Tensor | None, leftpad_k: torch.Tensor | None, block_table: torch.Tensor | None,
    dropout_p: float, **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Like `attend`, of packed queries, and of keys in pages or, without `block_table`, packed too.

    Packed keys are a cache whose pages are of one token, so that they may have padding at their left.
    """
    given = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_k": seqused_k}
    given |= {"leftpad_k": leftpad_k, "block_table": block_table}
    require_tensors(q=q, k=k, v=v, **{name: x for name, x in given.items() if x is not None})
    if dropout_p:
        name = "leftpad_k" if block_table is None else "block_table"
        raise UnsupportedError(
            f"dropout_p: got {dropout_p} with {name}, expected 0: gather keys and values for a call without"
        )
    where: dict[str, Any] = {"block_table": block_table}
    dims = "(total_k, nhead_k, hdim)" if block_table is None else "(pages, page_size, nhead_k, hdim)"
    require_inputs(dims, k=k, v=v)
    if block_table is None:
        if not k.shape[0]:  # a cache has a token at least
            k, v = (x.new_zeros((1, *x.shape[1:])) for x in (k, v))
        tokens = torch.arange(k.shape[0], dtype=torch.int32, device=k.device)
        where = {"kv_indptr": cu_seqlens_k, "kv_indices": tokens}
        k, v = k.unsqueeze(1), v.unsqueeze(1)
    lengths = cu_seqlens_k[1:] - cu_seqlens_k[:-1] if seqused_k is None else seqused_k
    longest = min(number(max_seqlen_k), _capacity(k, where))
    result: tuple[torch.Tensor, torch.Tensor] = attend(
        q, k, v, out=out, cache_seqlens=lengths, cache_leftpad=leftpad_k, cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=number(max_seqlen_q), max_seqlen_k=longest, **where, **options,
    )  # fmt: skip
    return result


def without_gradient(out: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
    """Return O as one that depends on these inputs, whose gradient is an error when it is asked for."""
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in inputs):
        return out
    result: torch.Tensor = _WithoutGradient.apply(out, *inputs)
    return result


class _WithoutGradient(torch.autograd.Function):
    """The first input, as made of all of them."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        raise UnsupportedError(_NO_GRADIENT)


def _capacity(cache: torch.Tensor, where: dict[str, Any]) -> Any:
    """Return how many tokens of a sequence a cache has room for: an integer, or a symbol of a graph."""
    tokens = cache.shape[1]
    if (indices := where.get("kv_indices")) is not None:
        return indices.shape[0] * tokens
    table = where.get("block_table")
    if table is None:
        return tokens
    require_tensors(block_table=table)
    return table.shape[-1] * tokens if table.dim() else 0


def _window(window_size: Any, causal: bool, most: Any) -> tuple[int, int]:
    """Return the window as flash-attn takes it: a side as long as the cache, or under causal, is none.

    That a call has a window decides where its queries are rotated.
    """
    left, right = window(window_size)
    sides = left, -1 if causal else right
    return tuple(-1 if side >= most else side for side in sides)  # type: ignore[return-value]


def _require_table(most: Any, rest: dict[str, Any]) -> None:
    """Raise if the cache has room for a token whose position the tables of rotary do not have.

    Lengths are on the device, so the library could only read what lies behind the tables.
    """
    tables = {name: rest.get(name) for name in ("rotary_cos", "rotary_sin")}
    if any(table is None for table in tables.values()):
        return  # the call says that both are needed
    for name, table in tables.items():
        if isinstance(table, torch.Tensor) and table.dim() == 2 and table.shape[0] < most:
            raise InvalidArgumentError(
                f"{name}: got {table.shape[0]} positions, expected {most} or more: so many tokens of a "
                "sequence the cache has room for"
            )


def _require_alike(out: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise unless the result, which is computed elsewhere, can be copied to `out`."""
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise InvalidArgumentError(f"out: got {out.dtype} {tuple(out.shape)}, expected {dtype} {shape}")
