# SPDX-License-Identifier: MIT OR Apache-2.0
"""`sdpa`: PyTorch's scaled_dot_product_attention by these kernels."""

from __future__ import annotations

import math
from typing import Any

import torch

from pyfa_rocm._call.numbers import positive_scale
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.torch._copies import readable
from pyfa_rocm.torch._mask import bias_of
from pyfa_rocm.torch._math import attend_by_formula, require_fallback, takes_formula
from pyfa_rocm.torch._tensors import FLOATS, autocast, real, require_tensors
from pyfa_rocm.torch.functional import flash_attn_func

__all__ = ["sdpa"]


def sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    fallback: str | None = None,
) -> torch.Tensor:
    """Attention with the arguments and the meaning of ``torch.nn.functional.scaled_dot_product_attention``.

    Parameters
    ----------
    query : torch.Tensor, (..., nhead_q, seqlen_q, hdim)
        Two dimensions or more, heads and leading ones being optional. float16, bfloat16 or float32; under
        autocast they are cast, as PyTorch does. Any layout; it is used as it is if the last dimension is
        contiguous and a multiple of 8 long, and the address and the other strides are multiples of 16 bytes,
        as of a projection's output, transposed or expanded. Everything else is copied first, and more than
        one leading dimension where they cannot be viewed as one. A compiled graph does not look at addresses:
        the error that then comes says which tensor to clone.
    key : torch.Tensor, (..., nhead_k, seqlen_k, hdim)
        Leading dimensions are broadcast against query's.
    value : torch.Tensor, (..., nhead_k, seqlen_k, hdim_v)
        As key.
    attn_mask : torch.Tensor, optional, (..., seqlen_q, seqlen_k)
        Broadcast to (..., nhead_q, seqlen_q, seqlen_k). Boolean: True takes part; or of query's dtype, added
        to the scaled scores. It is handed to the kernel as a bias: a copy of its own size, except one of
        float16 as query that is not broadcast in its last dimension. With `is_causal` both apply, where
        PyTorch's own may refuse.
    dropout_p : float
        Chance to drop an element of the probabilities, in every mode of a module: pass 0 in evaluation. The
        random state is drawn by the default generator of query's device.
    is_causal : bool
        Query row i sees the keys 0 to i: aligned top-left, as in PyTorch, and unlike `flash_attn_func`.
    scale : float, optional
        Factor on the scores; ``1 / sqrt(hdim)`` by default. Query is copied if it is not above 0.
    enable_gqa : bool
        Whether nhead_k may be a divisor of nhead_q, as in `flash_attn_func`.
    fallback : {"math"}, optional
        What to do if no kernel does the call, such as of head dims beyond all kernels': compute it by the
        formula, in plain torch, with memory for each pair of query and key, and warn, once for each reason.
        None: raise.

    Returns
    -------
    torch.Tensor, (..., nhead_q, seqlen_q, hdim_v)
        A view of memory laid out as (..., seqlen_q, nhead_q, hdim_v), as the projection that follows wants
        it (more than hdim_v, if that is no multiple of 8); a row that sees no key is 0.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`, whose messages call query, key and value q, k and v, in its order of
        dimensions.

    Notes
    -----
    Source: `flash_attn_func` on views, with ``top_left=True``.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.torch import sdpa
    >>> query, key, value = torch.ones(3, 1, 2, 64, 128, dtype=torch.float16)
    >>> sdpa(query, key, value, is_causal=True).shape
    torch.Size([1, 2, 64, 128])
    """
    require_tensors(query=query, key=key, value=value)
    require_fallback(fallback)
    query, key, value = autocast(query, key, value)
    _require_fit(query, key, value)
    hdim_v = value.shape[-1]
    scale = 1 / math.sqrt(query.shape[-1] or 1) if scale is None else real("scale", scale)
    query, scale = positive_scale(query, scale)
    query, key, value = (readable(x) for x in (query, key, value))
    # (..., nhead, seqlen, hdim), so that what leads is what comes before these three.
    q, k, v = (x if x.dim() > 2 else x[None] for x in (query, key, value))
    leading = _broadcast_leading(q, k, v)
    q, k, v = (_to_batch(x, leading).transpose(1, 2) for x in (q, k, v))
    q, k, v = _broadcast_heads(q, k, v, enable_gqa)
    scores = (*leading, q.shape[2], q.shape[1], k.shape[1])
    if attn_mask is not None:
        _require_mask(attn_mask, scores)
    if 0 in scores or not hdim_v:
        out = q.new_zeros(*scores[:-1], hdim_v)
    else:
        bias = None if attn_mask is None else _bias(attn_mask, scores, q.dtype)
        options: dict[str, Any] = {
            "dropout_p": dropout_p,
            "softmax_scale": scale,
            "causal": is_causal,
            "top_left": is_causal,
        }
        by_formula = fallback is not None and takes_formula(q, k, v, bias, **options)
        attend = attend_by_formula if by_formula else flash_attn_func
        out = attend(q, k, v, bias=bias, **options)
        out = out.transpose(1, 2)[..., :hdim_v]
        out = out.view(*leading, *out.shape[1:])
    return out[0] if query.dim() == key.dim() == value.dim() == 2 else out


def _require_fit(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    """Raise unless types and the sizes that are not broadcast fit together."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 2:
            raise InvalidArgumentError(f"{name}: got shape {tuple(x.shape)}, expected (..., seqlen, hdim)")
        if x.dtype != query.dtype:
            raise InvalidArgumentError(f"{name}: got dtype {x.dtype}, expected {query.dtype} as query")
    if query.dtype not in FLOATS:
        raise UnsupportedError(
            f"query: got dtype {query.dtype}, expected one of {', '.join(map(str, FLOATS))}: cast it"
        )
    if key.shape[-1] != query.shape[-1]:
        raise InvalidArgumentError(
            f"key: got shape {tuple(key.shape)}, expected {query.shape[-1]} in the last dimension as query"
        )
    if value.shape[-2] != key.shape[-2]:
        raise InvalidArgumentError(
            f"value: got shape {tuple(value.shape)}, expected {key.shape[-2]} rows as key"
        )


def _broadcast_leading(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Size:
    """Return the dimensions before heads, those of the three broadcast against each other."""
    shapes = [x.shape[:-3] for x in (q, k, v)]
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError as error:
        raise InvalidArgumentError(
            f"key: got leading dimensions {tuple(shapes[1])}, and value {tuple(shapes[2])}, expected ones "
            f"that can be broadcast with query's {tuple(shapes[0])}"
        ) from error


def _to_batch(x: torch.Tensor, leading: tuple[int, ...]) -> torch.Tensor:
    """Return a (..., nhead, a, b) tensor as (batch, nhead, a, b)."""
    x = x.expand(*leading, *x.shape[-3:])
    return x if len(leading) == 1 else x.reshape(math.prod(leading), *x.shape[-3:])


def _broadcast_heads(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, enable_gqa: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return q, k, v, (batch, seqlen, nhead, hdim), with numbers of heads that the kernels take."""
    nheads = [x.shape[2] for x in (q, k, v)]
    nhead_q, nhead_k = nheads[0], max(nheads[1:])
    if nhead_q == 1:
        nhead_q = nhead_k
    for name, nhead in (("key", nheads[1]), ("value", nheads[2])):
        if nhead in (1, nhead_q) or (enable_gqa and nhead == nhead_k and nhead and nhead_q % nhead == 0):
            continue
        if enable_gqa and nhead and nhead_q % nhead == 0:
            raise InvalidArgumentError(
                f"{name}: got {nhead} heads, expected {nhead_k}: key and value have the same number"
            )
        expected = f"a divisor of query's {nhead_q}" if enable_gqa else f"{nhead_q} as query, or enable_gqa"
        raise InvalidArgumentError(f"{name}: got {nhead} heads, expected {expected}")
    # A single head of keys is shared by the kernels themselves.
    wanted = zip((q, k, v), (nhead_q, nhead_k, nhead_k), strict=True)
    q, k, v = (x if x.shape[2] == n else x.expand(-1, -1, n, -1) for x, n in wanted)
    return q, k, v


def _require_mask(mask: torch.Tensor, scores: tuple[int, ...]) -> None:
    require_tensors(attn_mask=mask)
    if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
        raise InvalidArgumentError(f"attn_mask: got dtype {mask.dtype}, expected bool or that of query")
    fits = mask.dim() <= len(scores) and all(
        n in (1, size) for n, size in zip(reversed(mask.shape), reversed(scores), strict=False)
    )
    if not fits or not mask.dim():
        raise InvalidArgumentError(
            f"attn_mask: got shape {tuple(mask.shape)}, expected one that can be broadcast to {tuple(scores)}"
        )


def _bias(mask: torch.Tensor, scores: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return the mask as a bias (batch, nhead, seqlen_q, seqlen_k), 1 in place of what is broadcast."""
    bias = bias_of(mask, dtype, scores[-1])
    bias = bias[(None,) * (len(scores) - bias.dim())]
    if all(n == 1 for n in bias.shape[:-3]):
        return bias.view(1, *bias.shape[-3:])
    return _to_batch(bias, scores[:-3])
