# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory traffic of our attention and of standard attention, through the same model of an MI300X's caches.

Ours: the accesses of the kernel that ran, counted by the software device. Standard attention has no kernel
here: what it must read and write is written down below, as the accesses of three kernels in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyfa_rocm import array, attention, emulator
from pyfa_rocm.cli.trial import Trial
from pyfa_rocm.device import runtime
from pyfa_rocm.emulator import Access, Caches

MEANING = (
    "our accesses are counted, standard attention's are those of three bfloat16 kernels. How much of them "
    "reaches memory is modelled, with the caches of an MI300X, empty at first."
)
# Rows and columns of S that a workgroup of standard attention makes.
TILE = 128
ELEMENT_BYTES = 2
_ALIGNMENT = 4096
AccessTuple = tuple[int, int, int, int]


def standard_accesses(problem: Trial) -> Iterator[AccessTuple]:
    """What standard attention reads and writes: S = Q K^T, P = softmax(S), O = P V, each a kernel of tiles.

    S and P are whole matrices in memory, in the type of q. A causal mask saves nothing: it is applied to S
    within the second kernel.
    """
    heads, seqlen = problem.batch * problem.nhead_q, problem.seqlen
    group = problem.nhead_q // problem.nhead_k
    row, score_row = problem.hdim * ELEMENT_BYTES, seqlen * ELEMENT_BYTES
    sizes = [heads * seqlen * row] * 4 + [heads * seqlen * score_row] * 2
    bases = [0]
    for size in sizes:
        bases.append(bases[-1] + (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT)
    q, k, v, o, s, p, _ = bases
    tiles = [(first, min(TILE, seqlen - first)) for first in range(0, seqlen, TILE)]
    end = (0, 0, 0, Access.END_OF_KERNEL)
    workgroup = 0
    for head in range(heads):
        mine, shared = head * seqlen, head // group * seqlen  # first rows in q, o, s, p, and in k and v
        for m, rows in tiles:
            for n, columns in tiles:
                yield q + (mine + m) * row, rows * row, workgroup, Access.READ
                yield k + (shared + n) * row, columns * row, workgroup, Access.READ
                for i in range(m, m + rows):
                    to = s + (mine + i) * score_row + n * ELEMENT_BYTES
                    yield to, columns * ELEMENT_BYTES, workgroup, Access.WRITE
                workgroup += 1
    yield end
    blocks = [(head, m, rows) for head in range(heads) for m, rows in tiles]
    for workgroup, (head, m, rows) in enumerate(blocks):
        at = (head * seqlen + m) * score_row
        yield s + at, rows * score_row, workgroup, Access.READ
        yield p + at, rows * score_row, workgroup, Access.WRITE
    yield end
    for workgroup, (head, m, rows) in enumerate(blocks):
        yield p + (head * seqlen + m) * score_row, rows * score_row, workgroup, Access.READ
        yield v + head // group * seqlen * row, seqlen * row, workgroup, Access.READ
        yield o + (head * seqlen + m) * row, rows * row, workgroup, Access.WRITE
    yield end


def _summary(caches: Caches, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "hbm_read_bytes": caches.hbm_read_bytes,
        "hbm_write_bytes": caches.hbm_write_bytes,
        "hbm_bytes": caches.hbm_bytes,
        "past_l2_bytes": caches.l2_fill_bytes + caches.l2_writeback_bytes,
    }


def measure(problem: Trial) -> dict[str, Any] | None:
    """Return the traffic of both, or None on a GPU, which does not say.

    "hbm_bytes" is what reaches the memory, "past_l2_bytes" what the L2s and the rest of the GPU exchange,
    both from cold caches.
    """
    if not runtime().emulated:
        return None
    q, k, v = (array.DeviceArray.from_numpy(x) for x in problem.inputs())
    with emulator.profile() as profile:
        attention.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
    (launch,) = profile.launches
    memory = launch.counted.memory
    ours = _summary(launch.modelled.caches, "counted accesses, modelled caches")
    ours["requested_bytes"] = memory.load_bytes + memory.store_bytes
    ours["flops"] = launch.counted.flops
    standard = emulator.cache_model(standard_accesses(problem))
    return {
        "ours": ours,
        "standard": _summary(standard, "accesses written down for three tiled kernels, modelled caches"),
    }
