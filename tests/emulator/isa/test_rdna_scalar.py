# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scalar instructions that only RDNA has: floats, 64-bit integers, loads of bytes, packing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..support import fp
from ..support.asm import LANES, Case, Result, Suite
from ..support.findings import Kernels
from ..support.fp import Array
from ..support.ops.memory_ops import MEMORY, resource
from ..support.ops.ops1 import I32, U32
from ..support.ops.ops3 import rtz_f16
from ..support.ops.ops_rdna import MAX, MAXIMUM, MIN, MINIMUM, TO_SCALAR, to_scalar
from ..support.ops.predicates import _FLOAT as PREDICATES
from ..support.ops.scalar_ops import M64, V64, check
from ..support.ops.valu import same
from ..support.spelling import GENERATION, NARROW, RDNA, exists

SUITE = Suite("rdna_scalar")
_GROUPS = 192  # scalar operands: one a workgroup
_WAIT = "s_waitcnt lgkmcnt(0)"
_NUM = "_num" if GENERATION == 12 else ""  # in names of minimum and maximum


def _bits(values: Array) -> list[int]:
    """Register contents: junk above 16 bits."""
    junk = 0xC3A50000 if values.dtype.itemsize == 2 else 0
    return [int(v) | junk for v in np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")]


def _values(kinds: list[str], seed: int = 0) -> list[Array]:
    return [a[:_GROUPS] for a in fp.lanes_of(kinds, seed=seed, limit=_GROUPS)]


def _checked(want: Any, kind: str, args: list[Array], ulp: float = 0) -> Callable[[Result], None]:
    """s10 of each workgroup; 16-bit results have zeros above."""

    def on(result: Result) -> None:
        full = result["s10"][0][::LANES].copy()
        dtype = np.dtype(fp.DTYPES[kind])
        got = full.astype(np.uint16).view(dtype) if dtype.itemsize == 2 else full.view(dtype)
        same(got, want, ulp, args)
        if dtype.itemsize == 2:
            assert not (full >> np.uint32(16)).any(), "the upper half is not 0"

    return on


def _add(
    name: str, operands: str, want: Any, kind: str, args: list[Array], sin: dict[str, Any], ulp: float = 0
) -> None:
    """Add an instruction that writes its result to s10."""
    SUITE.add(name, [f"{name} s10, {operands}"], ["s10"], _checked(want, kind, args, ulp), {}, sin)


def _arithmetic() -> None:
    two: dict[str, Callable[[Array, Array], Array]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        f"min{_NUM}": MIN,
        f"max{_NUM}": MAX,
        "minimum": MINIMUM,
        "maximum": MAXIMUM,
    }
    one = {"ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "rndne": np.rint}
    for kind in ("f32", "f16"):
        a, b, c = _values([kind] * 3)
        sin = {"s4": _bits(a), "s6": _bits(b), "s10": _bits(c)}
        for name, fn in two.items():
            _add(f"s_{name}_{kind}", "s4, s6", fn(a, b), kind, [a, b], sin)
        for name, rounded in one.items():
            _add(f"s_{name}_{kind}", "s4", rounded(a).astype(a.dtype), kind, [a], sin)
        _add(f"s_fmac_{kind}", "s4, s6", fp.fma(a, b, c), kind, [a, b, c], sin)
        for name, fn in PREDICATES.items():
            found = fn(a, b).astype(int).tolist()
            SUITE.add(
                f"s_cmp_{name}_{kind}", [f"s_cmp_{name}_{kind} s4, s6"], [], check(None, None, found), {}, sin
            )
    a, b = _values(["f32", "f32"], 1)
    k = np.full_like(a, np.float32(np.pi))
    sin = {"s4": _bits(a), "s6": _bits(b)}
    for name, operands, order in (
        ("s_fmaak_f32", "s4, s6, 0x40490fdb", (a, b, k)),
        ("s_fmamk_f32", "s4, 0x40490fdb, s6", (a, k, b)),
    ):
        _add(name, operands, fp.fma(*order), "f32", [a, b], sin)


def _conversions() -> None:
    table: list[tuple[str, str, str, Callable[[Array], Array]]] = [
        ("s_cvt_f32_i32", "f32", "i32", lambda x: x.astype(np.float32)),
        ("s_cvt_f32_u32", "f32", "u32", lambda x: x.astype(np.float32)),
        ("s_cvt_i32_f32", "i32", "f32", I32),
        ("s_cvt_u32_f32", "u32", "f32", U32),
        ("s_cvt_f16_f32", "f16", "f32", lambda x: x.astype(np.float16)),
        ("s_cvt_f32_f16", "f32", "f16", lambda x: x.astype(np.float32)),
    ]
    for name, dst, src, fn in table:
        (a,) = _values([src])
        _add(name, "s4", fn(a), dst, [a], {"s4": _bits(a)})
    (a,) = _values(["f16"])
    upper = [b << 16 & 0xFFFF0000 | 0x1234 for b in _bits(a)]
    _add("s_cvt_hi_f32_f16", "s4", a.astype(np.float32), "f32", [a], {"s4": upper})
    a, b = _values(["f32", "f32"])
    halves = [rtz_f16(v).astype(np.uint32) for v in (a, b)]
    want = np.ma.array(halves[0] | halves[1] << np.uint32(16), mask=np.isnan(a) | np.isnan(b))
    _add("s_cvt_pk_rtz_f16_f32", "s4, s6", want, "u32", [a, b], {"s4": _bits(a), "s6": _bits(b)})
    for name in TO_SCALAR:
        for kind in ("f32", "f16"):
            (a,) = _values([kind])
            _add(f"v_s_{name}_{kind}", "s4", to_scalar(name, kind)(a), kind, [a], {"s4": _bits(a)}, ulp=1)


def _integers() -> None:
    pairs = [(a, b) for a in V64 for b in V64]
    for name, fn in (
        ("s_add_nc_u64", lambda a, b: a + b & M64),
        ("s_sub_nc_u64", lambda a, b: a - b & M64),
        ("s_mul_u64", lambda a, b: a * b & M64),
    ):
        sin = {"s[4:5]": [a for a, _ in pairs], "s[6:7]": [b for _, b in pairs], "scc": 1}
        right = check("s[10:11]", [fn(a, b) for a, b in pairs], 1)
        SUITE.add(name, [f"{name} s[10:11], s[4:5], s[6:7]"], ["s[10:11]"], right, {}, sin)
    sin = {"s4": 0x12345678, "s6": 0x9ABCDEF0, "scc": 1}
    SUITE.add(
        "s_pack_hl_b32_b16",
        ["s_pack_hl_b32_b16 s10, s4, s6"],
        ["s10"],
        check("s10", [0xDEF01234], 1),
        {},
        sin,
    )


def _loads() -> None:
    def text(name: str, dst: str, at: int) -> list[str]:
        base = "s[64:67]" if "buffer" in name else "s[70:71]"
        return [f"{name} {dst}, {base}, 0x{at:x}", _WAIT]

    for prefix in ("s_load", "s_buffer_load"):
        sin: dict[str, Any] = {"s[64:67]": resource(len(MEMORY))}
        for kind, dtype in (("i8", np.int8), ("u8", np.uint8), ("i16", np.int16), ("u16", np.uint16)):
            name, size = f"{prefix}_{kind}", np.dtype(dtype).itemsize
            for at in (0x40, 0x41 if size == 1 else 0x42, 0x53 if size == 1 else 0x56):
                value = int(MEMORY[at : at + size].view(dtype)[0]) & 0xFFFFFFFF
                SUITE.add(
                    f"{name}-{at}", text(name, "s20", at), ["s20"], check("s20", [value], 0), {}, sin, MEMORY
                )
        want = int.from_bytes(MEMORY[0x44:0x50].tobytes(), "little")
        right = check("s[20:22]", [want], 0)
        SUITE.add(
            f"{prefix}_b96", text(f"{prefix}_b96", "s[20:22]", 0x44), ["s[20:22]"], right, {}, sin, MEMORY
        )


def _messages() -> None:
    for width, dst in ((32, "s10"), (64, "s[10:11]")):
        line = f"s_sendmsg_rtn_b{width} {dst}, sendmsg(MSG_RTN_GET_REALTIME)"
        again = line.replace("s10", "s12").replace("s[10:11]", "s[12:13]")
        other = dst.replace("10", "12").replace("11", "13")

        def later(result: Result, dst: str = dst, other: str = other) -> None:
            assert result.scalar(other)[0] - result.scalar(dst)[0] >= 0

        SUITE.add(f"s_sendmsg_rtn_b{width}", [line, _WAIT, again, _WAIT], [dst, other], later)


if RDNA:
    with np.errstate(all="ignore"):
        _arithmetic()
        _conversions()
    _integers()
    _loads()
    _messages()


@pytest.mark.skipif(not RDNA, reason="of gfx11 and gfx12")
@SUITE.parametrize()
def test_rdna_scalar(case: Case) -> None:
    """Value and SCC are right."""
    SUITE.check(case)


_LOOPS = {n: [f"s_subvector_loop_{n} s20, 1", "s_nop 0"] for n in ("begin", "end")}


@pytest.mark.skipif(not (NARROW and exists("s_subvector_loop_begin")), reason="gfx10 and gfx11 have them")
@pytest.mark.parametrize("name", _LOOPS)
def test_subvector_loops(name: str) -> None:
    """Only waves of 64 have two halves to loop over."""
    assert "a loop over the halves of a wave" in Kernels(_LOOPS).finding(name)
