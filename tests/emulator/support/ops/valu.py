# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes the test cases of a vector ALU instruction from one line that says what it computes.

An :class:`Op` names the types and a NumPy function; out of it come cases for each encoding,
for scalar and constant operands, partial EXEC, input modifiers, clamp, omod and op_sel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import fp, rows
from ..asm import ALL_LANES, LANES, MODE_DEFAULT, Case, Result, Suite, legal
from ..fp import Array
from ..spelling import GENERATION, RDNA, renamed

FLOATS = ("f16", "f32", "f64")
EXEC_PART = 0xF0F0_1234_8000_00F1 & ALL_LANES
# Flags of an Op.
VOP3 = "vop3"  # has no short form
READS_DST = "reads_dst"  # the function's last argument is the destination's old value
KEEPS_HIGH = "keeps_high"  # a 16-bit result leaves the upper half as it was
NO_MODS = "no_mods"  # float operands without neg, abs, clamp, omod
ARITH = "arith"  # float arithmetic: MODE flushes denormals, omod applies
OP_SEL = "op_sel"  # 16-bit VOP3 with op_sel
NO_CONST = "no_const"
NO_MODS_OUT = "no_mods_out"


@dataclass(frozen=True)
class Op:
    """A vector instruction: types and meaning."""

    name: str
    dst: str
    srcs: tuple[str, ...]
    fn: Callable[..., Array]
    flags: frozenset[str] = frozenset()
    ulp: float = 0.0  # allowed error; 0: the same bits
    clamp: Callable[..., Array] | None = None  # integer instructions that saturate with `clamp`


def op(
    name: str,
    dst: str,
    srcs: str,
    fn: Callable[..., Array],
    *flags: str,
    ulp: float = 0.0,
    clamp: Callable[..., Array] | None = None,
) -> Op:
    """Shorthand: source types as one string."""
    return Op(name, dst, tuple(srcs.split()), fn, frozenset(flags), ulp, clamp)


def dwords(kind: str) -> int:
    """Registers a value takes."""
    return 2 if kind in ("f64", "i64", "u64", "pf32", "mask") else 1


def reg(kind: str, index: int, bank: str = "v") -> str:
    """Name of the register or pair."""
    return f"{bank}{index}" if dwords(kind) == 1 else f"{bank}[{index}:{index + 1}]"


SRC = (2, 4, 6)
DST = 10


def view(result: Result, name: str, kind: str) -> Array:
    """A register of the result as values of a type."""
    d = result[name]
    if dwords(kind) == 2:
        return np.ascontiguousarray(d.T).view(fp.DTYPES[kind])[:, 0]
    if np.dtype(fp.DTYPES[kind]).itemsize == 2:
        return (d[0] & 0xFFFF).astype(np.uint16).view(fp.DTYPES[kind])
    return d[0].view(fp.DTYPES[kind])


def same(got: Array, want: Any, ulp: float, context: Sequence[Array], active: Array | None = None) -> None:
    """Compare results: bits for integers, any NaN for a NaN, `ulp` where inexact. Masked lanes are free."""
    care = np.ones(got.shape, bool) if active is None else active.copy()
    if isinstance(want, np.ma.MaskedArray):
        care &= ~np.ma.getmaskarray(want)
        want = want.data
    want = np.broadcast_to(np.asarray(want), got.shape)
    bits = f"u{got.dtype.itemsize}"
    if got.dtype.kind == "f":
        target = want.astype(got.dtype) if want.dtype != got.dtype else want
        good = (np.isnan(got) & np.isnan(target)) | (
            np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(target).view(bits)
        )
        if ulp:
            with np.errstate(all="ignore"):
                error = np.abs(got.astype(np.float64) - want.astype(np.float64))
                near = error <= ulp * fp.ulps(want, got.dtype)
            good |= np.isfinite(got) & np.isfinite(target) & near & (target != 0)
    else:
        target = want.astype(got.dtype)
        good = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(target).view(bits)
    bad = np.flatnonzero(~good & care)
    if len(bad):
        i = int(bad[0])
        operands = ", ".join(_show(np.broadcast_to(a, got.shape)[i]) for a in context)
        raise AssertionError(
            f"{len(bad)} lanes wrong; lane {i}: ({operands}) gives {_show(got[i])}, "
            f"expected {_show(target[i])}"
        )


def _show(x: Any) -> str:
    bits = int(np.asarray(x).view(f"u{np.asarray(x).dtype.itemsize}"))
    return f"{x} [0x{bits:x}]" if np.asarray(x).dtype.kind == "f" else f"0x{bits:x}"


def evaluate(o: Op, args: Sequence[Array], old: Array, clamp: bool = False) -> Any:
    """Call the op's function."""
    fn = o.clamp if clamp and o.clamp else o.fn
    with np.errstate(all="ignore"):
        return fn(*args, *([old] if READS_DST in o.flags else []))


def bits_of_exec(mask: int, lanes: int) -> Array:
    """EXEC as one bool a lane, the same for each wave."""
    one = np.array([mask >> i & 1 for i in range(LANES)], bool)
    return np.tile(one, lanes // LANES)


def old_values(o: Op, n: int) -> Array:
    """Return the destination's values before the instruction."""
    return fp.random_bits(
        o.dst if READS_DST in o.flags else "u64" if dwords(o.dst) == 2 else "u32", n, np.random.default_rng(7)
    )


def _wide(o: Op, old: Array) -> Array:
    """The old destination register in full."""
    return old if old.dtype.itemsize >= 4 else old.astype(np.uint32) | np.uint32(0x5A5A0000)


def check_dst(
    o: Op,
    args: Sequence[Array],
    old: Array,
    exec_mask: int = ALL_LANES,
    clamp: bool = False,
    post: Callable[[Any], Any] | None = None,
    high: str = "",
) -> Callable[[Result], None]:
    """Check of the destination register: value, upper half, inactive lanes."""
    wide = _wide(o, old)

    def check(result: Result) -> None:
        n = result[reg(o.dst, DST)].shape[1]
        active = bits_of_exec(exec_mask, n)
        typed_old = _typed(wide, o.dst)
        want = evaluate(o, args, typed_old, clamp)
        if post:
            with np.errstate(all="ignore"):
                want = post(want)
        same(view(result, reg(o.dst, DST), o.dst), want, o.ulp, [*args, typed_old], active)
        full = result[reg(o.dst, DST)]
        before = np.ascontiguousarray(wide).view(np.uint32).reshape(n, -1).T
        assert (full[:, ~active] == before[:, ~active]).all(), "an inactive lane was written"
        if np.dtype(fp.DTYPES[o.dst]).itemsize == 2:
            kept = high == "keep" or KEEPS_HIGH in o.flags
            expected = before[0] >> 16 if kept else np.zeros(n, np.uint32)
            assert (full[0] >> 16 == expected)[active].all(), (
                f"upper half should be {'kept' if kept else '0'}"
            )

    return check


def _typed(wide: Array, kind: str) -> Array:
    dtype = np.dtype(fp.DTYPES[kind])
    return (wide & 0xFFFF).astype(np.uint16).view(dtype) if dtype.itemsize == 2 else wide.view(dtype)


def here(o: Op) -> Op | None:
    """The instruction as this arch has it; None if it has not."""
    row = rows.by_name(rows.arch()).get(renamed(o.name))
    if row is None or not RDNA:
        return o if row else None
    flags = o.flags - {VOP3} | ({VOP3} if row.format == "VOP3" else set())
    if o.dst != "mask" and np.dtype(fp.DTYPES[o.dst]).itemsize == 2:
        flags |= {KEEPS_HIGH}  # of every form
    return replace(o, name=row.mnemonic, flags=flags)


def add_all(suite: Suite, ops: Sequence[Op]) -> None:
    """Add the cases of all these instructions."""
    for o in filter(None, map(here, ops)):
        _add_plain(suite, o)
        if GENERATION == 10 and o.name == "v_dot4c_i32_i8":  # which has no 64-bit form there
            continue
        _add_scalar(suite, o)
        _add_constants(suite, o)
        if any(k in FLOATS for k in o.srcs) and NO_MODS not in o.flags:
            _add_modifiers(suite, o)
        if o.clamp:
            _add_integer_clamp(suite, o)
        if OP_SEL in o.flags:
            _add_op_sel(suite, o)
        if ARITH in o.flags:
            _add_flush(suite, o)


def _sources(o: Op) -> list[str]:
    return [reg(k, r) for k, r in zip(o.srcs, SRC, strict=False)]


def _vin(o: Op, args: Sequence[Array], old: Array) -> dict[str, Any]:
    wide = {reg(o.dst, DST): _wide(o, old)} if o.dst != "mask" else {}
    junk = {}
    for k, r, a in zip(o.srcs, SRC, args, strict=False):
        # The upper half of a 16-bit operand holds junk: the instruction must not look at it.
        bits = a.view(np.uint16).astype(np.uint32) | np.uint32(0xA5C30000) if a.dtype.itemsize == 2 else a
        junk[reg(k, r)] = bits
    return junk | wide


def suffix(o: Op, form: str) -> str:
    """Mnemonic of a form."""
    return o.name if VOP3 in o.flags and form in ("e32", "e64") else f"{o.name}_{form}"


def _add_plain(suite: Suite, o: Op) -> None:
    args = fp.lanes_of(o.srcs)
    old = old_values(o, len(args[0]) if args else LANES)
    line = f"{suffix(o, 'e32')} {', '.join([reg(o.dst, DST), *_sources(o)])}"
    suite.add(f"{o.name}-plain", [line], [reg(o.dst, DST)], check_dst(o, args, old), _vin(o, args, old))


def _add_scalar(suite: Suite, o: Op) -> None:
    """E64 form, one operand in SGPRs, some lanes off."""
    for k in range(len(o.srcs)):
        args = fp.lanes_of(o.srcs, seed=3 + k, limit=256)
        scalar = args[k][5 + 3 * k]
        args[k] = np.full_like(args[k], scalar)
        old = old_values(o, len(args[0]))
        srcs = _sources(o)
        srcs[k] = reg(o.srcs[k], 4, "s")
        bits = int(scalar.view(f"u{scalar.dtype.itemsize}"))
        sin = {srcs[k]: bits | (0x77770000 if scalar.dtype.itemsize == 2 else 0), "exec": EXEC_PART}
        line = f"{suffix(o, 'e64')} {', '.join([reg(o.dst, DST), *srcs])}"
        vin = _vin(o, args, old)
        del vin[reg(o.srcs[k], SRC[k])]
        vin.setdefault("v1", np.zeros(len(args[0]), np.uint32))
        suite.add(f"{o.name}-s{k}", [line], [reg(o.dst, DST)], check_dst(o, args, old, EXEC_PART), vin, sin)


_INLINE = {"0": 0, "64": 64, "-16": -16, "-1": -1}
_INLINE_FLOAT = {"0.5": 0.5, "-1.0": -1.0, "4.0": 4.0}
_INV_2PI = 0.15915494309189532


def constants(kind: str) -> dict[str, Any]:
    """Assembler text of constants and the values an operand of this type sees."""
    dtype = np.dtype(fp.DTYPES[kind])
    bits = np.dtype(f"u{dtype.itemsize}")
    mask = (1 << 8 * dtype.itemsize) - 1
    table = {t: np.array(v & mask, bits).view(dtype)[()] for t, v in _INLINE.items()}
    if kind in ("i16", "u16") or kind.startswith("p"):
        return table
    as_float = {2: np.float16, 4: np.float32, 8: np.float64}[dtype.itemsize]
    inv_2pi = "0.15915494309189532" if dtype.itemsize == 8 else "0.15915494"
    table |= {
        t: np.array(v, as_float).view(dtype)[()] for t, v in (_INLINE_FLOAT | {inv_2pi: _INV_2PI}).items()
    }
    if kind in ("i32", "u32"):
        table["0x12345678"] = np.array(0x12345678, bits).view(dtype)[()]
    if kind == "f32":
        table["0x40490fdb"] = np.float32(np.pi)
    if kind == "f16":
        table["0x4248"] = np.array(0x4248, np.uint16).view(np.float16)[()]
    if kind == "f64":
        table["0x400921fb"] = np.array(0x400921FB00000000, np.uint64).view(np.float64)[()]
    return table


def _add_constants(suite: Suite, o: Op) -> None:
    if NO_CONST in o.flags or not o.srcs:
        return
    for text, value in constants(o.srcs[0]).items():
        args = fp.lanes_of(o.srcs, seed=11, limit=192)
        args[0] = np.full_like(args[0], value)
        old = old_values(o, len(args[0]))
        literal = text.startswith("0x")
        if literal and VOP3 in o.flags and not RDNA:
            continue  # VOP3 takes no literal on GFX9
        line = (
            f"{suffix(o, 'e32' if literal else 'e64')} {', '.join([reg(o.dst, DST), text, *_sources(o)[1:]])}"
        )
        vin = _vin(o, args, old)
        del vin[reg(o.srcs[0], SRC[0])]
        vin.setdefault("v1", np.zeros(len(args[0]), np.uint32))
        suite.add(f"{o.name}-const:{text}", [line], [reg(o.dst, DST)], check_dst(o, args, old), vin)


def modify(x: Array, neg: bool, absolute: bool) -> Array:
    """Input modifiers: sign bits cleared, then flipped."""
    bits = x.view(f"u{x.dtype.itemsize}").copy()
    sign = bits.dtype.type(1 << (8 * x.dtype.itemsize - 1))
    if absolute:
        bits &= ~sign
    if neg:
        bits ^= sign
    return bits.view(x.dtype)


def clamp01(x: Any) -> Any:
    """Clamp with DX10_CLAMP: NaN becomes 0."""

    def one(a: Array) -> Array:
        return np.where(np.isnan(a), 0, np.minimum(np.maximum(a, 0) + 0.0, 1)).astype(a.dtype)

    return (
        np.ma.array(one(x.data), mask=np.ma.getmaskarray(x)) if isinstance(x, np.ma.MaskedArray) else one(x)
    )


def decorate(text: str, neg: bool, absolute: bool) -> str:
    """Operand text with modifiers."""
    return ("-" if neg else "") + (f"|{text}|" if absolute else text)


def _add_modifiers(suite: Suite, o: Op) -> None:
    floats = [k for k, t in enumerate(o.srcs) if t in FLOATS]
    for combo in range(3):
        args = fp.lanes_of(o.srcs, seed=20 + combo, limit=512)
        old = old_values(o, len(args[0]))
        neg = [k in floats and (combo + k) % 3 != 1 for k in range(len(args))]
        absolute = [k in floats and (combo + 2 * k) % 3 != 0 for k in range(len(args))]
        seen = [modify(a, n, b) if n or b else a for a, n, b in zip(args, neg, absolute, strict=True)]
        srcs = [decorate(s, n, b) for s, n, b in zip(_sources(o), neg, absolute, strict=True)]
        do_clamp = combo == 2 and o.dst in FLOATS and NO_MODS_OUT not in o.flags
        line = f"{suffix(o, 'e64')} {', '.join([reg(o.dst, DST), *srcs])}{' clamp' if do_clamp else ''}"
        suite.add(
            f"{o.name}-mods{combo}",
            [line],
            [reg(o.dst, DST)],
            check_dst(o, seen, old, post=clamp01 if do_clamp else None),
            _vin(o, args, old),
        )


def _add_integer_clamp(suite: Suite, o: Op) -> None:
    args = fp.lanes_of(o.srcs, seed=5)
    old = old_values(o, len(args[0]))
    line = f"{suffix(o, 'e64')} {', '.join([reg(o.dst, DST), *_sources(o)])} clamp"
    suite.add(
        f"{o.name}-clamp", [line], [reg(o.dst, DST)], check_dst(o, args, old, clamp=True), _vin(o, args, old)
    )


def _add_op_sel(suite: Suite, o: Op) -> None:
    halves = [np.dtype(fp.DTYPES[k]).itemsize == 2 for k in o.srcs]
    dst16 = np.dtype(fp.DTYPES[o.dst]).itemsize == 2
    for pattern in range(1, 16, 2 if len(o.srcs) == 3 else 3):
        picks = [bool(pattern >> k & 1) and halves[k] for k in range(len(o.srcs))]
        high_dst = bool(pattern >> 3) and dst16
        low = fp.lanes_of(o.srcs, seed=30 + pattern, limit=320)
        other = fp.lanes_of(o.srcs, seed=60 + pattern, limit=320)
        vin, args = {}, []
        for k, kind in enumerate(o.srcs):
            if halves[k]:
                vin[reg(kind, SRC[k])] = low[k].view(np.uint16).astype(np.uint32) | (
                    other[k].view(np.uint16).astype(np.uint32) << np.uint32(16)
                )
            else:
                vin[reg(kind, SRC[k])] = low[k]
            args.append(other[k] if picks[k] else low[k])
        old = fp.random_bits("u32", len(low[0]), np.random.default_rng(pattern))
        vin[f"v{DST}"] = old
        selects = ",".join(str(int(b)) for b in [*picks, high_dst])
        if not (any(picks) or high_dst):
            continue
        line = f"{suffix(o, 'e64')} {', '.join([reg(o.dst, DST), *_sources(o)])} op_sel:[{selects}]"
        suite.add(
            f"{o.name}-op_sel{pattern}", [line], [f"v{DST}"], _check_op_sel(o, args, old, high_dst), vin
        )


def _check_op_sel(o: Op, args: Sequence[Array], old: Array, high_dst: bool) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        full = result[f"v{DST}"][0]
        if np.dtype(fp.DTYPES[o.dst]).itemsize != 2:
            same(full.view(fp.DTYPES[o.dst]), evaluate(o, args, old), o.ulp, args)
            return
        typed = (old >> np.uint32(16 if high_dst else 0)).astype(np.uint16).view(fp.DTYPES[o.dst])
        want = evaluate(o, args, typed)
        written = (
            (full >> np.uint32(16) if high_dst else full & 0xFFFF).astype(np.uint16).view(fp.DTYPES[o.dst])
        )
        same(written, want, o.ulp, args)
        if high_dst:
            assert (full & 0xFFFF == old & 0xFFFF).all(), "op_sel wrote the lower half too"

    return check


def _add_flush(suite: Suite, o: Op) -> None:
    """MODE without denormals: inputs and outputs are flushed; omod works there, and only there."""
    for name, text, factor in (
        ("flush", "", 1.0),
        ("mul2", " mul:2", 2.0),
        ("mul4", " mul:4", 4.0),
        ("div2", " div:2", 0.5),
    ):
        args = fp.lanes_of(o.srcs, seed=9, limit=512)
        old = old_values(o, len(args[0]))
        wide = _wide(o, old)

        def check(
            result: Result, args: list[Array] = args, wide: Array = wide, factor: float = factor
        ) -> None:
            old_value = _typed(wide, o.dst)
            with np.errstate(all="ignore"):
                want = evaluate(o, [fp.flush(a) for a in args], fp.flush(old_value))
                want = fp.flush(want)
                if factor != 1:
                    want = fp.flush((want * want.dtype.type(factor)).astype(want.dtype))
                    want = np.where(want == 0, np.zeros_like(want), want)  # -0 becomes +0
            same(view(result, reg(o.dst, DST), o.dst), want, o.ulp, args)

        line = f"{suffix(o, 'e64')} {', '.join([reg(o.dst, DST), *_sources(o)])}{text}"
        suite.add(f"{o.name}-{name}", [line], [reg(o.dst, DST)], check, _vin(o, args, old), {"mode": 0x100})
    args = fp.lanes_of(o.srcs, seed=10, limit=256)
    old = old_values(o, len(args[0]))
    line = f"{suffix(o, 'e64')} {', '.join([reg(o.dst, DST), *_sources(o)])} mul:2"
    suite.add(
        f"{o.name}-omod-ignored",
        [line],
        [reg(o.dst, DST)],
        check_dst(o, args, old),
        _vin(o, args, old),
        {"mode": MODE_DEFAULT},
    )


__all__ = ["Case", "Op", "add_all", "legal", "op"]
