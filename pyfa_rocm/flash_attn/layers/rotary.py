# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rotary position embeddings, as in ``flash_attn.layers.rotary``. Plain torch, any device.

Gradients are of the tensor that is rotated, not of cos and sin. Functions whose names end in "_" write to it.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.flash_attn.ops.triton.rotary import apply_rotary

__all__ = [
    "RotaryEmbedding",
    "apply_rotary_emb",
    "apply_rotary_emb_func",
    "apply_rotary_emb_kv_",
    "apply_rotary_emb_qkv_",
    "apply_rotary_emb_torch",
    "rotate_half",
]


def rotate_half(x: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """Turn each pair of dimensions by 90 degrees; which ones are pairs is as in `apply_rotary_emb`."""
    if interleaved:
        return torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


def apply_rotary_emb_torch(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Like `apply_rotary_emb`, in the types given, and differentiable by cos and sin too.

    These have the positions of `x`: (seqlen, rotary_dim / 2) or (batch, seqlen, rotary_dim / 2).
    """
    rotary_dim = 2 * cos.shape[-1]
    if interleaved:
        cos, sin = (t.repeat_interleave(2, dim=-1).unsqueeze(-2) for t in (cos, sin))
    else:
        cos, sin = (torch.cat([t, t], dim=-1).unsqueeze(-2) for t in (cos, sin))
    turned = x[..., :rotary_dim]
    turned = turned * cos + rotate_half(turned, interleaved) * sin
    return torch.cat([turned, x[..., rotary_dim:]], dim=-1)


class _Rotary(torch.autograd.Function):
    """`x` with some of its heads rotated, and the gradient rotated back.

    As in flash-attn, what is written in place does not count as modified by autograd, so that leaves and
    results of unbind() may be. torch does notice if it was saved for a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        heads: list[Any],
        inplace: bool,
        options: dict[str, Any],
        *tables: torch.Tensor,
    ) -> torch.Tensor:
        ctx.heads, ctx.options = heads, options
        ctx.names = [name for name, value in options.items() if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*(options[name] for name in ctx.names), *tables)
        return _rotated(x, heads, inplace, tables, options)

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[Any, ...]:
        count = len(ctx.names)
        options = ctx.options | dict(zip(ctx.names, ctx.saved_tensors[:count], strict=True))
        tables = ctx.saved_tensors[count:]
        # Not in place: a gradient may be another function's too.
        dx = _rotated(dout, ctx.heads, False, tables, options | {"conjugate": True})
        return dx, None, None, None, *(None for _ in tables)


def _rotated(
    x: torch.Tensor,
    heads: list[Any],
    inplace: bool,
    tables: tuple[torch.Tensor, ...],
    options: dict[str, Any],
) -> torch.Tensor:
    """Rotate the heads at these indices, by one cos and sin in `tables` or each by its own; or all heads."""
    if not heads:
        cos, sin = tables
        return apply_rotary(x, cos, sin, inplace=inplace, **options)
    result = x if inplace else x.clone()
    for i, index in enumerate(heads):
        cos, sin = tables[-2:] if i else tables[:2]
        apply_rotary(result[index], cos, sin, inplace=True, **options)
    return result


def apply_rotary_emb(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
) -> torch.Tensor:
    """Rotate the first dimensions of each head by angles of the position.

    Parameters
    ----------
    x : torch.Tensor, (batch, seqlen, nhead, hdim), or with `cu_seqlens` (total, nhead, hdim)
        Any floating type; computed in float32 at least.
    cos, sin : torch.Tensor, (seqlen_ro, rotary_dim / 2)
        Of the angles; they get no gradient.
    interleaved, inplace, seqlen_offsets, cu_seqlens, max_seqlen
        As in `pyfa_rocm.flash_attn.ops.triton.rotary.apply_rotary`.

    Returns
    -------
    torch.Tensor
        Like `x`; with `inplace`, its memory.

    Raises
    ------
    InvalidArgumentError
        As in `apply_rotary`.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.flash_attn.layers.rotary import apply_rotary_emb
    >>> x, angles = torch.ones(1, 3, 2, 8), torch.outer(torch.arange(3.0), torch.ones(4))
    >>> apply_rotary_emb(x, angles.cos(), angles.sin())[0, 0, 0, 0]
    tensor(1.)
    """
    options = {
        "interleaved": interleaved,
        "seqlen_offsets": seqlen_offsets,
        "cu_seqlens": cu_seqlens,
        "max_seqlen": max_seqlen,
    }
    result: torch.Tensor = _Rotary.apply(x, [], inplace, options, cos, sin)
    return result


# Its name in flash-attn 1.
apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cos_k: torch.Tensor | None = None,
    sin_k: torch.Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
    num_heads_q: int | None = None,
) -> torch.Tensor:
    """Rotate queries and keys in a packed tensor, in place.

    Parameters
    ----------
    qkv : torch.Tensor, (batch, seqlen, 3, nhead, hdim) or (batch, seqlen, nhead_q + 2 * nhead_k, hdim)
        Queries, keys and values, one behind the other.
    cos, sin, interleaved, seqlen_offsets
        As in `apply_rotary_emb`.
    cos_k, sin_k : torch.Tensor, optional
        Of the keys, if not the same.
    num_heads_q : int, optional
        nhead_q; required if `qkv` has four dimensions.

    Returns
    -------
    torch.Tensor
        The memory of `qkv`.

    Raises
    ------
    InvalidArgumentError
        Shapes do not fit.
    """
    queries, keys = _heads_of(qkv, num_heads_q)
    # Not twice the same: torch.compile does not take that.
    of_keys = []
    if cos_k is not None or sin_k is not None:
        of_keys = [cos if cos_k is None else cos_k, sin if sin_k is None else sin_k]
    options = {"interleaved": interleaved, "seqlen_offsets": seqlen_offsets}
    result: torch.Tensor = _Rotary.apply(qkv, [queries, keys], True, options, cos, sin, *of_keys)
    return result


def _heads_of(qkv: torch.Tensor, num_heads_q: int | None) -> tuple[Any, Any]:
    """Return the indices of queries and of keys."""
    everywhere = (slice(None), slice(None))
    if qkv.dim() == 5 and qkv.shape[2] == 3:
        return (*everywhere, 0), (*everywhere, 1)
    if qkv.dim() == 4 and num_heads_q is None:
        raise InvalidArgumentError(
            f"num_heads_q: got None, expected the number of query heads, as with qkv {tuple(qkv.shape)}"
        )
    others = qkv.shape[2] - num_heads_q if qkv.dim() == 4 and num_heads_q is not None else -1
    if others < 0 or others % 2 or num_heads_q is None:
        raise InvalidArgumentError(
            f"qkv: got shape {tuple(qkv.shape)}, expected (batch, seqlen, 3, nhead, hdim), or "
            "(batch, seqlen, num_heads_q + 2 * nhead_k, hdim)"
        )
    end = num_heads_q + others // 2
    return (*everywhere, slice(num_heads_q)), (*everywhere, slice(num_heads_q, end))


def apply_rotary_emb_kv_(
    kv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
) -> torch.Tensor:
    """Like `apply_rotary_emb_qkv_`, but of the keys in keys and values, (batch, seqlen, 2, nhead, hdim)."""
    if kv.dim() != 5 or kv.shape[2] != 2:
        raise InvalidArgumentError(
            f"kv: got shape {tuple(kv.shape)}, expected (batch, seqlen, 2, nhead, hdim)"
        )
    options = {"interleaved": interleaved, "seqlen_offsets": seqlen_offsets}
    keys = (slice(None), slice(None), 0)
    result: torch.Tensor = _Rotary.apply(kv, [keys], True, options, cos, sin)
    return result


class RotaryEmbedding(torch.nn.Module):
    """Rotary position embeddings with a table of cos and sin, which grows as it is needed.

    Parameters
    ----------
    dim : int
        rotary_dim: how many dimensions of each head are rotated.
    base : float
        Pair i of dimensions turns by ``base ** (-2 * i / dim)`` a position.
    interleaved : bool
        As in `apply_rotary_emb`.
    scale_base : float, optional
        With it, XPos: queries are scaled by
        ``((2 * i + 0.4 * dim) / (1.4 * dim)) ** (position / scale_base)``, positions being counted from the
        middle of the table, and keys by the inverse.
    device : torch.device, optional
        Of the buffers.

    Notes
    -----
    Private names are flash-attn's where subclasses in use need them.
    """

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.base = float(base)
        self.interleaved = interleaved
        self.scale_base = scale_base
        self.register_buffer("inv_freq", self._compute_inv_freq(device), persistent=False)
        scale = None
        if scale_base is not None:
            scale = (self._even_numbers(device) + 0.4 * dim) / (1.4 * dim)
        self.register_buffer("scale", scale, persistent=False)
        self._seq_len_cached = 0
        self._cos_cached: torch.Tensor | None = None
        self._sin_cached: torch.Tensor | None = None
        self._cos_k_cached: torch.Tensor | None = None
        self._sin_k_cached: torch.Tensor | None = None

    def _even_numbers(self, device: Any) -> torch.Tensor:
        return torch.arange(0, self.dim, 2, device=device, dtype=torch.float32)

    def _compute_inv_freq(self, device: Any = None) -> torch.Tensor:
        """Return how far each pair turns a position, in float32."""
        return self.base ** (-self._even_numbers(device) / self.dim)

    def _is_cached(self, seqlen: int, device: Any, dtype: Any) -> bool:
        cos = self._cos_cached
        return (
            cos is not None
            and seqlen <= self._seq_len_cached
            and cos.device == device
            and cos.dtype == dtype
            and not (self.training and cos.is_inference())
        )

    def _update_cos_sin_cache(self, seqlen: int, device: Any = None, dtype: Any = None) -> None:
        """Make the tables hold at least `seqlen` positions, there and of that type."""
        if self._is_cached(seqlen, device, dtype):
            return
        self._seq_len_cached = seqlen
        # In float32 even if the model is not: positions are large.
        inv_freq = self.inv_freq
        if inv_freq.dtype != torch.float32:
            inv_freq = self._compute_inv_freq(device)
        positions = torch.arange(seqlen, device=device, dtype=torch.float32)
        with torch.autocast(inv_freq.device.type, enabled=False):
            angles = torch.outer(positions, inv_freq.to(device))
        cos, sin = angles.cos(), angles.sin()
        if self.scale is None:
            self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)
            return
        power = (positions - seqlen // 2) / self.scale_base
        scale = self.scale.to(device, torch.float32) ** power[:, None]
        self._cos_cached, self._sin_cached = (cos * scale).to(dtype), (sin * scale).to(dtype)
        self._cos_k_cached, self._sin_k_cached = (cos / scale).to(dtype), (sin / scale).to(dtype)

    def forward(
        self,
        qkv: torch.Tensor,
        kv: torch.Tensor | None = None,
        seqlen_offset: int | torch.Tensor = 0,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> Any:
        """Rotate queries and keys, in place.

        Parameters
        ----------
        qkv : torch.Tensor
            As `apply_rotary_emb_qkv_` takes it; with `kv`, the queries, (batch, seqlen, nhead, hdim).
        kv : torch.Tensor, optional, (batch, seqlen, 2, nhead, hdim)
            Keys and values.
        seqlen_offset : int or torch.Tensor, int32 or int64 (batch)
            Position of each sequence's first token.
        max_seqlen : int, optional
            Up to which position the tables are to go; required at first if `seqlen_offset` is a tensor.
        num_heads_q : int, optional
            As in `apply_rotary_emb_qkv_`.

        Returns
        -------
        torch.Tensor, or with `kv` (torch.Tensor, torch.Tensor)
            Their memory.
        """
        if max_seqlen is None and isinstance(seqlen_offset, int):
            max_seqlen = qkv.shape[1] + seqlen_offset
        if max_seqlen is not None:
            self._update_cos_sin_cache(max_seqlen, device=qkv.device, dtype=qkv.dtype)
        cos, sin, cos_k, sin_k = self._cos_cached, self._sin_cached, self._cos_k_cached, self._sin_k_cached
        if cos is None or sin is None:
            raise InvalidArgumentError(
                "max_seqlen: got None, expected the last position, as with a tensor for seqlen_offset"
            )
        if kv is None:
            return apply_rotary_emb_qkv_(
                qkv, cos, sin, cos_k, sin_k, interleaved=self.interleaved, seqlen_offsets=seqlen_offset,
                num_heads_q=num_heads_q,
            )  # fmt: skip
        of_keys = (cos, sin) if cos_k is None or sin_k is None else (cos_k, sin_k)
        return (
            apply_rotary_emb(qkv, cos, sin, self.interleaved, True, seqlen_offset),
            apply_rotary_emb_kv_(kv, *of_keys, interleaved=self.interleaved, seqlen_offsets=seqlen_offset),
        )
