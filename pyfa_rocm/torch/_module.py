# SPDX-License-Identifier: MIT OR Apache-2.0
"""`FlashAttention`: attention as a module, with masks."""

from __future__ import annotations

import torch

from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.torch._mask import Padding, bias_of, padding_of
from pyfa_rocm.torch._math import attend_by_formula, require_fallback, takes_formula
from pyfa_rocm.torch._tensors import autocast, require_tensors
from pyfa_rocm.torch.functional import flash_attn_func, flash_attn_varlen_func

__all__ = ["FlashAttention"]


class FlashAttention(torch.nn.Module):
    """Attention of (batch, seqlen, nhead, hdim) tensors, with a boolean mask.

    Parameters
    ----------
    dropout : float
        Chance to drop an element of the probabilities, only in training mode.
    causal : bool
        Whether query row i sees no key beyond ``i + seqlen_k - seqlen_q`` (aligned bottom-right).
    fallback : {"math"}, optional
        As in `sdpa`: the formula, with a warning, for calls that no kernel does. None: they raise.

    Attributes
    ----------
    path : {"plain", "lengths", "bias", "math"} or None
        How the last call went: without a mask; the mask as lengths of sequences, so that padding costs
        nothing; the mask as a bias, which works for any; or by the formula. None: there was none yet.

    Notes
    -----
    A mask's values decide whether it can go as lengths. `forward` looks at them if it may. On a card that
    makes the host wait for all earlier work (once a call), so say ``suffix=True`` or ``False`` there. In a
    compiled graph and during capture it cannot look: the mask is a bias unless ``suffix=True``.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.torch import FlashAttention
    >>> attention = FlashAttention(causal=True).eval()
    >>> q, k, v = torch.ones(3, 2, 64, 2, 128, dtype=torch.bfloat16)
    >>> mask = torch.arange(64) < torch.tensor([[64], [40]])
    >>> attention(q, k, v, mask).shape, attention.path
    (torch.Size([2, 64, 2, 128]), 'lengths')
    """

    def __init__(self, dropout: float = 0.0, causal: bool = False, *, fallback: str | None = None) -> None:
        super().__init__()
        require_fallback(fallback)
        if not 0 <= dropout < 1:
            raise InvalidArgumentError(f"dropout: got {dropout}, expected from 0 to below 1")
        self.dropout = dropout
        self.causal = causal
        self.fallback = fallback
        self.path: str | None = None

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        suffix: bool | None = None,
    ) -> torch.Tensor:
        """Return attention of q over the keys that `mask` and `causal` let it see.

        Parameters
        ----------
        q, k, v : torch.Tensor, (batch, seqlen, nhead, hdim)
            As `flash_attn_func` takes them, autocast included. For the path "lengths", batch and seqlen of
            each have to be viewable as one dimension, as they are in the output of a projection; else that
            one is copied.
        mask : torch.Tensor, optional, bool (batch, seqlen_k) or (batch, seqlen_q, seqlen_k)
            True where a key is seen.
        suffix : bool, optional
            Whether the mask is padding at the ends: in each sequence the first m queries see the first n
            keys, and nothing else is seen. True is taken at its word: lengths are counted from the
            mask on its device, and where in a row its True are does not matter. False is never wrong. None:
            look, see the class.

        Returns
        -------
        torch.Tensor, (batch, seqlen_q, nhead_q, hdim_v)
            Rows that see no key are 0.

        Raises
        ------
        TypeError, InvalidArgumentError, UnsupportedError, HipError
            As `flash_attn_func`. If no kernel takes lengths, one may take a bias: ``suffix=False``.
        """
        require_tensors(q=q, k=k, v=v)
        q, k, v = autocast(q, k, v)
        dropout_p = self.dropout if self.training else 0.0
        bias = padding = None
        if mask is not None:
            _require_mask(mask, q, k)
            padding = padding_of(mask, suffix) if self._can_count(q, k) else None
            if padding is None:
                bias = _bias(mask, q, k)
        options = {"dropout_p": dropout_p, "softmax_scale": q.shape[-1] ** -0.5, "causal": self.causal}
        if self.fallback is not None and takes_formula(q, k, v, bias, **options):
            self.path = "math"
            bias = None if mask is None else _bias(mask, q, k)
            return attend_by_formula(q, k, v, bias, **options)
        if padding is None:
            self.path = "plain" if bias is None else "bias"
            return flash_attn_func(q, k, v, dropout_p, causal=self.causal, bias=bias)
        self.path = "lengths"
        return self._by_lengths(q, k, v, padding, dropout_p)

    def extra_repr(self) -> str:
        """Return the arguments, for `print`."""
        fallback = "" if self.fallback is None else f", fallback={self.fallback!r}"
        return f"dropout={self.dropout}, causal={self.causal}{fallback}"

    def _can_count(self, q: torch.Tensor, k: torch.Tensor) -> bool:
        """Tell whether a causal mask can be said of sequences shorter than their rows, see `_by_lengths`."""
        return not self.causal or q.shape[1] <= k.shape[1]

    def _by_lengths(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, padding: Padding, dropout_p: float
    ) -> torch.Tensor:
        batch, seqlen_q = q.shape[:2]
        seqlen_k = k.shape[1]
        starts = torch.arange(batch + 1, dtype=torch.int32, device=q.device)
        # The key that a query stands at must not depend on its sequence's length, as it would bottom-right:
        # keys up to i + seqlen_k - seqlen_q are a window around key i.
        window = (-1, seqlen_k - seqlen_q) if self.causal else (-1, -1)
        result = flash_attn_varlen_func(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), starts * seqlen_q, starts * seqlen_k, seqlen_q,
            seqlen_k, dropout_p, window_size=window, seqused_q=padding.seqlens_q,
            seqused_k=padding.seqlens_k, top_left=self.causal,
        )  # fmt: skip
        unpacked: torch.Tensor = result.view(batch, seqlen_q, *result.shape[1:])
        return unpacked


def _bias(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return bias_of(mask if mask.dim() == 3 else mask[:, None], q.dtype, k.shape[1])[:, None]


def _require_mask(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> None:
    require_tensors(mask=mask)
    if mask.dtype != torch.bool:
        raise InvalidArgumentError(
            f"mask: got dtype {mask.dtype}, expected torch.bool, True where a key is seen"
        )
    if q.dim() != 4 or k.dim() != 4:
        return  # flash_attn_func says what is wrong with q or k
    by_key, by_row = (q.shape[0], k.shape[1]), (q.shape[0], q.shape[1], k.shape[1])
    if mask.shape not in (by_key, by_row):
        raise InvalidArgumentError(f"mask: got shape {tuple(mask.shape)}, expected {by_key} or {by_row}")
    if mask.device != q.device:
        raise InvalidArgumentError(f"mask: got a tensor on {mask.device}, expected {q.device} as q")
