# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch's own ``context_parallel``, on these kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor.experimental._context_parallel import _attention

from pyfa_rocm.errors import UnsupportedError

__all__ = ["use_in_context_parallel"]

_ops = torch.ops.pyfa_rocm


@contextmanager
def use_in_context_parallel() -> Iterator[None]:
    """Let ``torch.distributed.tensor.experimental.context_parallel`` run these kernels inside.

    torch's templates of ring attention stay as they are: they are given operators of this package with the
    signatures of aten's flash attention, in place of those. It is for torch's `_scaled_dot_product` of
    DTensors, and for all threads of the process.

    Raises
    ------
    UnsupportedError
        By a call with dropout.

    Examples
    --------
    >>> from pyfa_rocm.torch.context_parallel.templates import use_in_context_parallel
    >>> with use_in_context_parallel():
    ...     pass  # with context_parallel(mesh, buffers=...): model(...)
    """
    ours = {
        "_scaled_dot_product_ring_flash_attention": _ring_forward,
        "_scaled_dot_product_ring_flash_attention_backward": _ring_backward,
    }
    theirs = {name: getattr(_attention, name) for name in ours}
    for name, function in ours.items():
        setattr(_attention, name, function)
    try:
        yield
    finally:
        for name, function in theirs.items():
            setattr(_attention, name, function)


def flash_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Like ``aten._scaled_dot_product_flash_attention``, of (batch, nhead, seqlen, hdim)."""
    _require_no_dropout(dropout_p)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    out, lse = _ops.fmha_fwd(q, k, v, softmax_scale=scale, causal=is_causal, top_left=True, return_lse=True)
    seed = torch.zeros((), dtype=torch.int64)
    nothing = torch.empty(0, dtype=query.dtype, device=query.device)
    sizes = query.shape[2], key.shape[2]
    return out.transpose(1, 2), lse, None, None, *sizes, seed, seed.clone(), nothing


def flash_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    *_lengths: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_of_dropout: Any,
) -> tuple[torch.Tensor, ...]:
    """Like ``aten._scaled_dot_product_flash_attention_backward``."""
    _require_no_dropout(dropout_p)
    # O as torch's template merges it may have any layout.
    rows = [x.transpose(1, 2).contiguous() for x in (grad_out, query, key, value, out)]
    gradients = _ops.fmha_bwd(
        *rows,
        logsumexp.contiguous(),
        softmax_scale=scale,
        causal=is_causal,
        top_left=True,
        deterministic=True,
        grad_dtype=torch.float32,
    )
    return tuple(x.transpose(1, 2) for x in gradients[:3])


def _require_no_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise UnsupportedError(
            f"dropout_p: got {dropout_p}, expected 0: context parallel attention drops nothing"
        )


def _ring_forward(
    mesh: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    if return_debug_mask:
        raise UnsupportedError("return_debug_mask: got True, expected False: a ring has no such mask")
    return _attention._templated_ring_attention(
        mesh.get_group(), 2, flash_forward, query, key, value, is_causal=is_causal, dropout_p=dropout_p,
        scale=scale,
    )  # fmt: skip


def _ring_backward(
    mesh: Any, grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    out: torch.Tensor, logsumexp: torch.Tensor, cum_seq_q: Any, cum_seq_k: Any, max_q: int, max_k: int,
    dropout_p: float, is_causal: bool, philox_seed: Any, philox_offset: Any, *, scale: float | None = None,
) -> Any:  # fmt: skip
    return _attention._templated_ring_attention_backward(
        mesh.get_group(), 2, flash_backward, grad_out=grad_out, grad_out_name="grad_out", query=query,
        key=key, value=value, out=out, logsumexp=logsumexp, is_causal=is_causal, dropout_p=dropout_p,
        scale=scale,
    )  # fmt: skip
