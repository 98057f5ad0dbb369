# SPDX-License-Identifier: MIT OR Apache-2.0
"""The probabilities of a call, for tests: flash-attention's `return_attn_probs`, where the tensors are.

The kernels do not store them. They are computed in float32, sequence by sequence, from the inputs and from
what the kernel did store: its log-sum-exp, and the random bytes of its dropout. As `_call.probabilities` has
them on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from pyfa_rocm._call.params import FwdParams
from pyfa_rocm._call.probabilities import keep_at_most, visible

__all__ = ["signed_probabilities"]

_Tensors = dict[str, torch.Tensor]


def signed_probabilities(p: FwdParams, shape: tuple[int, ...], tensors: _Tensors) -> torch.Tensor:
    """Return the probabilities before dropout, with the sign bit set where one was dropped.

    Parameters
    ----------
    p : FwdParams
        The call; of its arrays, whether they are there.
    shape : tuple of int
        (batch, nhead_q, seqlen_q, seqlen_k); of packed sequences, the largest lengths. The rest is 0.
    tensors : dict
        q, k, lse, and what else there is of randval, bias, alibi_slopes and the arrays of lengths, which the
        host waits for.
    """
    first = tensors["q"]
    result = torch.zeros(shape, dtype=torch.float32, device=first.device)
    for b, part in enumerate(_sequences(p, tensors)):
        rows, columns = part["q"].shape[1], part["k"].shape[1]
        if rows and columns:
            result[b, :, :rows, :columns] = _of_sequence(p, part)
    return result


def _sequences(p: FwdParams, tensors: _Tensors) -> Iterator[_Tensors]:
    """Yield the tensors of one sequence after the other, all by head: q and k are (nhead, seqlen, hdim)."""
    by_head = [name for name in ("lse", "randval", "bias") if name in tensors]
    packed = "cu_seqlens_q" in tensors
    for b in range(p.batch):
        part: _Tensors = {}
        if (slopes := tensors.get("alibi_slopes")) is not None:
            part["alibi_slopes"] = slopes[b] if slopes.dim() == 2 else slopes
        rows, columns = (_range(tensors, side, b) if packed else b for side in "qk")
        part |= {"q": tensors["q"][rows].transpose(0, 1), "k": tensors["k"][columns].transpose(0, 1)}
        for name in by_head:
            whole = tensors[name]
            if packed:
                part[name] = whole[:, rows] if whole.shape[1] > 1 or name != "bias" else whole
            else:
                part[name] = whole[b if len(whole) > 1 else 0]
        yield part


def _range(tensors: _Tensors, side: str, b: int) -> slice:
    """Return the rows in use of a packed sequence."""
    start, end = tensors[f"cu_seqlens_{side}"][b : b + 2].tolist()
    used = tensors.get(f"seqused_{side}")
    return slice(start, end if used is None else start + int(used[b]))


def _of_sequence(p: FwdParams, part: _Tensors) -> torch.Tensor:
    """Return (nhead_q, seqlen_q, seqlen_k)."""
    q, k = part["q"].float(), part["k"].float().repeat_interleave(p.nhead_q // p.nhead_k, 0)
    rows, columns = q.shape[1], k.shape[1]
    scores = (q * (p.softmax_scale * (p.q_descale or 1.0) * (p.k_descale or 1.0))) @ k.mT
    if p.softcap:
        scores = p.softcap * torch.tanh(scores / p.softcap)
    if "bias" in part:
        scores = scores + part["bias"][..., :columns].float()
    alignment = 0 if p.mask.endswith("top_left") else columns - rows
    own = torch.arange(rows, device=q.device)[:, None] + alignment
    distance = torch.arange(columns, device=q.device) - own
    if "alibi_slopes" in part:
        scores = scores - part["alibi_slopes"][:, None, None] * distance.abs()
    lse = part["lse"][..., None]
    seen = visible(p, distance) & (lse > -math.inf)
    result = torch.where(seen, torch.exp(scores - lse), 0.0)
    if "randval" in part:
        dropped = part["randval"][..., :columns] > keep_at_most(p.p_drop)
        result = torch.where(dropped & seen, -result, result)
    return result
