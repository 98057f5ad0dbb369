# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx950's instructions beyond gfx942's that move values: swaps of lanes, transposing loads from LDS.

Only a process that plays gfx950 has cases: code/test_gfx950.py starts one.
"""

from __future__ import annotations

import numpy as np
import pytest

from ..support import rows
from ..support.asm import ALL_LANES, LANES, Case, Result, Suite
from ..support.findings import Kernels
from ..support.fp import Array

SUITE = Suite("gfx950")
HERE = rows.arch() == "gfx950"
LANE = np.arange(LANES)
X, Y = (np.random.default_rng(i).integers(0, 1 << 32, LANES, dtype=np.uint32) for i in (0, 1))
_ARRIVED = "s_waitcnt lgkmcnt(0)"
IMAGE = np.random.default_rng(2).integers(0, 256, 4096, dtype=np.uint8)


def _swapped(row: int, on: Array) -> tuple[Array, Array]:
    """The odd rows of X change places with the even ones of Y, where lanes are on."""
    x, y = X.copy(), Y.copy()
    for lane in LANE[(LANE & row == 0) & on]:
        x[lane + row], y[lane] = Y[lane], X[lane + row]
    return x, y


def _swaps() -> None:
    for row in (16, 32):
        pairs = 0x00F0_00F0_1234_1234 if row == 16 else 0x1234_5678_1234_5678
        for form, mask in (("_e32", ALL_LANES), ("_e64", ALL_LANES), ("_e32", pairs)):
            on = np.array([mask >> i & 1 for i in range(LANES)], bool)
            x, y = _swapped(row, on)

            def check(result: Result, x: Array = x, y: Array = y) -> None:
                np.testing.assert_array_equal(result["v2"][0], x)
                np.testing.assert_array_equal(result["v3"][0], y)

            name = f"v_permlane{row}_swap_b32"
            options = " bound_ctrl:1 fi:1" * (form == "_e64")
            SUITE.add(
                f"{name}{form}-{mask:x}",
                [f"{name}{form} v2, v3{options}"],
                ["v2", "v3"],
                check,
                {"v2": X, "v3": Y},
                {"exec": mask},
            )


def _elements(run: Array, bits: int) -> list[int]:
    """The elements of a lane's bytes, lowest first."""
    number = int.from_bytes(run.tobytes(), "little")
    return [number >> at & (1 << bits) - 1 for at in range(0, 8 * len(run), bits)]


def _transposed(address: Array, bits: int, count: int) -> Array:
    """Sixteen lanes' runs, one after the other, are a matrix of 16 columns; lane l gets column l % 16."""
    words = np.zeros((count // 4, LANES), np.uint32)
    for group in range(0, LANES, 16):
        matrix = np.array([_elements(IMAGE[a : a + count], bits) for a in address[group : group + 16]])
        for lane, column in enumerate(matrix.reshape(-1, 16).T):
            number = sum(int(e) << bits * i for i, e in enumerate(column))
            words[:, group + lane] = np.frombuffer(number.to_bytes(count, "little"), np.uint32)
    return words


def _transposing_loads() -> None:
    rng = np.random.default_rng(3)
    for bits, count in ((4, 8), (6, 12), (8, 8), (16, 8)):
        name = f"ds_read_b{8 * count}_tr_b{bits}"
        address = rng.permutation(128)[:LANES] * 16
        want = _transposed(address + 48, bits, count)
        for bank in "va":
            out = f"{bank}[{10}:{9 + count // 4}]"

            def check(result: Result, out: str = out, want: Array = want) -> None:
                np.testing.assert_array_equal(result[out], want)

            fill = [f"ds_write_b32 v60, v{30 + i} offset:{256 * i}" for i in range(16)]
            read = f"{name} {out}, v2 offset:48"
            SUITE.add(
                f"{name}-{bank}",
                [*fill, _ARRIVED, read, _ARRIVED],
                [out],
                check,
                {
                    "v60": (LANE * 4).astype(np.uint32),
                    "v[30:45]": IMAGE.view(np.uint32).reshape(16, LANES),
                    "v2": address.astype(np.uint32),
                },
                lds=len(IMAGE),
                covers=[name],
            )


def _packed_atomic() -> None:
    """Two sums of bf16, in memory: integers that it holds."""
    rng = np.random.default_rng(4)
    old, more = (rng.integers(-100, 100, (LANES, 2)).astype(np.float32).view(np.uint32) for _ in range(2))
    packed = [(a[:, 0] >> 16 | a[:, 1] & 0xFFFF0000).astype(np.uint32) for a in (old, more)]
    total = (old.view(np.float32) + more.view(np.float32)).view(np.uint32)
    want = (total[:, 0] >> 16 | total[:, 1] & 0xFFFF0000).astype(np.uint32)
    setup = ["s_mov_b32 s4, s70", "s_mov_b32 s5, s71", "s_movk_i32 s6, 0x100", "s_mov_b32 s7, 0x20000"]

    def check(result: Result) -> None:
        np.testing.assert_array_equal(result["v3"][0], packed[0])
        np.testing.assert_array_equal(result.mem.view(np.uint32), want)

    name = "buffer_atomic_pk_add_bf16"
    SUITE.add(
        name,
        [*setup, f"{name} v3, v2, s[4:7], 0 offen sc0"],
        ["v3"],
        check,
        {"v2": (LANE * 4).astype(np.uint32), "v3": packed[1]},
        {},
        packed[0],
        covers=[name],
    )


def _far_loads_to_lds() -> None:
    """M0 names places beyond 64 KB, which gfx942 does not have."""
    memory = np.random.default_rng(5).integers(0, 1 << 32, LANES, dtype=np.uint32)
    at = 0x1_2340
    load = ["global_load_lds_dword v2, s[70:71]", "s_waitcnt vmcnt(0)", "ds_read_b32 v3, v4", _ARRIVED]
    SUITE.add(
        "far-load-to-lds",
        load,
        ["v3"],
        lambda r: np.testing.assert_array_equal(r["v3"][0], memory),
        {"v2": (LANE * 4).astype(np.uint32), "v4": (LANE * 4 + at).astype(np.uint32)},
        {"m0": at},
        memory,
        lds=0x2_0000,
        covers=["global_load_lds_dword"],
    )


if HERE:
    _swaps()
    _far_loads_to_lds()
    _transposing_loads()
    _packed_atomic()


@SUITE.parametrize()
def test_gfx950(case: Case) -> None:
    """Registers and memory after it."""
    SUITE.check(case)


_FILL = ("ds_write_b32 v1, v1", _ARRIVED, "v_and_b32 v1, 0xf0, v1")
_REFUSED = {
    "half_a_pair": (["s_mov_b64 exec, 1", "s_nop 4", "v_permlane16_swap_b32 v2, v3"], "only one is on"),
    "some_lanes": ([*_FILL, "s_mov_b64 exec, 1", "ds_read_b64_tr_b16 v[2:3], v1"], "needs all lanes on"),
    "not_aligned": ([*_FILL, "v_mov_b32 v2, 4", "ds_read_b64_tr_b16 v[2:3], v2"], "which 8 does not divide"),
    "not_aligned_b6": (
        [*_FILL, "v_mov_b32 v2, 8", "ds_read_b96_tr_b6 v[2:4], v2"],
        "which 16 does not divide",
    ),
}
KERNELS = Kernels({name: lines for name, (lines, _) in _REFUSED.items()}, lds=1024)


@pytest.mark.skipif(not HERE, reason="needs FMHA_EMU_ARCH=gfx950")
@pytest.mark.parametrize("name", _REFUSED)
def test_refused(name: str) -> None:
    """Forms that the manual does not allow, or does not explain, stop the launch."""
    assert _REFUSED[name][1] in KERNELS.finding(name)
