# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx950: what it has beyond gfx942. The LLVM of the other tests does not know it.

The witnesses are the clang 20 that kernels are compiled with, as an assembler (test_decoder has every row),
and NumPy. The tests of instructions run again in processes that play gfx950.
"""

from __future__ import annotations

import ctypes as c
import os
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from inner import run_script
from numpy.typing import NDArray
from plugins import quick

from ..support import hip, rows
from ..support.toolchain import CLANG20

ARCH = "gfx950"
Array = NDArray[np.generic]

here = pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
compiles = pytest.mark.skipif(not CLANG20.exists(), reason="no clang 20: `make toolchain`, without a ROCm")


@here
def test_bytes_of_scales() -> None:
    """op_sel and op_sel_hi of a scaled product: the ISA guide's bits (7.2.1) and LLVM's text from 21 on.

    clang 20 encodes them in other places (https://github.com/llvm/llvm-project/pull/140183).
    """
    rest = "v_mfma_scale_f32_16x16x128_f8f6f4 a[0:3], v[4:7], a[12:17], a[0:3], v1, 0.5"
    for a, b in np.ndindex(4, 4):
        first = [0xD3AC0000 | (a & 1) << 11 | (b & 1) << 12, 0x0001E101 | (a >> 1) << 27 | (b >> 1) << 28]
        words = [*first, 0xD3AD8C00, 0x74021904]  # of which ABID says that there are scales
        low = f" op_sel:[{a & 1},{b & 1},0]" if a & 1 or b & 1 else ""
        text = f"{rest}{low} op_sel_hi:[{a >> 1},{b >> 1},0] cbsz:4 blgp:3"
        assert rows.disassemble(np.array(words, "<u4").tobytes(), ARCH)[0].partition(": ")[2] == text
        alone = rows.disassemble(np.array(first, "<u4").tobytes(), ARCH)[0]
        assert alone.partition(": ")[2].startswith("v_mfma_ld_scale_b32 v1, 0.5")


_TESTS = Path(__file__).resolve().parents[1]
_INSTRUCTIONS = sorted((_TESTS / "isa").rglob("test_*.py"))
_RUNS = {
    "values": [Path(__file__)],
    "isa-1": _INSTRUCTIONS[0::2],
    "isa-2": _INSTRUCTIONS[1::2],
    "hazards": [_TESTS / "check/test_check_hazards.py"],
    "fuzz": [_TESTS / "code/test_fuzz.py"],
    "profile": [f"{_TESTS / 'model/test_profile.py'}::test_matrix_flops_by_type"],
}


@here
@compiles
@pytest.mark.parametrize("run", _RUNS)
def test_instructions(run: str) -> None:
    """A process of that arch runs this file, and those of instructions, wait states and random programs."""
    out = run_script(
        "import sys, pytest\n"
        "sys.exit(pytest.main(['-q', '-pno:cacheprovider', '-pno:xdist', *sys.argv[1:]]))",
        *map(str, _RUNS[run]),
        *quick.arguments(),
        env={"FMHA_EMU_ARCH": ARCH, "FMHA_TEST_EXAMPLES": "60", "FMHA_FUZZ_PROGRAMS": "120"},
    )
    assert " passed" in out, out


inner = pytest.mark.skipif(os.environ.get("FMHA_EMU_ARCH") != ARCH, reason=f"needs FMHA_EMU_ARCH={ARCH}")


def run(folder: Path, head: str, body: str, arrays: list[Array], result: Array) -> Array:
    """Return what a kernel of one wave writes. Its arguments a0, a1... are the arrays and the result."""
    source = folder / "k.hip"
    types = ", ".join(f"unsigned long a{i}" for i in range(len(arrays) + 1))
    source.write_text(
        f"#define KERNEL __attribute__((global, amdgpu_flat_work_group_size(64, 64)))\n{head}\n"
        f'extern "C" KERNEL void k({types}) {{ {body} }}\n'
    )
    command = (CLANG20, "-x", "hip", f"--offload-arch={ARCH}", "-O3", "-nogpuinc", "-nogpulib")
    only = ("--cuda-device-only", "--no-gpu-bundle-output", "-c", source, "-o", folder / "k.co")
    subprocess.run([*command, *only], check=True)
    buffers = [hip.Buffer.of(array) for array in (*arrays, result)]
    module = hip.Module((folder / "k.co").read_bytes())
    module.launch_params("k", [c.c_uint64(buffer.address) for buffer in buffers])
    return buffers[-1].read(result.dtype.type)


TYPES = "typedef unsigned V __attribute__((ext_vector_type(4)));"
LOADS = f"""{TYPES}
typedef __attribute__((address_space(3))) unsigned Lds;
__attribute__((device)) void load(V, Lds*, unsigned, unsigned, unsigned, unsigned, unsigned)
    __asm("llvm.amdgcn.raw.buffer.load.lds");
template <int kCount>
__attribute__((device)) Lds* place() {{
  static __attribute__((shared)) unsigned shared[kCount];
  return (Lds*)shared;
}}"""
LANE = "unsigned l = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); "


@inner
@compiles
@pytest.mark.parametrize("table", [0x00, 0x01, 0x80, 0xCA, 0x96, 0xE8, 0x1B, 0xFF])
@pytest.mark.parametrize("bits", [32, 16])
def test_bitop3(tmp_path: Path, table: int, bits: int) -> None:
    """Each bit of the result is that of the table which the three bits number."""
    rng = np.random.default_rng(table)
    a, b, x = (rng.integers(0, 1 << 32, 64, np.uint64).astype(np.uint32) for _ in range(3))
    body = LANE + "unsigned r = 0; "
    body += f'asm("v_bitop3_b{bits} %0, %1, %2, %3 bitop3:{table:#x}" : "=v"(r) : "v"(((unsigned*)a0)[l]), '
    body += '"v"(((unsigned*)a1)[l]), "v"(((unsigned*)a2)[l])); ((unsigned*)a3)[l] = r;'
    got = run(tmp_path, TYPES, body, [a, b, x], np.zeros(64, np.uint32))
    want = np.zeros(64, np.uint32)
    for bit in range(bits):
        number = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (x >> bit & 1)
        want |= (np.uint32(table) >> number & 1) << np.uint32(bit)
    np.testing.assert_array_equal(got & np.uint32((1 << bits) - 1), want)


@inner
@compiles
def test_cvt_pk_f16_f32(tmp_path: Path) -> None:
    """Two halves, rounded to nearest even; ties, denormals, overflow and infinities too."""
    edge = [
        0.0,
        -0.0,
        1.0,
        1 + 2.0**-11,
        1 + 3 * 2.0**-11,
        65504,
        65519.9,
        65520,
        2.0**-24,
        2.0**-25,
        np.inf,
        -np.inf,
    ]
    a = np.resize(np.array(edge, np.float32), 64)
    b = np.random.default_rng(1).normal(0, 100, 64).astype(np.float32)
    body = LANE + 'unsigned r; asm("v_cvt_pk_f16_f32 %0, %1, %2" : "=v"(r) : "v"(((float*)a0)[l]), '
    body += '"v"(((float*)a1)[l])); ((unsigned*)a2)[l] = r;'
    got = run(tmp_path, TYPES, body, [a, b], np.zeros(64, np.uint32)).view(np.uint16).reshape(64, 2)
    with np.errstate(over="ignore"):
        want = np.stack([a, b], 1).astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(got, want)


@inner
@compiles
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(("m", "k"), [(32, 16), (16, 32)])
def test_mfma(tmp_path: Path, kind: str, m: int, k: int) -> None:
    """Exact on small integers. A has lane l's eight in row l % m, from 8 * (l // m) along k; B in columns."""
    rng = np.random.default_rng(m)
    dtype = np.dtype(np.float16) if kind == "f16" else np.dtype(ml_dtypes.bfloat16)
    a, b = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (k, m))
    lane = np.arange(64)
    along = 8 * (lane // m)[:, None] + np.arange(8)
    of_lane = [a[(lane % m)[:, None], along], b[along, (lane % m)[:, None]]]
    words = [np.ascontiguousarray(x.astype(dtype)).view(np.uint32) for x in of_lane]
    sums = m * m // 64
    first = rng.integers(-100, 100, (m, m)).astype(np.float32)
    # Register r of lane l holds, of column l % m, row 8 * (r // 4) + 4 * (l // m) + r % 4; m 16 has four.
    r = np.arange(sums)
    row = (64 // m * 4) * (r // 4)[None, :] + 4 * (lane // m)[:, None] + (r % 4)[None, :]
    accumulator = np.ascontiguousarray(first[row, (lane % m)[:, None]])
    body = f"typedef float S __attribute__((ext_vector_type({sums}))); " + LANE
    lines = r"\n\t".join(("s_nop 4", f"v_mfma_f32_{m}x{m}x{k}_{kind} %0, %1, %2, %0", "s_nop 15", "s_nop 15"))
    body += f'S c = ((S*)a2)[l]; asm("{lines}" : "+v"(c) : "v"(((V*)a0)[l]), "v"(((V*)a1)[l])); '
    body += "((S*)a3)[l] = c;"
    got = run(tmp_path, TYPES, body, [*words, accumulator], np.zeros((64, sums), np.float32)).reshape(
        64, sums
    )
    np.testing.assert_array_equal(got, (a @ b + first)[row, (lane % m)[:, None]])


@inner
@compiles
@pytest.mark.parametrize("dwords", [1, 3, 4])
def test_loads_to_lds(tmp_path: Path, dwords: int) -> None:
    """Lane l's dwords lie behind those of lane l - 1, from M0 on."""
    size = 256 * dwords
    data = np.arange(64 * dwords, dtype=np.uint32) * 7 + 1
    body = LANE + f"V r = {{(unsigned)a0, (unsigned)(a0 >> 32), {size}, 0x20000}}; "
    body += f"load(r, shared, {4 * dwords}, l * {4 * dwords}, 0, 0, 0); "
    body += "__builtin_amdgcn_s_waitcnt(0); __builtin_amdgcn_s_barrier(); "
    body += f"for (int j = 0; j < {dwords}; ++j) ((unsigned*)a1)[64 * j + l] = shared[64 * j + l];"
    lds = f"Lds* shared = place<{64 * dwords}>(); "
    np.testing.assert_array_equal(run(tmp_path, LOADS, lds + body, [data], np.zeros_like(data)), data)


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3e38, -3.4e38, 1e-30],
    np.float32,
)


def run_vector(folder: Path, text: str, sources: list[Array], first: int = 0) -> NDArray[np.uint32]:
    """Run an instruction with up to three register sources; its destination held `first`."""
    operands = ", ".join(f'"v"(((unsigned*)a{i})[l])' for i in range(len(sources)))
    body = f'{LANE}unsigned r = {first}u; asm("{text}" : "+v"(r) : {operands}); '
    body += f"((unsigned*)a{len(sources)})[l] = r;"
    words = [np.ascontiguousarray(x).view(np.uint32) for x in sources]
    return run(folder, TYPES, body, words, np.zeros(64, np.uint32)).view(np.uint32)


@inner
@compiles
def test_cvt_pk_bf16_f32(tmp_path: Path) -> None:
    """Rounded to nearest even as ml_dtypes does; a NaN stays a NaN."""
    a = np.resize(SPECIAL, 64)
    b = np.random.default_rng(2).normal(0, 100, 64).astype(np.float32)
    got = run_vector(tmp_path, "v_cvt_pk_bf16_f32 %0, %1, %2", [a, b]).view(ml_dtypes.bfloat16)
    want = np.stack([a, b], 1).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(got.reshape(64, 2).astype(np.float32), want)
    np.testing.assert_array_equal(np.signbit(got.reshape(64, 2)[:6, 0]), np.signbit(want[:6, 0]))


@inner
@compiles
@pytest.mark.parametrize(("kind", "least", "most"), [("i8", -128, 127), ("u8", 0, 255)])
@pytest.mark.parametrize("high", [False, True])
def test_ashr_pk(tmp_path: Path, kind: str, least: int, most: int, high: bool) -> None:
    """Two bytes into one half of the register, the other kept."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-(1 << 31), 1 << 31, 64, np.int64).astype(np.int32) for _ in range(2))
    shift = np.arange(64, dtype=np.uint32)  # of which five bits count
    text = f"v_ashr_pk_{kind}_i32 %0, %1, %2, %3" + " op_sel:[0,0,0,1]" * high
    got = run_vector(tmp_path, text, [a, b, shift], 0xAAAA5555)
    x, y = (np.clip(v >> (shift & 31).astype(np.int32), least, most).astype(np.uint32) & 255 for v in (a, b))
    half = x | y << 8
    np.testing.assert_array_equal(got, half << 16 | 0x5555 if high else half | 0xAAAA0000)


@inner
@compiles
@pytest.mark.parametrize("which", ["minimum", "maximum"])
def test_minimum3_and_maximum3(tmp_path: Path, which: str) -> None:
    """IEEE 754-2019's: a NaN wins, and -0 is less than 0. NumPy's propagate NaNs too."""
    rng = np.random.default_rng(4)
    a, b, x = (rng.choice(SPECIAL, 64) for _ in range(3))
    got = run_vector(tmp_path, f"v_{which}3_f32 %0, %1, %2, %3", [a, b, x]).view(np.float32)
    function = np.minimum if which == "minimum" else np.maximum
    want = function(function(a, b), x)
    np.testing.assert_array_equal(got, want)
    values = np.stack([a, b, x])
    zero = want == 0
    signs = np.signbit(values) & (values == 0)
    negative = signs.any(0) if which == "minimum" else (signs | (values != 0)).all(0)
    np.testing.assert_array_equal(np.signbit(got)[zero], negative[zero])


@inner
@compiles
def test_prng(tmp_path: Path) -> None:
    """A step of a shift register with feedback."""
    a = np.random.default_rng(5).integers(0, 1 << 32, 64, np.uint64).astype(np.uint32)
    want = [(int(x) << 1 & 0xFFFFFFFF) ^ (197 if x >> 31 else 0) for x in a]
    np.testing.assert_array_equal(run_vector(tmp_path, "v_prng_b32 %0, %1", [a]), want)


@inner
@compiles
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("signs", ["", " neg_lo:[1,0,0] neg_hi:[0,1,0]", " neg_lo:[0,0,1]"])
def test_dot2_f32_bf16(tmp_path: Path, signs: str, exact: bool) -> None:
    """Two products and an f32: exactly where nothing rounds, else within a rounding of each partial sum."""
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-8, 9, (64, 2)) if exact else rng.normal(0, 4, (64, 2)) for _ in range(2))
    a, b = (x.astype(ml_dtypes.bfloat16) for x in (a, b))
    addend = (rng.integers(-64, 65, 64) if exact else rng.normal(0, 4, 64)).astype(np.float32)
    text = rf"v_dot2_f32_bf16 %0, %1, %2, %3{signs}\n\ts_nop 2"  # its result's wait states
    got = run_vector(tmp_path, text, [a, b, addend]).view(np.float32)
    products = a.astype(np.float64) * b.astype(np.float64)
    total = addend.astype(np.float64)
    if "neg_hi" in signs:  # of a's low half and b's high one: both products
        products = -products
    elif signs:
        total = -total
    bound = 0 if exact else 3 * 2.0**-24 * (np.abs(products).sum(1) + np.abs(total))
    assert (np.abs(got - (products.sum(1) + total)) <= bound).all()


@inner
@compiles
@pytest.mark.parametrize(("m", "k"), [(32, 32), (16, 64)])
def test_mfma_i8(tmp_path: Path, m: int, k: int) -> None:
    """A has lane l's sixteen bytes in row l % m, from 16 * (l // m) along k; B in columns."""
    rng = np.random.default_rng(k)
    a, b = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, m))
    lane, r = np.arange(64), np.arange(m * m // 64)
    along = 16 * (lane // m)[:, None] + np.arange(16)
    column = (lane % m)[:, None]
    words = [
        np.ascontiguousarray(x.astype(np.int8)).view(np.uint32) for x in (a[column, along], b[along, column])
    ]
    row = (64 // m * 4) * (r // 4)[None, :] + 4 * (lane // m)[:, None] + (r % 4)[None, :]
    first = rng.integers(-(1 << 30), 1 << 30, (m, m))
    accumulator = np.ascontiguousarray(first[row, column].astype(np.int32))
    body = f"typedef int S __attribute__((ext_vector_type({len(r)}))); " + LANE
    lines = r"\n\t".join(("s_nop 4", f"v_mfma_i32_{m}x{m}x{k}_i8 %0, %1, %2, %0", "s_nop 15", "s_nop 15"))
    body += (
        f'S c = ((S*)a2)[l]; asm("{lines}" : "+v"(c) : "v"(((V*)a0)[l]), "v"(((V*)a1)[l])); ((S*)a3)[l] = c;'
    )
    got = run(tmp_path, TYPES, body, [*words, accumulator], np.zeros((64, len(r)), np.int32))
    np.testing.assert_array_equal(got.reshape(64, -1), (a @ b + first)[row, column])


@inner
@compiles
@pytest.mark.parametrize("dwords", [3, 4])
def test_global_loads_to_lds(tmp_path: Path, dwords: int) -> None:
    """Like the buffer loads: lane l's dwords lie behind those of lane l - 1, from M0 on."""
    data = np.arange(64 * dwords, dtype=np.uint32) * 7 + 1
    body = f"Lds* shared = place<{64 * dwords}>(); {LANE}"
    lines = r"\n\t".join(
        ("s_mov_b32 m0, %1", "s_nop 1", f"global_load_lds_dwordx{dwords} %0, off", "s_waitcnt vmcnt(0)")
    )
    body += f'asm volatile("{lines}" :: "v"(a0 + l * {4 * dwords}), '
    body += '"s"((unsigned)(unsigned long)shared) : "memory"); '
    body += f"for (int j = 0; j < {dwords}; ++j) ((unsigned*)a1)[64 * j + l] = shared[64 * j + l];"
    np.testing.assert_array_equal(run(tmp_path, LOADS, body, [data], np.zeros_like(data)), data)
