# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of loads, stores and atomics in any address space, and the memory that the tests use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from .. import fp
from ..asm import ALL_LANES, LANES, Result
from ..fp import Array
from ..spelling import GENERATION, RDNA
from .ops2 import minmax

_U = np.uint32
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
LANE = np.arange(LANES)
MEMORY = np.random.default_rng(0).integers(0, 256, 8192, dtype=np.uint8)
HOLES = 0xF0FF_0000_1234_5671 & ALL_LANES  # an EXEC
ON = np.array([HOLES >> i & 1 for i in range(LANES)], bool)


def reg(count: int, index: int) -> str:
    """A VGPR or a range."""
    return f"v{index}" if count == 1 else f"v[{index}:{index + count - 1}]"


# The descriptor's last word: gfx9's data format; RDNA's format, and raw bounds.
_KIND = 0x31004000 if RDNA else 0x00020000


def _descriptor(records: int, stride: int, swizzle: int, address: int) -> int:
    return address & (1 << 48) - 1 | stride << 48 | swizzle << 63 | records << 64 | _KIND << 96


def resource(records: int, stride: int = 0, swizzle: int = 0) -> Callable[[int], int]:
    """Buffer descriptor of the case's memory."""
    return partial(_descriptor, records, stride, swizzle)


def memory_is(want: Array) -> Callable[[Result], None]:
    """Check that the case's memory starts with these bytes."""

    def check(result: Result) -> None:
        np.testing.assert_array_equal(result.mem[: len(want.view(np.uint8))], want.view(np.uint8))

    return check


def into_lds(load: str) -> list[str]:
    """A load to LDS by the lanes that are on; all lanes fill 1 KiB from v4 before, and read v[10:13] after.

    v3 holds each lane's number times 4.
    """
    return [
        "s_mov_b64 s[20:21], exec",
        "s_mov_b64 exec, -1",
        *(f"ds_write_b32 v3, v4 offset:{256 * i}" for i in range(4)),
        WAIT,
        "s_mov_b64 exec, s[20:21]",
        load,
        WAIT,
        "s_mov_b64 exec, -1",
        *(f"ds_read_b32 v{10 + i}, v3 offset:{256 * i}" for i in range(4)),
        WAIT,
    ]


def gather(memory: Array, address: Array, count: int) -> Array:
    """`count` bytes at each address, (lanes, count)."""
    return memory[address[:, None] + np.arange(count)[None]]


def as_dwords(data: Array) -> Array:
    """(lanes, bytes) padded with zeros to (dwords, lanes)."""
    pad = -data.shape[1] % 4
    padded = np.pad(data, ((0, 0), (0, pad)))
    return np.ascontiguousarray(np.ascontiguousarray(padded).view(_U).T)


def _extend(bits: int, signed: bool) -> Callable[[Array, Array], Array]:
    def fn(data: Array, old: Array) -> Array:
        value = as_dwords(data)
        return ((value.astype(np.int64) ^ 1 << bits - 1) - (1 << bits - 1)).astype(_U) if signed else value

    return fn


def _half(inner: Callable[[Array, Array], Array], high: bool) -> Callable[[Array, Array], Array]:
    def fn(data: Array, old: Array) -> Array:
        value = inner(data, old) & _U(0xFFFF)
        return (old & _U(0xFFFF)) | value << _U(16) if high else (old & _U(0xFFFF0000)) | value

    return fn


def _plain(data: Array, old: Array) -> Array:
    return as_dwords(data)


# Suffix of MUBUF, FLAT, GLOBAL and SCRATCH loads: bytes, and what the destination becomes.
LOADS: dict[str, tuple[int, Callable[[Array, Array], Array]]] = {
    "ubyte": (1, _extend(8, False)),
    "sbyte": (1, _extend(8, True)),
    "ushort": (2, _extend(16, False)),
    "sshort": (2, _extend(16, True)),
    "dword": (4, _plain),
    "dwordx2": (8, _plain),
    "dwordx3": (12, _plain),
    "dwordx4": (16, _plain),
    "ubyte_d16": (1, _half(_extend(8, False), False)),
    "ubyte_d16_hi": (1, _half(_extend(8, False), True)),
    "sbyte_d16": (1, _half(_extend(8, True), False)),
    "sbyte_d16_hi": (1, _half(_extend(8, True), True)),
    "short_d16": (2, _half(_extend(16, False), False)),
    "short_d16_hi": (2, _half(_extend(16, False), True)),
}
# Suffix of stores: bytes, and the bit of the first register they start from.
STORES = {
    "byte": (1, 0),
    "short": (2, 0),
    "dword": (4, 0),
    "dwordx2": (8, 0),
    "dwordx3": (12, 0),
    "dwordx4": (16, 0),
    "byte_d16_hi": (1, 16),
    "short_d16_hi": (2, 16),
}


def stored_bytes(data: Array, count: int, shift: int) -> Array:
    """Bytes a store writes, (lanes, count), of data (dwords, lanes)."""
    shifted = data >> _U(shift) if shift else data
    return np.ascontiguousarray(shifted.T).view(np.uint8)[:, :count]


def _int(bits: int, signed: bool) -> Any:
    return np.dtype(f"{'i' if signed else 'u'}{bits // 8}")


def _pk(dtype: Any) -> Callable[[Array, Array], Array]:
    def fn(m: Array, d: Array) -> Array:
        a, b = (np.ascontiguousarray(v).view(dtype).reshape(-1, 2) for v in (m, d))
        total = (a.astype(np.float64) + b.astype(np.float64)).astype(np.float32).astype(dtype)
        return np.ascontiguousarray(total).view(_U)[:, 0]

    return fn


def _float(dtype: Any, fn: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def wrapped(m: Array, d: Array) -> Array:
        return np.ascontiguousarray(fn(m.view(dtype), d.view(dtype)).astype(dtype)).view(m.dtype)

    return wrapped


def _extreme(smaller: bool) -> Callable[[Array, Array], Array]:
    """A comparison, say the guides of RDNA 2 and 3; IEEE 754-2019's minimum or maximum number, RDNA 4's."""
    if GENERATION not in (10, 11):
        return minmax(smaller)
    return lambda m, d: np.where(d < m if smaller else d > m, d, m)


def _wide(bits: int) -> dict[str, Callable[[Array, Array], Array]]:
    u, s = _int(bits, False), _int(bits, True)
    return {
        "swap": lambda m, d: d,
        "add": lambda m, d: m + d,
        "sub": lambda m, d: m - d,
        "smin": lambda m, d: np.minimum(m.view(s), d.view(s)).view(u),
        "umin": np.minimum,
        "smax": lambda m, d: np.maximum(m.view(s), d.view(s)).view(u),
        "umax": np.maximum,
        "and": lambda m, d: m & d,
        "or": lambda m, d: m | d,
        "xor": lambda m, d: m ^ d,
        "inc": lambda m, d: np.where(m >= d, u.type(0), m + u.type(1)),
        "dec": lambda m, d: np.where((m == 0) | (m > d), d, m - u.type(1)),
    }


# Suffix of atomics: dwords of the memory word, new value from (memory, data).
ATOMICS: dict[str, tuple[int, Callable[[Array, Array], Array]]] = {
    **{n: (1, f) for n, f in _wide(32).items()},
    **{f"{n}_x2": (2, f) for n, f in _wide(64).items()},
    "add_f32": (1, _float(np.float32, lambda a, b: a + b)),
    "min_f32": (1, _float(np.float32, _extreme(True))),
    "max_f32": (1, _float(np.float32, _extreme(False))),
    "cond_sub_u32": (1, lambda m, d: np.where(m >= d, m - d, m)),
    "sub_clamp_u32": (1, lambda m, d: np.where(m >= d, m - d, np.uint32(0))),
    "pk_add_f16": (1, _pk(np.float16)),
    "pk_add_bf16": (1, _pk(ml_dtypes.bfloat16)),
    "add_f64": (2, _float(np.float64, lambda a, b: a + b)),
    "min_f64": (2, _float(np.float64, _extreme(True))),
    "max_f64": (2, _float(np.float64, _extreme(False))),
}


def atomic_data(name: str, width: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Memory words and data for an atomic, ordinary floats where it adds floats."""
    dtype = np.uint32 if width == 1 else np.uint64
    if "f16" in name and "bf" not in name:
        return tuple(rng.normal(0, 4, (LANES, 2)).astype(np.float16).view(_U)[:, 0] for _ in range(2))  # type: ignore[return-value]
    if "bf16" in name:
        return tuple(rng.normal(0, 4, (LANES, 2)).astype(ml_dtypes.bfloat16).view(_U)[:, 0] for _ in range(2))  # type: ignore[return-value]
    if name.endswith(("f32", "f64")):
        kind = np.float32 if width == 1 else np.float64
        pair = [rng.normal(0, 4, LANES).astype(kind) for _ in range(2)]
        if RDNA and name[:3] in ("min", "max"):
            pair[0][4:9], pair[1][4:9] = [0, -0.0, np.nan, 1, np.nan], [-0.0, 0, 2, np.nan, np.nan]
        return pair[0].view(dtype), pair[1].view(dtype)
    edges = fp.I32_EDGES if width == 1 else fp.I64_EDGES
    memory, data = rng.choice(edges, LANES).astype(dtype), rng.choice(edges, LANES).astype(dtype)
    memory[::5] = data[::5]
    return memory, data
