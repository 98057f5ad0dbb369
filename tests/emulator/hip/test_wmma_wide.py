# SPDX-License-Identifier: MIT OR Apache-2.0
"""Matrix instructions of RDNA in waves of 64, by the compiler's builtins, against NumPy.

Where an element and a sparse index lie is what AMD's matrix instruction calculator says
(github.com/ROCm/amd_matrix_instruction_calculator).
"""

from __future__ import annotations

import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from inner import run_as
from numpy.typing import NDArray

from ..support import hip
from ..support.toolchain import compiler

SOURCE = Path(__file__).with_name("wmma_wide.hip")
ARCHS = ("gfx1100", "gfx1151", "gfx1201")
LANES, SIZE = 64, 16
LANE = np.arange(LANES)
GROUP, LINE = LANE // SIZE, LANE % SIZE
DTYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "f32": np.float32,
    "i32": np.int32,
}
BITS = {"f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "i8": 8, "i4": 4, "f32": 32, "i32": 32}

Array = NDArray[Any]


@dataclass(frozen=True)
class Product:
    """D (16 x 16) = A (16 x k) B (k x 16) + C; a sparse A stores two of every four elements along k."""

    kernel: str
    gfx12: bool
    a: str
    b: str
    out: str
    k: int = SIZE
    sparse: bool = False
    high: bool = False  # gfx11: 16-bit results in the upper halves

    def __str__(self) -> str:
        return f"{'gfx12' if self.gfx12 else 'gfx11'}-{self.kernel}"


_SMALL = [(a, b, "f32") for a in ("fp8", "bf8") for b in ("fp8", "bf8")]
_BOTH = [("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "bf16")]
_WHOLE = [("i8", "i8", "i32"), ("i4", "i4", "i32")]


def _name(a: str, b: str, out: str) -> str:
    return f"{out}_{a}_{b}" if a in ("fp8", "bf8") else f"{out}_{a}"


PRODUCTS = [
    *(Product(_name(*t), False, *t) for t in _BOTH + _WHOLE),
    *(Product(f"{t[2]}_{t[0]}_high", False, *t, high=True) for t in _BOTH[2:]),
    *(Product(_name(*t), True, *t) for t in _BOTH + _WHOLE + _SMALL),
    Product("i32_i4_32", True, "i4", "i4", "i32", 32),
    *(Product(f"sparse_{_name(*t)}", True, *t, 32, sparse=True) for t in _BOTH + _WHOLE + _SMALL),
    Product("sparse_i32_i4_64", True, "i4", "i4", "i32", 64, sparse=True),
]


def _codes(values: Array, kind: str) -> Array:
    """The bits of each value, in 32."""
    if kind in DTYPES:
        values = values.astype(DTYPES[kind]).view(f"u{BITS[kind] // 8}")
    return values.astype(np.int64).astype(np.uint32) & np.uint32((1 << BITS[kind]) - 1)


def _first_k(count: int, kind: str, gfx12: bool) -> tuple[Array, int]:
    """Return the first k of A or B in each lane, and the number of k that a lane has."""
    if not gfx12:
        return 0 * LANE, count
    of_lane = max(count // 4, 32 // BITS[kind])
    return GROUP * of_lane, of_lane


def _input(matrix: Array, kind: str, gfx12: bool, rng: np.random.Generator) -> Array:
    """[register][lane] of A, or of B transposed: what no element of the matrix is for is arbitrary."""
    first, of_lane = _first_k(matrix.shape[1], kind, gfx12)
    codes = _codes(matrix, kind)
    per_register = 32 // BITS[kind]
    out = np.zeros((of_lane // per_register, LANES), np.uint32)
    for e in range(of_lane):
        k = first + e
        inside = k < matrix.shape[1]
        code = np.where(inside, codes[LINE, np.where(inside, k, 0)], rng.integers(0, 1 << BITS[kind], LANES))
        out[e // per_register] |= code.astype(np.uint32) << np.uint32(e % per_register * BITS[kind])
    return out


def _place(p: Product) -> list[tuple[int, Array, int]]:
    """For each of a lane's four elements of C and D: its register, its rows by lane, its lowest bit."""
    narrow = BITS[p.out] == 16
    if not p.gfx12:
        return [(i, 4 * i + GROUP, 16 if p.high else 0) for i in range(4)]
    rows = np.array([0, 8, 4, 12])[GROUP]
    return [(i // 2 if narrow else i, rows + i, i % 2 * 16 if narrow else 0) for i in range(4)]


def _accumulator(c: Array, p: Product, old: Array) -> Array:
    out, mask = old.copy(), np.uint32((1 << BITS[p.out]) - 1)
    codes = _codes(c, p.out)
    for register, rows, shift in _place(p):
        out[register] &= ~(mask << np.uint32(shift))
        out[register] |= codes[rows, LINE] << np.uint32(shift)
    return out


def _sparse(rng: np.random.Generator, a: Array) -> tuple[Array, Array]:
    """A whole, with zeros, of what is stored of it; and where each stored element was among its four."""
    pairs = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])
    places = pairs[rng.integers(0, len(pairs), (SIZE, a.shape[1] // 2))].reshape(SIZE, -1)
    whole = np.zeros((SIZE, 2 * a.shape[1]), a.dtype)
    stored = np.arange(a.shape[1])
    for row in range(SIZE):
        whole[row, stored // 2 * 4 + places[row]] = a[row]
    return whole, places


def _indices(places: Array, kind: str) -> Array:
    """Return each lane's index bits: two for each stored element of A that it has, the first lowest."""
    first, of_lane = _first_k(places.shape[1], kind, True)
    out = np.zeros(LANES, np.uint32)
    for e in range(of_lane):
        k = first + e
        inside = k < places.shape[1]
        out |= np.where(inside, places[LINE, np.where(inside, k, 0)], 0).astype(np.uint32) << np.uint32(2 * e)
    return out


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize("arch", ARCHS)
def test_archs(arch: str, tmp_path: Path) -> None:
    """Run the next test as each arch: a process has one."""
    code_object = tmp_path / "products.co"
    subprocess.run(
        [
            *(
                compiler(arch),
                "-x",
                "hip",
                "-std=c++20",
                "-O2",
                f"--offload-arch={arch}",
                "-mwavefrontsize64",
            ),
            *("--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"),
            *("-c", str(SOURCE), "-o", str(code_object)),
        ],
        check=True,
    )
    said = run_as(arch, f"{__file__}::test_product", FMHA_TEST_PRODUCTS=str(code_object))
    expected = sum(p.gfx12 == (arch == "gfx1201") for p in PRODUCTS)
    assert f"{expected} passed" in said


@pytest.mark.skipif("FMHA_TEST_PRODUCTS" not in os.environ, reason="run by test_archs")
@pytest.mark.parametrize("p", PRODUCTS, ids=str)
def test_product(p: Product) -> None:
    """Small whole numbers, which every sum holds exactly."""
    if p.gfx12 != os.environ["FMHA_EMU_ARCH"].startswith("gfx12"):
        pytest.skip("another generation's")
    rng = np.random.default_rng(1)
    a = rng.integers(-2, 3, (SIZE, p.k // 2 if p.sparse else p.k))
    b = rng.integers(-2, 3, (p.k, SIZE))
    c = rng.integers(-9, 10, (SIZE, SIZE))
    whole, places = _sparse(rng, a) if p.sparse else (a, np.zeros((SIZE, 4), int))
    registers = 2 if p.gfx12 and BITS[p.out] == 16 else 4
    old = rng.integers(0, 1 << 32, (registers, LANES), np.uint32)
    start = _accumulator(c, p, old)
    parts = [_input(a, p.a, p.gfx12, rng), _input(b.T, p.b, p.gfx12, rng), start]
    parts.append(_indices(places, p.a)[None] if p.sparse else np.zeros((1, LANES), np.uint32))
    module = hip.Module(Path(os.environ["FMHA_TEST_PRODUCTS"]).read_bytes())
    buffers = hip.Buffer.of(np.concatenate(parts)), hip.Buffer(start.nbytes)
    module.launch(p.kernel, struct.pack("<2Q", *(x.address for x in buffers)), block=(LANES, 1, 1))
    got = buffers[1].read(np.uint32).reshape(start.shape)
    for buffer in buffers:
        buffer.free()
    np.testing.assert_array_equal(got, _accumulator(whole @ b + c, p, start))
