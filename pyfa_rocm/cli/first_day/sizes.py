# SPDX-License-Identifier: MIT OR Apache-2.0
"""How much `first-day` runs: on a card in half an hour, on the software device in minutes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from pyfa_rocm.cli.bench.decode_trial import DecodeTrial
from pyfa_rocm.cli.first_day.workloads import Attention, Decode, Workload
from pyfa_rocm.oracle.forced import Sizes
from pyfa_rocm.oracle.problem import Problem

__all__ = ["DayOne", "card", "software_device"]

_DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True)
class DayOne:
    """The amount that is run.

    Attributes
    ----------
    forced : Sizes
        The sizes of each kernel's random problems.
    rounds : int
        Random problems of each kernel.
    published : tuple of Workload
        Problems of which others published times.
    choices : tuple of Workload
        Problems over which the library's choices are looked at.
    decode : tuple of Workload
        Problems over a KV cache.
    load : Attention
        The problem under which clocks are read.
    load_seconds : float
        How long it runs for that, on a card.
    calls : int
        Calls whose cost is measured.
    minutes : float
        The command begins no step after so many, unless the user names another number.
    """

    forced: Sizes
    rounds: int
    published: tuple[Workload, ...]
    choices: tuple[Workload, ...]
    decode: tuple[Workload, ...]
    load: Attention
    load_seconds: float
    calls: int
    minutes: float


def _both(problem: Problem) -> Iterator[Attention]:
    for direction in _DIRECTIONS:
        yield Attention(problem, direction)


def _published(instinct: bool) -> Iterator[Attention]:
    """Problems of the sources that docs/clock.md names."""
    if not instinct:
        for batch, seqlen, hdim, dtype in (
            (4, 4096, 64, "float16"),
            (4, 4096, 128, "bfloat16"),
            (1, 2048, 128, "bfloat16"),
        ):
            yield from _both(Problem(batch, 32, 32, seqlen, hdim, False, dtype))
        return
    for (batch, nhead), seqlen, causal in product(((1, 32), (4, 64)), (1024, 4096, 8192), (False, True)):
        yield from _both(Problem(batch, nhead, 8, seqlen, 128, causal))
    for causal in (False, True):
        yield from _both(Problem(1, 64, 8, 16384, 128, causal))
    for batch, nhead, seqlen in ((2, 24, 8192), (1, 64, 16384)):
        yield Attention(Problem(batch, nhead, nhead, seqlen, 128, False), "forward")
    for hdim, seqlen in product((64, 128), (1024, 4096, 16384)):
        yield Attention(Problem(16, 16, 16, seqlen, hdim, True), "forward")


def _choices() -> Iterator[Attention]:
    """Problems from one head of a short sequence to a full card, of the types and head dims that most use."""
    heads = ((1, 1), (1, 16), (16, 16))
    for hdim, causal, (batch, nhead), seqlen in product((64, 128), (False, True), heads, (256, 1024, 4096)):
        yield Attention(Problem(batch, nhead, nhead, seqlen, hdim, causal), "forward")
    for hdim, causal, (batch, nhead), seqlen in product((64, 128), (False, True), heads[1:], (512, 4096)):
        yield Attention(Problem(batch, nhead, nhead, seqlen, hdim, causal), "backward")
    for hdim, nhead, seqlen in product((64, 128), (4, 64), (1024, 8192)):
        yield Attention(Problem(1, nhead, nhead // 4, seqlen, hdim, True, "float16"), "forward")


def _decode() -> Iterator[Decode]:
    for batch, context, group in product((1, 16, 64), (1024, 8192, 32768), (1, 8)):
        yield Decode(DecodeTrial.of(batch, context, group, 8, 128, 16, "bfloat16"))


def card(instinct: bool) -> DayOne:
    """Return what a card runs."""
    return DayOne(
        forced=Sizes(longest=600, most_heads=4, runs=3),
        rounds=4,
        published=tuple(_published(instinct)),
        choices=tuple(_choices()),
        decode=tuple(_decode()),
        load=Attention(Problem(4, 64, 8, 8192, 128, False), "forward"),
        load_seconds=5.0,
        calls=200,
        minutes=30.0,
    )


def software_device() -> DayOne:
    """Return what the software device runs: every instruction of the random problems is simulated.

    The clock runs some workgroups of each timed problem.
    """
    published = tuple(_both(Problem(1, 32, 8, 1024, 128, False)))
    return DayOne(
        forced=Sizes(longest=100, most_heads=2, runs=2),
        rounds=1,
        published=published,
        choices=(
            Attention(Problem(1, 16, 16, 512, 64, True), "forward"),
            Attention(Problem(1, 4, 1, 1024, 64, True, "float16"), "forward"),
            Attention(Problem(1, 16, 16, 512, 64, True), "backward"),
        ),
        decode=(Decode(DecodeTrial.of(4, 2048, 8, 2, 128, 16, "bfloat16")),),
        load=published[0],
        load_seconds=0.0,
        calls=20,
        minutes=5.0,
    )
