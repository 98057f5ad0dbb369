# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx12's transposing loads: which lane gets which element, and products of matrices that were loaded so.

The RDNA4 ISA guide (11.6.2) says what is loaded. The layout over the lanes of waves of 32 was measured on
gfx1201 and published; waves of 64 follow from the layouts of operands in AMD's matrix instruction calculator.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from ..support.asm import LANES, Case, Result, Suite
from ..support.findings import Kernels
from ..support.fp import Array
from ..support.spelling import NARROW, exists

SUITE = Suite("transposed")
HERE = exists("global_load_tr_b128")
_SIZE, _RUN, _SOURCES = 16, 8, 32
_LOADED = "s_wait_loadcnt 0x0"
RNG = np.random.default_rng(7)
MEMORY = RNG.integers(0, 256, 4096, dtype=np.uint8)
NAMES = {"global_load_tr_b128": 2, "global_load_tr_b64": 1}  # bytes of an element


def _halved(lanes: Array) -> Array:
    """Registers of (32 lanes, eight elements); in waves of 64 the second half of them is lanes 32 to 63."""
    words = np.ascontiguousarray(lanes).view(np.uint32).T
    return words if NARROW else np.concatenate(np.split(words, 2), axis=1)


def _transposed(runs: Array) -> Array:
    """Transpose (32 lanes, eight elements) as 32 lanes receive them."""
    if runs.itemsize == 2:
        return runs.reshape(4, 8, 8).swapaxes(1, 2).reshape(_SOURCES, _RUN)
    return runs.reshape(2, 2, 2, 4, 8).transpose(0, 2, 4, 1, 3).reshape(_SOURCES, _RUN)


def _count(size: int) -> int:
    """Registers of eight elements a lane, or in waves of 64 of four."""
    return _RUN * size // 4 * _SOURCES // LANES


def _registers(first: int, size: int) -> str:
    count = _count(size)
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def _equal(want: dict[str, Array]) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        for name, value in want.items():
            np.testing.assert_array_equal(result[name], value, name)

    return check


def _lanes() -> None:
    """Any addresses, aligned or not; those of the lanes from 32 on do not matter."""
    for name, size in NAMES.items():
        address = RNG.integers(64, len(MEMORY) - 128, LANES)
        runs = np.array([MEMORY[a + 24 : a + 24 + _RUN * size].view(f"u{size}") for a in address[:_SOURCES]])
        address[_SOURCES:] = 0x7FFF_0000
        out = _registers(10, size)
        want = _equal({out: _halved(_transposed(runs))})
        vin = {"v2": address.astype(np.uint32)}
        SUITE.add(
            f"{name}-saddr", [f"{name} {out}, v2, s[70:71] offset:24", _LOADED], [out], want, vin, {}, MEMORY
        )
        add = ["v_add_co_u32 v2, vcc, s70, v2", "v_mov_b32 v3, s71", "v_addc_co_u32 v3, vcc, 0, v3, vcc"]
        line = f"{name} {out}, v[2:3], off offset:-40"
        vin = {"v2": (address + 64).astype(np.uint32)}
        SUITE.add(f"{name}-vaddr", [*add, line, _LOADED], [out], want, vin, {}, MEMORY, covers=[name])
        old = RNG.integers(0, 1 << 32, (_count(size), LANES), dtype=np.uint32)
        vin, lines = {"v2": np.full(LANES, 0x7FFF_0000, np.uint32), out: old}, [f"{name} {out}, v2, s[70:71]"]
        SUITE.add(f"{name}-no-lane", [*lines, _LOADED], [out], _equal({out: old}), vin, {"exec": 0}, MEMORY)


def _depth(size: int) -> Array:
    """The k of (32 lanes, element) of A and B; of 16 bits the groups of lanes take turns at four of them."""
    lane, e = np.arange(_SOURCES)[:, None] // _SIZE, np.arange(_RUN)
    return 8 * (e // 4) + 4 * lane + e % 4 if size == 2 else 8 * lane + e


def _addresses(size: int) -> Array:
    """Where each lane begins in a matrix of rows k: what it loads comes to lie as `_depth` has it."""
    lane = np.arange(_SOURCES)
    group, upper = lane // 16, lane // (8 if size == 2 else 4) % 2
    e = lane % 8 if size == 2 else lane // 8 % 2 * 4 + lane % 4
    return (_depth(size)[16 * group, e] * _SIZE + 8 * upper) * size


def _products() -> None:
    """A lies in memory by columns, B is in registers."""
    kinds = [
        ("global_load_tr_b128", "v_wmma_f32_16x16x16_f16", np.float16, np.float32),
        ("global_load_tr_b128", "v_wmma_f32_16x16x16_bf16", ml_dtypes.bfloat16, np.float32),
        ("global_load_tr_b64", "v_wmma_f32_16x16x16_fp8_fp8", ml_dtypes.float8_e4m3fn, np.float32),
        ("global_load_tr_b64", "v_wmma_i32_16x16x16_iu8", np.int8, np.int32),
    ]
    for load, wmma, kind, sums in kinds:
        size = NAMES[load]
        low = 0 if sums is np.int32 else -4
        a, b = (RNG.integers(low, 5, (_SIZE, _SIZE)) for _ in range(2))
        columns = b.astype(kind)[_depth(size), np.arange(_SOURCES)[:, None] % _SIZE]
        rows = np.arange(_SIZE).reshape((2, 8) if NARROW else (2, 2, 4))
        rows = rows if NARROW else rows.swapaxes(0, 1).reshape(4, 4)
        want = (a @ b).astype(sums)[rows.T].reshape(rows.shape[1], LANES)
        va, vb, vd = _registers(10, size), _registers(20, size), f"v[30:{29 + _SIZE * _SIZE // LANES}]"
        product = f"{wmma} {vd}, {va}, {vb}, 0"
        vin = {"v2": np.resize(_addresses(size), LANES).astype(np.uint32), vb: _halved(columns)}
        memory = np.frombuffer(a.T.astype(kind).tobytes(), np.uint8)
        SUITE.add(
            wmma,
            [f"{load} {va}, v2, s[70:71]", _LOADED, product, "v_nop", "v_nop"],
            [vd],
            _equal({vd: want.view(np.uint32)}),
            vin,
            {},
            memory,
            covers=[load],
        )


if HERE:
    _lanes()
    _products()


@SUITE.parametrize()
def test_transposed(case: Case) -> None:
    """Registers after it."""
    SUITE.check(case)


_OUT = _registers(4, 2)
_LOAD = f"global_load_tr_b128 {_OUT}, v1, s[8:9]"
_FINDINGS = {
    "some_lanes": (["s_mov_b64 exec, 1", _LOAD], "needs all lanes on, or none"),
    "no_wait": ([_LOAD, "v_mov_b32 v3, v4"], "missing wait: reads v4"),
    "outside": (["v_mov_b32 v1, 0x3ff8", _LOAD], "lane 0: load of 16 bytes at 0x"),
    "no_address": (["v_lshlrev_b32 v2, 28, v1", _LOAD.replace("v1,", "v2,")], "is not inside one allocation"),
}
KERNELS = Kernels(
    {"waited": [_LOAD, _LOADED, "v_mov_b32 v3, v4"]} | {name: lines for name, (lines, _) in _FINDINGS.items()}
)


@pytest.mark.skipif(not HERE, reason="needs FMHA_EMU_ARCH=gfx1201")
@pytest.mark.parametrize("name", _FINDINGS)
def test_findings(name: str) -> None:
    """It is a load like any other, and one that the guide wants all lanes for."""
    KERNELS.run("waited")
    assert _FINDINGS[name][1] in KERNELS.finding(name)
