# SPDX-License-Identifier: MIT OR Apache-2.0
"""Published measurements on an MI300X and an MI355X, by which the clock is judged.

The numbers are in `data/*.csv`, as published; `data/sources.json` says where they are from. A row's role
was said before the model saw it: "calibration" rows may be fitted on, "held_out" rows only judge. There is
one row of calibration for each source and family of kernels on an MI300X, and none on an MI355X. Besides,
each card has one backward row for the rate of atomics.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyfa_rocm.oracle.problem import Problem

__all__ = ["ATOMICS", "Point", "cards", "points", "sources"]

# Its backward row with float32 sums gives each card's rate of atomics.
ATOMICS = Problem(4, 64, 8, 8192, 128, False)
_FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Point:
    """A measurement.

    Attributes
    ----------
    source : str
        A key of :func:`sources`.
    card : str
        "mi300x" or "mi355x".
    implementation : str
        "aiter", "moonmath", "ck" or "triton".
    rounding : str
        Rounding of P to bfloat16: "rtz", "rtna", "rtne"; "" if the kernel has only one. For a backward pass
        "a16" or "a32", the type in which dQ is added up, and the rounding if there are several.
    direction : str
        "forward" or "backward".
    tflops : float
        By the field's count of operations.
    role : str
        "calibration" or "held_out".
    matrix_busy, lds_busy : float or None
        Counters, from 0 to 1: the share of the launch in which the matrix cores and LDS work.
    copied_bytes : int
        Bytes that a copy reads and writes, if the source times it with the kernel.
    """

    source: str
    card: str
    implementation: str
    rounding: str
    shape: Problem
    direction: str
    tflops: float
    role: str
    matrix_busy: float | None = None
    lds_busy: float | None = None
    copied_bytes: int = 0

    @property
    def seconds(self) -> float:
        """The time that it took."""
        return self.shape.flops(self.direction) / self.tflops / 1e12


def sources() -> dict[str, dict[str, str]]:
    """Return what is known of each source: title, repository, commit, path."""
    value: dict[str, dict[str, str]] = json.loads((_FOLDER / "sources.json").read_text())
    return value


def _rows(table: str) -> Iterator[dict[str, Any]]:
    lines = (_FOLDER / f"{table}.csv").read_text().splitlines()
    return csv.DictReader(line for line in lines if not line.startswith("#"))


def _aiter_readme(card: str) -> Iterator[Point]:
    name = "aiter_readme"
    # For an MI355X AITER has one kernel each, which rounds to the nearest even.
    of_card = sources()[name] if card == "mi300x" else {}
    rounding, backward = of_card.get("rounding", ""), of_card.get("backward_rounding", "")
    for row in _rows(f"{name}_{card}"):
        sizes = [int(row[key]) for key in ("batch", "nhead_q", "nhead_k", "seqlen", "hdim")]
        batch, nhead_q, nhead_k, seqlen, hdim = sizes
        shape = Problem(batch, nhead_q, nhead_k, seqlen, hdim, row["causal"] == "1")
        yield Point(name, card, "aiter", rounding, shape, "forward", float(row["forward"]), row["role"])
        for kind in ("a16", "a32"):
            tflops = float(row[f"backward_{kind}"])
            role = "calibration" if (kind, shape) == ("a32", ATOMICS) else "held_out"
            kernel = f"{kind} {backward}".strip()
            yield Point(name, card, "aiter", kernel, shape, "backward", tflops, role)


def _moonmath() -> Iterator[Point]:
    for row in _rows("moonmath"):
        nhead = int(row["nhead"])
        shape = Problem(int(row["batch"]), nhead, nhead, int(row["seqlen"]), 128, False)
        for implementation in ("moonmath", "aiter"):
            role = row["role"] if implementation == "aiter" else "held_out"
            tflops = shape.flops() / (float(row[implementation]) * 1e-3) / 1e12
            yield Point("moonmath", "mi300x", implementation, row["rounding"], shape, "forward", tflops, role)


def _attn_dsl_bench() -> Iterator[Point]:
    name = "attn_dsl_bench"
    for row in _rows(name):
        implementation = row["implementation"]
        shape = Problem(16, 16, 16, int(row["seqlen"]), int(row["hdim"]), True)
        rounding = sources()[name]["rounding"] if implementation == "aiter" else ""
        tflops = shape.flops() / (float(row["milliseconds"]) * 1e-3) / 1e12
        matrix, lds = (float(row[key]) / 100 if row[key] else None for key in ("mfma_util", "lds_util"))
        # AITER's call copies O, which it reads and writes. Triton's does not.
        elements = shape.batch * shape.nhead_q * shape.seqlen * shape.hdim
        copied = 0 if implementation == "triton" else 2 * 2 * elements
        yield Point(
            name, "mi300x", implementation, rounding, shape, "forward", tflops, row["role"],
            matrix, lds, copied,
        )  # fmt: skip


def points() -> list[Point]:
    """Return all of them, those of a card together, in the order of their tables."""
    return [*_aiter_readme("mi300x"), *_moonmath(), *_attn_dsl_bench(), *_aiter_readme("mi355x")]


def cards() -> tuple[str, ...]:
    """Return the cards that have points."""
    return tuple(dict.fromkeys(point.card for point in points()))
