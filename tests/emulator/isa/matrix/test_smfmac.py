# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sparse matrix instructions: D += A B, where A stores two of every four elements along k."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...support import rows
from ...support.asm import LANES, Case, Result, Suite
from ...support.findings import Kernels
from ...support.fp import Array
from .test_mfma import DTYPES

SUITE = Suite("smfmac")
LANE = np.arange(LANES)
PAIRS = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])  # places that ascend


@dataclass(frozen=True)
class Sparse:
    """A sparse instruction's sizes and types, read from its name."""

    name: str
    m: int
    k: int
    out: str
    a: str
    b: str

    @property
    def groups(self) -> int:
        """Groups of lanes: each holds `k / groups` consecutive k of all rows."""
        return LANES // self.m

    @property
    def in_lane(self) -> int:
        """Elements of B in a lane; A has half of them."""
        return self.k // self.groups

    @property
    def sets(self) -> int:
        """Sets of indices a register holds."""
        return 32 // self.in_lane


def parse(name: str) -> Sparse:
    """v_smfmac_f32_16x16x64_bf8_fp8."""
    match = re.fullmatch(r"v_smfmac_(f32|i32)_(\d+)x\d+x(\d+)_([a-z]+\d+)(?:_([a-z]+\d+))?", name)
    assert match, name
    return Sparse(name, int(match[2]), int(match[3]), match[1], match[4], match[5] or match[4])


@dataclass
class Operands:
    """Stored A (m, k/2), its places in each four (m, k/4, 2), dense B (k, m) and C (m, m)."""

    a: Array
    places: Array
    b: Array
    c: Array

    def dense(self) -> Array:
        """A with its zeros, as float64."""
        m, half = self.a.shape
        out = np.zeros((m, half * 2))
        for i in range(m):
            for e in range(half):
                out[i, e // 2 * 4 + self.places[i, e // 2, e % 2]] = self.a[i, e]
        return out


def _to_lanes(s: Sparse, matrix: Array) -> Array:
    """(m, elements along k) as registers (dwords, lanes): each group of lanes has consecutive elements."""
    count = matrix.shape[1] // s.groups
    lanes = np.stack([matrix[lane % s.m, lane // s.m * count :][:count] for lane in LANE])
    return np.ascontiguousarray(np.ascontiguousarray(lanes).view(np.uint32).T)


def _indices(s: Sparse, places: Array, which: int) -> Array:
    """The index register, with other indices that are in order in the sets not used."""
    flat = places.reshape(s.m, -1)
    count = flat.shape[1] // s.groups
    other = int("".join(["1110"] * (s.in_lane // 4)), 2)
    out = np.zeros(LANES, np.uint32)
    for lane in LANE:
        own = flat[lane % s.m, lane // s.m * count :][:count]
        bits = sum(int(p) << 2 * i for i, p in enumerate(own))
        out[lane] = sum((bits if n == which else other) << n * s.in_lane for n in range(s.sets))
    return out


def _spread(s: Sparse, c: Array) -> Array:
    """(m, m) as registers (registers, lanes), four rows of a column after each other."""
    count = s.m * s.m // LANES
    out = np.zeros((count, LANES), c.dtype)
    for lane in LANE:
        for r in range(count):
            out[r, lane] = c[r // 4 * 4 * s.groups + 4 * (lane // s.m) + r % 4, lane % s.m]
    return out


def _operands(s: Sparse, seed: int, small: bool) -> Operands:
    rng = np.random.default_rng(seed)
    shapes = ((s.m, s.k // 2), (s.k, s.m), (s.m, s.m))
    if s.out == "i32":
        top = 5 if small else 127
        a, b = (rng.integers(-top, top + 1, x).astype(np.int8) for x in shapes[:2])
        c = rng.integers(-(1 << 31) if not small else -50, 1 << 31 if not small else 50, shapes[2]).astype(
            np.int32
        )
    elif small:
        a, b = (rng.integers(-4, 5, x).astype(DTYPES[t]) for x, t in zip(shapes, (s.a, s.b), strict=False))
        c = rng.integers(-100, 101, shapes[2]).astype(np.float32)
    else:
        a, b = (rng.normal(0, 2, x).astype(DTYPES[t]) for x, t in zip(shapes, (s.a, s.b), strict=False))
        c = rng.normal(0, 2, shapes[2]).astype(np.float32)
    return Operands(a, PAIRS[rng.integers(0, len(PAIRS), (s.m, s.k // 4))], b, c)


def _registers(bank: str, first: int, count: int) -> str:
    return f"{bank}[{first}:{first + count - 1}]"


def _add(
    s: Sparse,
    label: str,
    o: Operands,
    want: Array,
    bound: Array | None,
    text: str = "",
    which: int = 0,
    banks: str = "vvv",
    exec_mask: int = 0xFFFF_FFFF_FFFF_FFFF,
) -> None:
    d = _registers(banks[0], 64, s.m * s.m // LANES)
    of_a = s.in_lane // 2 * o.a.itemsize // 4  # 2 registers, or 4 of the deeper ones
    a, b = _registers(banks[1], 2, of_a), _registers(banks[2], 12, 2 * of_a)
    expected = _spread(s, want)
    limit = None if bound is None else _spread(s, bound)

    def check(result: Result) -> None:
        got = result[d].view(o.c.dtype)
        if limit is None:
            np.testing.assert_array_equal(got, expected.astype(got.dtype))
        else:
            assert (np.abs(got - expected) <= limit).all()

    SUITE.add(
        f"{s.name}-{label}",
        ["s_nop 4", f"{s.name} {d}, {a}, {b}, v20{text}", "s_nop 7", "s_nop 7", "s_nop 7"],
        [d],
        check,
        {
            a: _to_lanes(s, o.a),
            b: _to_lanes(s, np.ascontiguousarray(o.b.T)),
            "v20": _indices(s, o.places, which),
            d: _spread(s, o.c).view(np.uint32),
        },
        {"exec": exec_mask},
        covers=[s.name],
    )


def _exact(o: Operands) -> Array:
    return o.dense() @ o.b.astype(np.float64) + o.c.astype(np.float64)


def _random(s: Sparse) -> None:
    o = _operands(s, 7, small=False)
    if s.out == "i32":
        total = o.dense().astype(np.int64) @ o.b.astype(np.int64) + o.c
        want = (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        return _add(s, "random", o, want, None)
    size = np.abs(o.dense()) @ np.abs(o.b.astype(np.float64)) + np.abs(o.c)
    # k / 2 products, each added with one rounding of a partial sum no larger than `size`.
    return _add(s, "random", o, _exact(o), (s.k // 2 + 1) * (2.0**-24 + s.k * 2.0**-53) * size)


def _left_out(s: Sparse) -> None:
    """B's elements meet no zeros where A has none: infinities there change nothing."""
    o = _operands(s, 5, small=True)
    o.places[:] = (1, 3)
    o.b[0::4], o.b[2::4] = np.nan, np.inf if s.b != "fp8" and s.b != "bf8" else np.nan
    finite = o.b.astype(np.float64)
    finite[0::4] = finite[2::4] = 0
    _add(s, "left-out", o, o.dense() @ finite + o.c, None)


def _build() -> None:
    for name in sorted(n for n in rows.names() if n.startswith("v_smfmac")):
        s = parse(name)
        o = _operands(s, s.k + s.m, small=True)
        for label, options in (
            ("integers", {}),
            ("agpr", {"banks": "avv"}),
            ("agpr-inputs", {"banks": "vaa"}),
            ("exec", {"exec_mask": 0x8000_0000_0000_1230}),
            ("cbsz", {"text": " cbsz:1 abid:1"}),
            *((f"abid{n}", {"text": f" abid:{n}", "which": n}) for n in range(1, s.sets)),
        ):
            _add(s, label, o, _exact(o), None, **options)  # type: ignore[arg-type]
        _random(s)
        if s.out == "f32":
            _left_out(s)


_build()


@SUITE.parametrize()
def test_smfmac(case: Case) -> None:
    """D += A B."""
    SUITE.check(case)


def _with_indices(value: int) -> list[str]:
    zero = [f"v_mov_b32 v{i}, 0" for i in (*range(2, 4), *range(12, 16), *range(64, 68))]
    line = "v_smfmac_f32_16x16x32_f16 v[64:67], v[2:3], v[12:15], v20"
    return [*zero, f"v_mov_b32 v20, {value}", "s_nop 4", line, "s_nop 7"]


def test_indices_must_ascend() -> None:
    """The manual asks that the first of two places comes before the second; 0 says both are place 0."""
    kernels = Kernels({"bad": _with_indices(0), "good": _with_indices(0x4E)})
    assert "indices in bits 0..3 are 0 and 0, which do not ascend" in kernels.finding("bad")
    kernels.run("good")
