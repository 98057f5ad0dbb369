# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers out of range in the device's arrays of packed sequences, which say where each lies.

The table in fmha_rocm.h says how each is read. A call is compared, byte for byte, with calls of one
sequence each, on the numbers that the table puts in place; around the rows of every tensor there are more,
which nobody may write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from cases_place import bits
from cases_types import DTYPES
from strict import forgiven, races_allowed

import pyfa_rocm
from pyfa_rocm import BwdParams, DeviceArray, FwdParams, Lse, Strided, UnsupportedError

GARBAGE = (-1, -(2**31), 2**31 - 1, 10**6)
BATCH, NHEAD, GUARD = 3, 2, 5  # GUARD: rows before and after those that the call is told of
MOST = {"q": 40, "k": 70}  # of a sequence
TOTAL = {"q": 84, "k": 134}  # the last rows are of no sequence
STARTS = {"q": (0, 30, 50, 80), "k": (0, 60, 61, 129)}
USED = {"q": (30, 7, 28), "k": (50, 1, 0)}
READ, WRITTEN = ("q", "k", "v", "dout"), ("o", "lse", "dq", "dk", "dv")
Arrays = dict[str, tuple[int, ...]]
Rows = tuple[int, int]  # the first, and how many
Pools = dict[str, Any]


def side_of(name: str) -> str:
    """Return "k" of a tensor whose rows are keys, else "q"."""
    return "k" if name in ("k", "v", "dk", "dv") else "q"


class Call:
    """One of either pass, with a kernel by its number."""

    def __init__(self, backward: bool, dtype: str, hdim: int, kernel: int) -> None:
        self.backward, self.dtype, self.hdim, self.kernel = backward, dtype, hdim, kernel

    @cache  # noqa: B019
    def pools(self) -> Pools:
        """Return what the memory holds before: random numbers, those of the guards too."""
        rng = np.random.default_rng(1)
        pools: Pools = {}
        for name in (*READ, *WRITTEN):
            rows = TOTAL[side_of(name)] + 2 * GUARD
            if name == "lse":  # of each head a row, and one before and after
                pools[name] = 5 + rng.random((NHEAD + 2, TOTAL["q"] + 2 * GUARD), np.float32)
            else:
                elements = rng.standard_normal((rows, NHEAD, self.hdim), np.float32)
                pools[name] = elements.astype(DTYPES[self.dtype])
        return pools

    def params(self, arrays: Arrays, held: dict[str, DeviceArray]) -> FwdParams:
        """Return the forward call, on device memory that `held` keeps."""
        for name, host in self.pools().items():
            held[name] = DeviceArray.from_numpy(host)
        for name, numbers in arrays.items():
            held[name] = DeviceArray.from_numpy(np.array(numbers, np.int32))
        lse_row = TOTAL["q"] + 2 * GUARD
        lse = Lse(int(held["lse"].data) + (lse_row + GUARD) * 4, 0, lse_row)
        q, k, v, o = (self.rows(held[name]) for name in "qkvo")
        given: Any = {name: int(held[name].data) for name in arrays}
        return FwdParams(
            self.dtype, len(arrays["cu_seqlens_q"]) - 1, MOST["q"], MOST["k"], NHEAD, NHEAD, self.hdim,
            self.hdim, 0.1, q, k, v, o, lse=lse, mask="causal", total_q=TOTAL["q"], total_k=TOTAL["k"],
            kernel=0 if self.backward else self.kernel, **given,
        )  # fmt: skip

    def rows(self, pool: DeviceArray) -> Strided:
        row = NHEAD * self.hdim
        itemsize = np.dtype(DTYPES[self.dtype]).itemsize
        return Strided(int(pool.data) + GUARD * row * itemsize, 0, row, self.hdim)

    def gradients(self, fwd: FwdParams, held: dict[str, DeviceArray]) -> BwdParams:
        dout, dq, dk, dv = (self.rows(held[name]) for name in ("dout", "dq", "dk", "dv"))
        return BwdParams(fwd, dout, dq, dk, dv, deterministic=True, kernel=self.kernel)

    def run(self, arrays: Arrays) -> Pools:
        """The pools as the library leaves them."""
        held: dict[str, DeviceArray] = {}
        fwd = self.params(arrays, held)
        with forgiven():
            if self.backward:
                bwd = self.gradients(fwd, held)
                nbytes = pyfa_rocm.fmha_bwd_workspace_bytes(bwd)
                workspace = DeviceArray.from_numpy(np.zeros(nbytes, np.uint8))
                pyfa_rocm.fmha_bwd(replace(bwd, workspace=int(workspace.data), workspace_bytes=nbytes))
            else:
                pyfa_rocm.fmha_fwd(fwd)
            pyfa_rocm.synchronize()
        return {name: held[name].to_numpy() for name in (*READ, *WRITTEN)}

    @cache  # noqa: B019
    def alone(self, q: Rows, k: Rows, used: bool) -> Pools:
        """Those of a call with only this sequence, all of whose rows are in use."""
        arrays: Arrays = {"cu_seqlens_q": (q[0], sum(q)), "cu_seqlens_k": (k[0], sum(k))}
        if used:
            arrays |= {"seqused_q": q[1:], "seqused_k": k[1:]}
        return self.run(arrays)

    @property
    def written(self) -> tuple[str, ...]:
        return WRITTEN[2:] if self.backward else WRITTEN[:2]


def rows_of(arrays: Arrays, side: str, b: int) -> Rows:
    """Return what fmha_rocm.h takes a sequence's numbers for."""
    starts, used = arrays[f"cu_seqlens_{side}"], arrays.get(f"seqused_{side}")
    first = min(max(starts[b], 0), TOTAL[side])
    count = min(min(max(starts[b + 1], first), TOTAL[side]) - first, MOST[side])
    return first, count if used is None else min(max(used[b], 0), count)


def check(call: Call, arrays: Arrays) -> None:
    sequences = [(rows_of(arrays, "q", b), rows_of(arrays, "k", b)) for b in range(BATCH)]
    owners: dict[str, Counter[int]] = {}
    for side, which in (("q", 0), ("k", 1)):
        rows = (range(s[which][0], sum(s[which])) for s in sequences)
        owners[side] = Counter(row for some in rows for row in some)
    shared = max(max(counter.values(), default=0) for counter in owners.values()) > 1
    with races_allowed() if shared else nullcontext():
        got, before = call.run(arrays), call.pools()
    for name, pool in got.items():
        side = side_of(name)
        told = range(GUARD, GUARD + TOTAL[side]) if name in call.written else range(0)
        outside = [row for row in range(TOTAL[side] + 2 * GUARD) if row not in told]
        same(name, rows_at(pool, name, outside), rows_at(before[name], name, outside))
        if name == "lse":
            same("heads of lse", pool[[0, -1]], before[name][[0, -1]])
        if not call.backward and name in call.written:
            free = [GUARD + row for row in range(TOTAL[side]) if not owners[side][row]]
            same(name, rows_at(pool, name, free), rows_at(before[name], name, free))
    for q, k in sequences:
        alone = call.alone(q, k, "seqused_q" in arrays)
        for name in call.written:
            side = side_of(name)
            first, count = q if side == "q" else k
            own = [GUARD + row for row in range(first, first + count) if owners[side][row] == 1]
            same(name, rows_at(got[name], name, own), rows_at(alone[name], name, own))


def rows_at(pool: Any, name: str, rows: list[int]) -> Any:
    """Some rows of a pool; of the LSE those of the heads that the call is told of."""
    return pool[1:-1, rows] if name == "lse" else pool[rows]


def same(name: str, got: Any, want: Any) -> None:
    assert np.array_equal(bits(got), bits(want)), name


def calls(backward: bool, dtype: str, hdim: int, arrays: Arrays) -> Iterator[tuple[Call, str]]:
    """Yield a call of each kernel that can do it, and its pipeline."""
    call, held = Call(backward, dtype, hdim, 0), dict[str, DeviceArray]()
    fwd = call.params(arrays, held)
    try:
        count = kernel_of(call, fwd, held, 0).candidate_count
    except UnsupportedError:
        pytest.skip("no such kernel in this library")
    for kernel in range(1, count + 1):
        yield Call(backward, dtype, hdim, kernel), kernel_of(call, fwd, held, kernel).pipeline


def kernel_of(call: Call, fwd: FwdParams, held: dict[str, DeviceArray], kernel: int) -> Any:
    if call.backward:
        return pyfa_rocm.fmha_bwd_kernel(replace(call.gradients(fwd, held), kernel=kernel))
    return pyfa_rocm.fmha_fwd_kernel(replace(fwd, kernel=kernel))


# An array's entry, and numbers that are just out of its range or of order.
ENTRIES = [
    ("cu_seqlens_q", 0, (31,)),
    ("cu_seqlens_q", 1, (51, 90)),
    ("cu_seqlens_q", 2, (20, 85)),
    ("cu_seqlens_q", 3, (49, 85)),
    ("cu_seqlens_k", 0, (61,)),
    ("cu_seqlens_k", 1, (80,)),
    ("cu_seqlens_k", 2, (10, 135)),
    ("cu_seqlens_k", 3, (60, 135)),
    ("seqused_q", 1, (21,)),
    ("seqused_q", 2, (31,)),
    ("seqused_k", 0, (61,)),
    ("seqused_k", 2, (69,)),
]


def in_order(starts: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return the starts that a prebuilt backward kernel gets."""
    return tuple(min(max(0, *starts[: i + 1]), total) for i in range(len(starts)))


@pytest.mark.parametrize(("name", "entry", "near"), ENTRIES)
@pytest.mark.parametrize(
    ("backward", "dtype", "hdim"),
    [
        (False, "bfloat16", 128),
        (False, "bfloat16", 64),
        (True, "bfloat16", 64),
        (True, "bfloat16", 128),
        (True, "float32", 64),
    ],
)
def test_lengths(backward: bool, dtype: str, hdim: int, name: str, entry: int, near: tuple[int, ...]) -> None:
    arrays: Arrays = {"cu_seqlens_q": STARTS["q"], "cu_seqlens_k": STARTS["k"]}
    if name.startswith("seqused"):
        arrays |= {"seqused_q": USED["q"], "seqused_k": USED["k"]}
    for call, pipeline in calls(backward, dtype, hdim, arrays):
        if pipeline == "asm_v3" and not backward:
            continue  # the table says so
        for value in (*near, *GARBAGE):
            numbers = list(arrays[name])
            numbers[entry] = value
            given = arrays | {name: tuple(numbers)}
            if pipeline == "asm_v3":
                check_in_order(call, given)
            else:
                check(call, given)


def check_in_order(call: Call, arrays: Arrays) -> None:
    """A call has the bits of one whose starts are in order."""
    ordered: Arrays = {
        f"cu_seqlens_{side}": in_order(arrays[f"cu_seqlens_{side}"], TOTAL[side]) for side in "qk"
    }
    got, want = call.run(arrays), call.run(ordered)
    for name, pool in got.items():
        same(name, pool, want[name])
        if name in call.written:
            told = range(GUARD, GUARD + TOTAL[side_of(name)])
            outside = [row for row in range(len(pool)) if row not in told]
            same(name, pool[outside], call.pools()[name][outside])
