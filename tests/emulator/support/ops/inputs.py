# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values for the registers of a row: edges of its types and random ones, a wave of them."""

from __future__ import annotations

import numpy as np

from .. import fp
from ..asm import LANES
from ..fp import Array
from .valu import READS_DST, Op, dwords

_U = np.uint32
SOURCES = ("v2", "v6", "v10")


def _bits(kind: str, rng: np.random.Generator) -> list[Array]:
    """A dword or two of 64 values; a 16-bit type fills both halves."""
    if kind == "mask":
        kind = "u32"
    if kind == "pf16":  # only v_dot2c has them here: small integers, whose sums are exact in any order
        return [rng.integers(-8, 9, (LANES, 2)).astype(np.float16).view(_U)[:, 0]]
    edges = fp.edges(kind)
    count = min(len(edges), LANES // 2)
    many = fp.random_bits(kind, 2 * LANES, rng)
    first = np.arange(2 * LANES) % LANES < count
    values = np.where(first, rng.permutation(np.resize(edges, 2 * LANES)), many)
    if values.dtype.itemsize == 2:
        return [rng.permutation(values[:LANES]).astype(_U) | values[LANES:].astype(_U) << _U(16)]
    values = rng.permutation(values[:LANES])
    if dwords(kind) == 2:
        return [(values & np.uint64(0xFFFFFFFF)).astype(_U), (values >> np.uint64(32)).astype(_U)]
    return [values.astype(_U)]


def registers_of(model: Op, seed: int) -> dict[str, Array]:
    """The vector registers that a line of this row may read, and v[40:41] for what v[8:9] holds before."""
    rng = np.random.default_rng([seed, *model.name.encode()])
    found = {n: rng.integers(0, 1 << 32, LANES, dtype=_U) for n in ("v3", "v7", "v11", "v41", "v255")}
    kinds = [*zip(SOURCES, model.srcs, strict=False)]
    kinds.append(("v40", model.dst if READS_DST in model.flags else "u32"))
    exact = READS_DST in model.flags and "pf16" in model.srcs
    for name, kind in kinds:
        parts = _bits(kind, rng)
        found |= {f"v{int(name[1:]) + i}": part for i, part in enumerate(parts)}
    if exact:
        found["v40"] = rng.integers(-64, 65, LANES).astype(np.float32).view(_U)
    if any(k in ("f16", "pf16") for k in model.srcs):
        found["v255"] = _bits("pf16", rng)[0]
    return found
