# SPDX-License-Identifier: MIT OR Apache-2.0
"""Estimate context parallel attention of a million tokens on 64 MI300X: a table of ranges, none measured.

Assumptions. Eight nodes of eight cards. Inside a node a card has seven links of xGMI with 64 GB/s each, one
to every other card. Between nodes it has 400 Gb/s of its own. Links reach 70 to 100% of that. bfloat16,
causal masks, heads of 128. The kernels have the speed that the clock gives them for a card's own rows, from
its slow to its fast end: unmasked in the steps of a ring, causal for Ulysses, whose sequences are longer than
those that the clock is asked about. A merge reads and writes float32 at 60 to 90% of 5.3 TB/s.

A ring's step takes as long as the longer of its kernel with its merge, and the keys that come meanwhile. In a
ring of all cards, keys cross nodes in all steps but seven; rings of both lie across nodes. In each step some
rank needs all keys of another, and the others wait for it. Exchanges of heads wait for all data.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import subjects
from pyfa_rocm.emulator import Range
from pyfa_rocm.oracle.problem import Problem

CARDS, NODE = 64, 8
HDIM, BYTES = 128, 2
XGMI, NETWORK, MEMORY = 64e9, 400e9 / 8, 5.3e12
LINKS, MEMORY_SHARE = Range(0.7, 1.0), Range(0.6, 0.9)


@dataclass(frozen=True)
class Layout:
    """A grid of cards: `rings` between which keys travel, times `heads` that exchange heads."""

    name: str
    rings: int
    heads: int


LAYOUTS = (Layout("ring 64", 64, 1), Layout("Ulysses 64", 1, 64), Layout("ring 8 x Ulysses 8", 8, 8))


@dataclass(frozen=True)
class Model:
    """A forward pass of one layer, at one end of all ranges.

    Attributes
    ----------
    problem : Problem
        The whole sequence.
    unmasked, causal : float
        Operations a second of a kernel.
    links, memory : float
        Shares of what links and memory could do.
    """

    problem: Problem
    unmasked: float
    causal: float
    links: float
    memory: float

    def seconds(self, layout: Layout) -> tuple[float, float, float]:
        """Return the time of kernels and merges, of communication nothing hides, and of both."""
        problem, flops = self.problem, self.problem.flops() / CARDS
        exchanged = self._exchange(layout)
        if layout.rings == 1:
            busy = flops / self.causal
            return busy, exchanged, busy + exchanged
        rows, heads = problem.seqlen // layout.rings, problem.nhead_q // layout.heads
        merge = rows * heads * HDIM * (2 * 4 + BYTES) / (self.memory * MEMORY)
        step = flops / layout.rings / self.unmasked + merge
        keys = max(1, problem.nhead_k // layout.heads)
        sent = 2 * rows * keys * HDIM * BYTES
        near = NODE - 1 if layout.rings > CARDS // NODE else 0
        waits = [
            max(0.0, sent / (self.links * (XGMI if i < near else NETWORK)) - step)
            for i in range(layout.rings - 1)
        ]
        busy, exposed = step * layout.rings, sum(waits) + exchanged
        return busy, exposed, busy + exposed

    def _exchange(self, layout: Layout) -> float:
        """Return the time of exchanging q, k, v and O for heads."""
        if layout.heads == 1:
            return 0.0
        rows = self.problem.seqlen // CARDS
        heads = 2 * self.problem.nhead_q + 2 * max(self.problem.nhead_k, layout.heads)
        sent = rows * heads * HDIM * BYTES / layout.heads  # to each other card
        near = sent / (self.links * XGMI)  # over a link of its own
        far = sent * (layout.heads - NODE) / (self.links * NETWORK)
        return max(near, far)


def speeds(problem: Problem) -> dict[bool, Range]:
    """Return the operations a second, as the clock has them, without a mask and with a causal one."""
    ours = next(iter(subjects().values()))
    found = {}
    for causal in (False, True):
        shape = replace(problem, seqlen=problem.seqlen // CARDS, causal=causal)
        tflops = estimate(ours, shape).tflops
        found[causal] = Range(tflops.low * 1e12, tflops.high * 1e12)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2**20, metavar="N", help="default: 1048576")
    parser.add_argument("--heads", type=int, nargs=2, default=(64, 8), metavar="N", help="of q and k: 64 8")
    args = parser.parse_args()
    problem = Problem(1, *args.heads, args.tokens, HDIM, True)
    speed = speeds(problem)
    ends = [
        Model(problem, speed[False].low, speed[True].low, LINKS.low, MEMORY_SHARE.low),
        Model(problem, speed[False].high, speed[True].high, LINKS.high, MEMORY_SHARE.high),
    ]
    print(__doc__)
    print(f"{args.tokens} tokens, {args.heads[0]} heads of q, {args.heads[1]} of k; milliseconds, forward\n")
    print(f"{'':20}{'kernels, merges':>20}{'waiting':>20}{'together':>20}")
    for layout in LAYOUTS:
        slow, fast = (model.seconds(layout) for model in ends)
        cells = (f"{a * 1e3:.1f} to {b * 1e3:.1f}" for a, b in zip(fast, slow, strict=True))
        print(f"{layout.name:20}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
