# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory traffic of our attention and of standard attention, through the same model of an MI300X's caches.

Ours: the accesses of the kernels that ran, counted by the software device. Standard attention has no kernels
here: what they must read and write is written down below, as the accesses of kernels of tiles in 16 bits.
Forward: S = Q K^T, P = softmax(S), O = P V. Backward, with P kept: dP = dO V^T, dS = P (dP - rowsum(P dP)),
dQ = dS K, dK = dS^T Q, dV = P^T dO. A mask saves nothing: it is applied to S within the second kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyfa_rocm import array, attention, backward, emulator
from pyfa_rocm.device import runtime
from pyfa_rocm.emulator import Access, Caches, LaunchProfile
from pyfa_rocm.oracle.problem import Problem

MEANING = (
    "our accesses are counted, standard attention's are those of three bfloat16 kernels. How much of them "
    "reaches memory is modelled, with the caches of an MI300X, empty at first."
)
# Rows and columns of S that a workgroup of standard attention makes.
TILE = 128
ELEMENT_BYTES = 2
_ALIGNMENT = 4096
AccessTuple = tuple[int, int, int, int]
_SOURCE = "accesses written down for tiled kernels, modelled caches"


_END = (0, 0, 0, Access.END_OF_KERNEL)


@dataclass(frozen=True)
class _Matrix:
    """A matrix of each head in memory: where the first is, bytes of a row, and how many heads share one."""

    start: int
    row_bytes: int
    seqlen: int
    shared_by: int = 1

    def rows(self, head: int, first: int, count: int, workgroup: int, kind: Access) -> AccessTuple:
        """Access whole rows, which lie side by side."""
        at = self.start + (head // self.shared_by * self.seqlen + first) * self.row_bytes
        return at, count * self.row_bytes, workgroup, kind

    def tile(
        self, head: int, rows: tuple[int, int], columns: tuple[int, int], workgroup: int, kind: Access
    ) -> Iterator[AccessTuple]:
        """Access some columns of some rows, each as (first, count)."""
        at, _, _, _ = self.rows(head, rows[0], rows[1], workgroup, kind)
        for i in range(rows[1]):
            row = at + i * self.row_bytes + columns[0] * ELEMENT_BYTES
            yield row, columns[1] * ELEMENT_BYTES, workgroup, kind


class _Standard:
    """The kernels of standard attention for a problem, and the matrices in memory, one after the other."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.heads = problem.batch * problem.nhead_q
        self.group = problem.nhead_q // problem.nhead_k
        seqlen = problem.seqlen
        self.tiles = [(first, min(TILE, seqlen - first)) for first in range(0, seqlen, TILE)]
        self._end = 0

    def matrix(self, columns: int, shared_by: int = 1) -> _Matrix:
        """Place a matrix with as many rows as there are positions."""
        start, row, seqlen = self._end, columns * ELEMENT_BYTES, self.problem.seqlen
        nbytes = self.heads // shared_by * seqlen * row
        self._end = start + (nbytes + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        return _Matrix(start, row, seqlen, shared_by)

    def outer(self, left: _Matrix, right: _Matrix, to: _Matrix) -> Iterator[AccessTuple]:
        """Make a score matrix, left right^T: a workgroup for each tile of it."""
        workgroup = 0
        for head in range(self.heads):
            for rows in self.tiles:
                for columns in self.tiles:
                    yield left.rows(head, *rows, workgroup, Access.READ)
                    yield right.rows(head, *columns, workgroup, Access.READ)
                    yield from to.tile(head, rows, columns, workgroup, Access.WRITE)
                    workgroup += 1
        yield _END

    def by_rows(
        self, inputs: list[_Matrix], to: _Matrix, all_of: _Matrix | None = None
    ) -> Iterator[AccessTuple]:
        """Make a tile of rows in each workgroup: of the same rows of inputs, and all of another matrix."""
        blocks = [(head, rows) for head in range(self.heads) for rows in self.tiles]
        for workgroup, (head, rows) in enumerate(blocks):
            for matrix in inputs:
                yield matrix.rows(head, *rows, workgroup, Access.READ)
            if all_of is not None:
                yield all_of.rows(head, 0, self.problem.seqlen, workgroup, Access.READ)
            yield to.rows(head, *rows, workgroup, Access.WRITE)
        yield _END

    def by_columns(self, scores: _Matrix, right: _Matrix, to: _Matrix) -> Iterator[AccessTuple]:
        """Make scores^T right: a workgroup for each tile of rows of it, over all heads that share them."""
        blocks = [(head, keys) for head in range(0, self.heads, self.group) for keys in self.tiles]
        for workgroup, (first, keys) in enumerate(blocks):
            for head in range(first, first + self.group):
                yield from scores.tile(head, (0, self.problem.seqlen), keys, workgroup, Access.READ)
                yield right.rows(head, 0, self.problem.seqlen, workgroup, Access.READ)
            yield to.rows(first, *keys, workgroup, Access.WRITE)
        yield _END


def standard_accesses(problem: Problem) -> Iterator[AccessTuple]:
    """Yield what standard attention reads and writes forward: three kernels of tiles.

    S and P are whole matrices in memory, in the type of q.
    """
    standard, hdim, seqlen = _Standard(problem), problem.hdim, problem.seqlen
    q, k, v = (standard.matrix(hdim, shared) for shared in (1, standard.group, standard.group))
    o, s, p = standard.matrix(hdim), standard.matrix(seqlen), standard.matrix(seqlen)
    yield from standard.outer(q, k, s)
    yield from standard.by_rows([s], p)
    yield from standard.by_rows([p], o, v)


def standard_backward_accesses(problem: Problem) -> Iterator[AccessTuple]:
    """Yield what standard attention reads and writes backward: five kernels of tiles.

    P, kept since the forward pass, dP and dS are whole matrices in memory, in the type of q.
    """
    standard, hdim, seqlen = _Standard(problem), problem.hdim, problem.seqlen
    q, dout, dq = (standard.matrix(hdim) for _ in range(3))
    k, v, dk, dv = (standard.matrix(hdim, standard.group) for _ in range(4))
    p, dp, ds = (standard.matrix(seqlen) for _ in range(3))
    yield from standard.outer(dout, v, dp)
    yield from standard.by_rows([p, dp], ds)
    yield from standard.by_rows([ds], dq, k)
    yield from standard.by_columns(ds, q, dk)
    yield from standard.by_columns(p, dout, dv)


def _summary(caches: Caches, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "hbm_read_bytes": caches.hbm_read_bytes,
        "hbm_write_bytes": caches.hbm_write_bytes,
        "hbm_bytes": caches.hbm_bytes,
        "past_l2_bytes": caches.l2_fill_bytes + caches.l2_writeback_bytes,
    }


def _ours(launches: list[LaunchProfile]) -> dict[str, Any]:
    """Sum up what launches did. Each starts with cold caches in the model, as after other work on a GPU."""
    if not launches:
        raise ValueError("no launch was counted")
    caches = [launch.modelled.caches for launch in launches]
    total = Caches(**{name: sum(getattr(x, name) for x in caches) for name in Caches.__dataclass_fields__})
    memory = [launch.counted.memory for launch in launches]
    return _summary(total, "counted accesses, modelled caches") | {
        "requested_bytes": sum(x.load_bytes + x.store_bytes + x.atomic_bytes for x in memory),
        "flops": sum(launch.counted.flops for launch in launches),
        "instructions": sum(launch.counted.instructions["total"] for launch in launches),
        "launches": [launch.kernel for launch in launches],
    }


def measure(problem: Problem) -> dict[str, Any] | None:
    """Return the traffic of both, forward, or None on a GPU, which does not say.

    "hbm_bytes" is what reaches the memory, "past_l2_bytes" what the L2s and the rest of the GPU exchange,
    both from cold caches.
    """
    if not runtime().emulated:
        return None
    q, k, v = (array.DeviceArray.from_numpy(x) for x in problem.inputs())
    with emulator.profile() as profile:
        attention.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
    standard = emulator.cache_model(standard_accesses(problem))
    return {"ours": _ours(profile.launches), "standard": _summary(standard, _SOURCE)}


def measure_backward(problem: Problem) -> dict[str, Any] | None:
    """Return the traffic of both, backward; memsets, which are no launches, are not in ours."""
    if not runtime().emulated:
        return None
    q, k, v = (array.DeviceArray.from_numpy(x) for x in problem.inputs())
    dout = array.DeviceArray.from_numpy(problem.dout())
    out, lse = attention.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
    with emulator.profile() as profile:
        backward.flash_attn_bwd(dout, q, k, v, out, lse, causal=problem.causal)
    standard = emulator.cache_model(standard_backward_accesses(problem))
    return {"ours": _ours(profile.launches), "standard": _summary(standard, _SOURCE)}
