# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ring attention: keys and values travel, and partial results are merged in float32.

In step t a rank attends its rows to the keys of the rank t before it, while the next keys are on their way
from the rank that has them. Keys that a rank's rows do not see are neither sent nor read: see `_shards`.
The order of all sums is that of the steps, so results have the same bits from run to run.

Backward knows the log-sum-exp of all keys, so a block's gradients need nothing of other blocks. Gradients of
keys and values return, in float32, to the rank that has these, which adds them up step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pyfa_rocm._shards import Call, Shards, calls, needed
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch.context_parallel._messages import Message, Peers, peers_of

__all__ = ["ring_attention"]

_ops = torch.ops.pyfa_rocm


@dataclass(frozen=True)
class _Problem:
    """A call on all ranks. `options` are those of the operators, by name."""

    peers: Peers
    shards: Shards
    causal: bool
    window_size: tuple[int, int]
    options: dict[str, float]

    def calls(self, of: int, to: int) -> tuple[Call, ...]:
        """Return the calls that attend the rows of one rank to the keys of another."""
        return calls(self.shards, of, to, self.causal, self.window_size)

    def blocks(self, k: torch.Tensor, v: torch.Tensor) -> Iterator[tuple[int, int, list[torch.Tensor]]]:
        """Yield each step, the first of the other rank's rows that came, and these of k and v."""
        start, stop = needed(self.calls(self.peers.rank, self.peers.rank))
        block = [x[start:stop] for x in (k, v)]
        for step in range(self.peers.size):
            coming = self._request(step + 1, k, v) if step + 1 < self.peers.size else None
            yield step, start, block
            if coming is not None:
                block = coming.wait()
                start, _ = needed(self.calls(self.peers.rank, self.peers.before(step + 1)))

    def _request(self, step: int, k: torch.Tensor, v: torch.Tensor) -> Message:
        """Send this rank's rows to the rank that needs them in a step, and ask for those that it needs."""
        to, source = self.peers.before(-step), self.peers.before(step)
        start, stop = needed(self.calls(to, self.peers.rank))
        first, last = needed(self.calls(self.peers.rank, source))
        return Message(
            self.peers,
            to,
            (k[start:stop], v[start:stop]),
            source,
            tuple(torch.Size((last - first, *x.shape[1:])) for x in (k, v)),
            k,
            f"keys and values, step {step},",
        )


def _problem(
    lengths: Sequence[int],
    zigzag: bool,
    group_name: str,
    causal: bool,
    window_left: int,
    window_right: int,
    softmax_scale: float,
    softcap: float,
) -> _Problem:
    peers = peers_of(group_name)
    shards = Shards(tuple(int(n) for n in lengths), peers.size, zigzag=zigzag)
    options = {"softmax_scale": softmax_scale, "softcap": softcap}
    return _Problem(peers, shards, causal, (window_left, window_right), options)


class _Placed:
    """A call, as the operators take it: of one sequence without lengths, of more as packed ones.

    `q` and `k` are the rows that it reads, `start` the first of the other rank's rows that are there.
    """

    def __init__(self, call: Call, start: int, device: torch.device, options: dict[str, float]) -> None:
        self.q, self.k = (
            slice(ranges[0][0] - base, ranges[-1][1] - base)
            for ranges, base in ((call.q, 0), (call.k, start))
        )
        self.is_packed = len(call.q) > 1
        left, right = call.window_size
        self.arguments: dict[str, Any] = {**options, "window_left": left, "window_right": right}
        for name, ranges in (("q", call.q), ("k", call.k)) if self.is_packed else ():
            first, last = ranges[0][0], ranges[-1][1]
            numbers = {"cu_seqlens": [a - first for a, _ in ranges] + [last - first]}
            numbers["seqused"] = [b - a for a, b in ranges]
            self.arguments[f"max_seqlen_{name}"] = max(numbers["seqused"])
            for kind, values in numbers.items():
                self.arguments[f"{kind}_{name}"] = torch.tensor(values, dtype=torch.int32).to(device)

    def forward(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return O and the log-sum-exp of rows `q` of q."""
        inputs, arguments = (q[self.q], keys[self.k], values[self.k]), self.arguments | {"return_lse": True}
        if self.is_packed:
            return _ops.fmha_varlen_fwd(*inputs, **arguments)  # type: ignore[no-any-return]
        out, lse = _ops.fmha_fwd(*(x[None] for x in inputs), **arguments)
        return out[0], lse[0]

    def add_backward(
        self, saved: tuple[torch.Tensor, ...], block: list[torch.Tensor], grads: tuple[torch.Tensor, ...]
    ) -> None:
        """Add to dq, dk, dv, given dO, q, O and the log-sum-exp, all of this rank's rows, and k and v."""
        dout, q, out, lse = saved
        dq, dk, dv = grads
        tensors = (
            dout[self.q],
            q[self.q],
            *(x[self.k] for x in block),
            out[self.q],
            lse[:, self.q],
            dq[self.q],
            dk[self.k],
            dv[self.k],
        )
        arguments = self.arguments | {"deterministic": True, "accumulate": True}
        if self.is_packed:
            _ops.fmha_varlen_bwd_out(*tensors, **arguments)
        else:
            _ops.fmha_bwd_out(*(x[None] for x in tensors), **arguments)


@torch.library.custom_op("pyfa_rocm::ring_fwd", mutates_args=())
def _ring_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: Sequence[int],
    zigzag: bool,
    group_name: str,
    causal: bool,
    window_left: int,
    window_right: int,
    softmax_scale: float,
    softcap: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    problem = _problem(lengths, zigzag, group_name, causal, window_left, window_right, softmax_scale, softcap)
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float32, device=q.device)
    lse = torch.full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float32, device=q.device)
    for step, start, block in problem.blocks(k, v):
        for call in problem.calls(problem.peers.rank, problem.peers.before(step)):
            at = _Placed(call, start, q.device, problem.options)
            part, part_lse = at.forward(q, *block)
            _ops.fmha_merge_out(part[None], part_lse[None], out[at.q], lse[:, at.q], accumulate=True)
    return out.to(q.dtype), lse


@_ring_fwd.register_fake
def _(q: Any, k: Any, v: Any, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out = q.new_empty(*q.shape[:-1], v.shape[-1])
    return out, q.new_empty(q.shape[1], q.shape[0], dtype=torch.float32)


@torch.library.custom_op("pyfa_rocm::ring_bwd", mutates_args=())
def _ring_bwd(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
    lse: torch.Tensor, lengths: Sequence[int], zigzag: bool, group_name: str, causal: bool,
    window_left: int, window_right: int, softmax_scale: float, softcap: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    problem = _problem(lengths, zigzag, group_name, causal, window_left, window_right, softmax_scale, softcap)
    peers = problem.peers
    dq, dk, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (q, k, v))
    dout = dout.contiguous()
    returning: _Returning | None = None
    for step, start, block in problem.blocks(k, v):
        dk_part, dv_part = (torch.zeros_like(x, dtype=torch.float32) for x in block)
        for call in problem.calls(peers.rank, peers.before(step)):
            at = _Placed(call, start, q.device, problem.options)
            at.add_backward((dout, q, out, lse), block, (dq, dk_part, dv_part))
        if returning is not None:
            returning.add_to(dk, dv)
        returning = _Returning(problem, step, (dk_part, dv_part))
    if returning is not None:
        returning.add_to(dk, dv)
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


class _Returning:
    """Gradients of a step's keys and values, on their way to the rank that has these."""

    def __init__(self, problem: _Problem, step: int, gradients: tuple[torch.Tensor, torch.Tensor]) -> None:
        peers = problem.peers
        source = peers.before(-step)
        self.start, self.stop = needed(problem.calls(source, peers.rank))
        self._own = None if step else gradients
        if step:
            shapes = tuple(torch.Size((self.stop - self.start, *x.shape[1:])) for x in gradients)
            what = f"gradients of keys and values, step {step},"
            self._message = Message(peers, peers.before(step), gradients, source, shapes, gradients[0], what)

    def add_to(self, dk: torch.Tensor, dv: torch.Tensor) -> None:
        """Add what came for this rank's own rows, once it is there."""
        for total, part in zip((dk, dv), self._own or self._message.wait(), strict=True):
            total[self.start : self.stop] += part


@_ring_bwd.register_fake
def _(dout: Any, q: Any, k: Any, v: Any, *_: Any) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:
    if dlse is not None:
        raise UnsupportedError(
            "lse: got a gradient, expected none: context parallel attention has that of its output; call "
            "lse.detach()"
        )
    gradients: tuple[Any, ...] = (None,) * 3
    if dout is not None:
        gradients = _ops.ring_bwd(dout, *ctx.saved_tensors, *ctx.rest)
    return (*gradients, *(None for _ in ctx.rest))


_ring_fwd.register_autograd(_differentiate, setup_context=_save)
ring_attention = _ring_fwd
