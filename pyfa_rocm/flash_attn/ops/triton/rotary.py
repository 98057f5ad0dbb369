# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rotary position embeddings of a tensor, as in ``flash_attn.ops.triton.rotary``. Plain torch, any device."""

from __future__ import annotations

import torch

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["apply_rotary"]


def apply_rotary(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    seqlen_offsets: int | torch.Tensor = 0,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    conjugate: bool = False,
) -> torch.Tensor:
    """Rotate the first dimensions of each head by angles of the position.

    Parameters
    ----------
    x : torch.Tensor, (batch, seqlen, nhead, hdim), or with `cu_seqlens` (total, nhead, hdim)
        Any floating type; computed in float32 at least.
    cos, sin : torch.Tensor, (seqlen_ro, rotary_dim / 2)
        Of the angles. Positions of seqlen_ro and beyond, which only tensors of offsets have, are not rotated.
    seqlen_offsets : int or torch.Tensor, int32 or int64 (batch)
        Position of each sequence's first token.
    cu_seqlens : torch.Tensor, optional, int32 (batch + 1)
        Where each sequence starts, and the end.
    max_seqlen : int, optional
        The longest; required with `cu_seqlens`.
    interleaved : bool
        Whether pairs are dimensions 2i and 2i + 1 (GPT-J); else i and i + rotary_dim / 2 (GPT-NeoX).
    inplace : bool
        Whether to write the result to `x`.
    conjugate : bool
        Whether to rotate back: that is the gradient.

    Returns
    -------
    torch.Tensor
        Like `x`, of its type; `x` itself with `inplace`.

    Raises
    ------
    InvalidArgumentError
        Shapes do not fit, or `max_seqlen` is missing.
    """
    _require(x, cos, sin, seqlen_offsets, cu_seqlens, max_seqlen)
    positions = _positions(x, seqlen_offsets, cu_seqlens)
    kind = torch.promote_types(x.dtype, torch.float32)
    there = (positions < cos.shape[0])[..., None, None]
    rows = positions.clamp(0, max(cos.shape[0] - 1, 0))
    c = torch.where(there, cos.to(kind)[rows][..., None, :], 1.0)
    s = torch.where(there, sin.to(kind)[rows][..., None, :], 0.0)
    if conjugate:
        s = -s
    rotary_dim = 2 * cos.shape[1]
    turned = x[..., :rotary_dim].to(kind)
    if interleaved:
        a, b = turned.unflatten(-1, (-1, 2)).unbind(-1)
        result = torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        result = torch.cat([a * c - b * s, a * s + b * c], dim=-1)
    if inplace:
        x[..., :rotary_dim].copy_(result)
        return x
    return torch.cat([result.to(x.dtype), x[..., rotary_dim:]], dim=-1)


def _positions(
    x: torch.Tensor, seqlen_offsets: int | torch.Tensor, cu_seqlens: torch.Tensor | None
) -> torch.Tensor:
    """Return the position of each token, int64: (total), (seqlen) or (batch, seqlen)."""
    tokens = torch.arange(x.shape[0 if cu_seqlens is not None else 1], device=x.device)
    if cu_seqlens is None:
        if isinstance(seqlen_offsets, torch.Tensor):
            return seqlen_offsets[:, None] + tokens
        return tokens + seqlen_offsets
    # Tokens beyond the last sequence are taken for the last one's.
    sequence = torch.searchsorted(cu_seqlens[1:], tokens, right=True).clamp(max=max(len(cu_seqlens) - 2, 0))
    positions = tokens - cu_seqlens[sequence]
    offsets = seqlen_offsets[sequence] if isinstance(seqlen_offsets, torch.Tensor) else seqlen_offsets
    return positions + offsets


def _require(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    seqlen_offsets: int | torch.Tensor,
    cu_seqlens: torch.Tensor | None,
    max_seqlen: int | None,
) -> None:
    """Raise unless shapes fit."""
    dims = "(batch, seqlen, nhead, hdim)" if cu_seqlens is None else "(total, nhead, hdim)"
    if x.dim() != dims.count(",") + 1:
        raise InvalidArgumentError(f"x: got shape {tuple(x.shape)}, expected {dims}")
    if cos.dim() != 2 or 2 * cos.shape[1] > x.shape[-1]:
        raise InvalidArgumentError(
            f"cos: got shape {tuple(cos.shape)}, expected (seqlen_ro, rotary_dim / 2) of a rotary_dim up to "
            f"hdim {x.shape[-1]}"
        )
    if sin.shape != cos.shape:
        raise InvalidArgumentError(f"sin: got shape {tuple(sin.shape)}, expected {tuple(cos.shape)} as cos")
    if cu_seqlens is not None and max_seqlen is None:
        raise InvalidArgumentError("max_seqlen: got None, expected the longest length, as with cu_seqlens")
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    seqlen = x.shape[1] if max_seqlen is None or cu_seqlens is None else max_seqlen
    end = seqlen
    if not isinstance(seqlen_offsets, torch.Tensor):
        end += seqlen_offsets
    elif seqlen_offsets.shape != (batch,) or seqlen_offsets.dtype not in (torch.int32, torch.int64):
        raise InvalidArgumentError(
            f"seqlen_offsets: got {seqlen_offsets.dtype} {tuple(seqlen_offsets.shape)}, expected an int, or "
            f"int32 or int64 ({batch},)"
        )
    if end > cos.shape[0]:
        raise InvalidArgumentError(
            f"cos: got {cos.shape[0]} positions, expected at least {end}, seqlen and offset"
        )
