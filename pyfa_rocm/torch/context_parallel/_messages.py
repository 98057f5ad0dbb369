# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows on their way from rank to rank, while kernels run.

torch's process groups copy on a stream of their own where the device has streams, and in threads of their own
where it has none. Waiting for a message lets the current stream wait, or, on the CPU, the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["Message", "Peers", "exchange_rows", "group_of", "peers_of"]


@dataclass(frozen=True)
class Peers:
    """A process group, as one of its ranks sees it; None: only this rank."""

    group: distributed.ProcessGroup | None
    rank: int
    size: int

    def before(self, steps: int) -> int:
        """Return the rank so many steps before this one, around the ring."""
        return (self.rank - steps) % self.size

    def global_rank(self, rank: int) -> int:
        """Return the number by which torch's point-to-point calls know a rank of the group."""
        assert self.group is not None  # nobody else is there to send to
        return int(distributed.get_global_rank(self.group, rank))

    def describe(self, error: RuntimeError, what: str) -> RuntimeError:
        """Return the error of a message that did not arrive, which says whose it is."""
        return RuntimeError(
            f"context parallel, rank {self.rank} of {self.size}: {what}; has that process died, or is it "
            f"slower than the group's timeout? {error}"
        )


def group_of(name: str, group: Any) -> Any:
    """Return the process group of a group or of a DeviceMesh with one dimension; None: only this rank."""
    if group is None or isinstance(group, distributed.ProcessGroup):
        return group
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise InvalidArgumentError(
                f"{name}: got a DeviceMesh of {group.ndim} dimensions, expected 1: name one of them, as "
                f'mesh["{name}"]'
            )
        return group.get_group()
    raise TypeError(f"{name}: got {type(group).__name__}, expected a ProcessGroup, a DeviceMesh or None")


def peers_of(group_name: str) -> Peers:
    """Return the group of a name; "": only this rank."""
    if not group_name:
        return Peers(None, 0, 1)
    group = torch._C._distributed_c10d._resolve_process_group(group_name)
    return Peers(group, distributed.get_rank(group), distributed.get_world_size(group))


class Message:
    """Tensors on their way to one rank, and others from one, which come in one piece each.

    Parameters
    ----------
    peers : Peers
        The group.
    to, sent : int and tensors
        Who gets what; no tensors: nobody gets any.
    source, shapes : int and shapes
        Who sends tensors of which shapes; no shapes: nobody does.
    like : torch.Tensor
        A tensor whose type and device all of them have.
    what : str
        What comes, for an error.
    """

    def __init__(
        self,
        peers: Peers,
        to: int,
        sent: tuple[torch.Tensor, ...],
        source: int,
        shapes: tuple[torch.Size, ...],
        like: torch.Tensor,
        what: str,
    ) -> None:
        self._peers, self._what, self._shapes = peers, f"{what} of rank {source}", shapes
        operations = []
        # Bytes, since not every backend knows every type.
        if sum(x.numel() for x in sent):
            self._sent = torch.cat([x.reshape(-1) for x in sent]).view(torch.uint8)
            operations.append(self._operation(distributed.isend, self._sent, to))
        count = sum(shape.numel() for shape in shapes)
        self._received = torch.empty(count, dtype=like.dtype, device=like.device)
        if count:
            operations.append(self._operation(distributed.irecv, self._received.view(torch.uint8), source))
        try:
            self._work = distributed.batch_isend_irecv(operations) if operations else []
        except RuntimeError as error:
            raise peers.describe(error, f"could not ask for the {self._what}") from error

    def _operation(self, kind: Any, tensor: torch.Tensor, rank: int) -> distributed.P2POp:
        return distributed.P2POp(kind, tensor, self._peers.global_rank(rank), self._peers.group)

    def wait(self) -> list[torch.Tensor]:
        """Return what came, once it is there and what was sent is gone."""
        try:
            for work in self._work:
                work.wait()
        except RuntimeError as error:
            raise self._peers.describe(error, f"the {self._what} did not arrive") from error
        parts = self._received.split([shape.numel() for shape in self._shapes])
        return [x.view(shape) for x, shape in zip(parts, self._shapes, strict=True)]


def exchange_rows(peers: Peers, x: torch.Tensor, received: list[int], sent: list[int]) -> torch.Tensor:
    """Send `sent[i]` of the first dimension's rows to rank i, and return the `received[i]` rows of each."""
    out = x.new_empty(sum(received), *x.shape[1:])
    row = math.prod(x.shape[1:]) * x.element_size()
    try:
        distributed.all_to_all_single(
            out.view(-1).view(torch.uint8),
            x.contiguous().view(-1).view(torch.uint8),
            [n * row for n in received],
            [n * row for n in sent],
            group=peers.group,
        )
    except RuntimeError as error:
        raise peers.describe(error, "an exchange of rows with the other ranks failed") from error
    return out
