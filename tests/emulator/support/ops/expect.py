# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compare the registers that a line of the vector ALU leaves with the model of its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import fp
from ..asm import LANES
from ..fp import Array
from .meaning import (
    FIELDS,
    Line,
    Registers,
    dpp_lanes,
    dword_names,
    dwords_as,
    lanes_of_mask,
    mask_of_lanes,
    operand,
    place,
    read,
)
from .models import CARRY_OUT, MASK_IN
from .valu import ARITH, FLOATS, KEEPS_HIGH, READS_DST, Op, clamp01, dwords, same

_U = np.uint32
IEEE, FLUSH = 0x3F0, 0x100  # MODE: denormals kept and IEEE; both off, DX10_CLAMP on in either
_FACTORS = {"": 1.0, "2": 2.0, "4": 4.0}


@dataclass(frozen=True)
class State:
    """The state in which a line starts."""

    registers: Registers
    exec_mask: int
    mode: int = IEEE


# Forms that LLVM takes and of which nobody says what they do. The device refuses them, but for the last one.
APERTURE = "an aperture has 64 bits; what 32-bit operands read of it is not documented"
HALVES = "op_sel is for operands of 16 bits"
BITS = "clamp is for integers and floats, not for bits or packed halves"
SIGNS = "what the signs of packed halves are is said of VOP3P only"
DOT = "output scaling goes by MODE's denormals, which the dot products do not heed; cards ignore some clamps"
CLASSES = "whether a float constant beside an f16 is that of f16 (v_cmp_class_f16, v_ldexp_f16)"
_BITS = ("_b32", "_b16", "_b64", "v_cvt_pkrtz_f16_f32", "v_pack_b32_f16", "v_mul_lo_u16")


def unsaid(line: Line, model: Op) -> str:
    """Why nobody says what a line that LLVM takes does; "" if somebody does."""
    texts = places(line, model)[1]
    kinds = dict(zip(texts, model.srcs, strict=True))
    if any(
        t.startswith("src_") and t.endswith(("_base", "_limit")) and dwords(k) == 1 for t, k in kinds.items()
    ):
        return APERTURE
    selects = line["op_sel"].strip("[]").split(",") if line["op_sel"] else []
    for select, kind in zip(selects, [*model.srcs, model.dst], strict=False):
        if select == "1" and (kind == "mask" or np.dtype(fp.DTYPES[kind]).itemsize != 2):
            return HALVES
    for text, kind in kinds.items():
        if kind == "pf16" and (operand(text).neg or operand(text).absolute):
            return SIGNS
    if line.name.endswith(("_class_f16", "v_ldexp_f16")) and "." in texts[1]:
        return CLASSES
    changed = line["clamp"] or line["mul"] or line["div"]
    if changed and model.dst not in FLOATS and line.name.endswith(_BITS):
        return BITS
    if "pf16" in model.srcs and changed:
        return DOT
    return ""


def places(line: Line, model: Op) -> tuple[str, list[str], str]:
    """The carry's register, the sources and the mask operand of a line."""
    rest = list(line.operands[1:])
    carry = rest.pop(0) if CARRY_OUT in model.flags else ""
    sources, rest = rest[: len(model.srcs)], rest[len(model.srcs) :]
    mask = rest[0] if rest else "vcc" if MASK_IN in model.flags else ""
    return carry, sources, mask


def outputs(line: Line, model: Op) -> list[str]:
    """The registers of one dword to look at afterwards."""
    carry = places(line, model)[0]
    names = dword_names(line.operands[0]) + (dword_names(carry) if carry else [])
    return list(dict.fromkeys(names + (["exec_lo", "exec_hi"] if "v_cmpx" in line.name else [])))


def _arguments(line: Line, texts: list[str], model: Op, state: State, source: Array | None) -> list[Array]:
    args = []
    for n, (text, kind) in enumerate(zip(texts, model.srcs, strict=True)):
        value = read(line, n, text, kind, state.registers, source if n == 0 else None)
        assert value is not None, f"{text}: no value"
        args.append(value)
    return args


def _flushed(model: Op, args: list[Array], line: Line) -> tuple[Any, Array]:
    """The result with denormals off and the output modifier applied, and the lanes where nobody says."""
    floats = [a for a in args if a.dtype.kind == "f"]
    free = np.zeros(LANES, bool)
    if ARITH in model.flags:
        args = [fp.flush(a) if a.dtype.kind == "f" else a for a in args]
    else:
        for a in floats:
            free |= np.isnan(a) | (fp.flush(a) != a)
    want = model.fn(*args)
    free |= np.ma.getmaskarray(want)
    want = np.ma.getdata(want)
    if model.dst not in FLOATS:
        return want, free
    narrow = want.astype(fp.DTYPES[model.dst])
    if ARITH not in model.flags:
        free |= (fp.flush(narrow) != narrow) & ~np.isnan(narrow)
    narrow = fp.flush(narrow)
    factor = 0.5 if line["div"] else _FACTORS[line["mul"]]
    if factor == 1:
        return np.where(np.isnan(narrow) | (narrow == 0), narrow, want), free
    scaled = fp.flush((narrow * narrow.dtype.type(factor)).astype(narrow.dtype))
    return np.where(scaled == 0, np.zeros_like(scaled), scaled), free  # -0 becomes +0


def _in_pairs(line: Line, want: Array, free: Array, state: State) -> tuple[Array, Array]:
    """Two floats, each of them scaled and clamped."""
    pair = np.ascontiguousarray(want).view(np.float32).reshape(-1, 2)
    if state.mode == FLUSH:
        pair = pair * np.float32(0.5 if line["div"] else _FACTORS[line["mul"]])
        if line["div"] or line["mul"]:
            pair = np.where(pair == 0, np.float32(0), pair)  # -0 becomes +0
    if line["clamp"]:
        pair = clamp01(pair)
    return np.ascontiguousarray(pair).view(np.uint64)[:, 0], free


def _result(line: Line, model: Op, args: list[Array], state: State) -> tuple[Any, Array]:
    clamps = bool(line["clamp"])
    with np.errstate(all="ignore"):
        if CARRY_OUT in model.flags:
            exact = np.asarray(model.fn(*args))
            return _wrapped(exact, model, clamps), np.zeros(LANES, bool)
        if clamps and model.clamp:
            return model.clamp(*args), np.zeros(LANES, bool)
        if state.mode == FLUSH:
            want, free = _flushed(model, args, line)
        else:
            want = model.fn(*args)
            free, want = np.ma.getmaskarray(want), np.ma.getdata(want)
        if model.dst == "pf32":
            return _in_pairs(line, want, free, state)
        if clamps and model.dst in FLOATS:
            want = clamp01(want)
    return want, free


def _wrapped(exact: Array, model: Op, clamps: bool) -> Array:
    dtype = np.dtype(fp.DTYPES[model.dst])
    info = np.iinfo(dtype)
    if clamps:
        exact = np.array([min(max(int(v), int(info.min)), int(info.max)) for v in exact], object)
    mask = (1 << 8 * dtype.itemsize) - 1
    return np.array([int(v) & mask for v in exact], f"u{dtype.itemsize}").view(dtype)


def _high(line: Line, place: int) -> bool:
    """Return whether op_sel picks the high half of an operand."""
    return line["op_sel"].strip("[]").split(",")[place : place + 1] == ["1"]


def _all_arguments(
    line: Line, model: Op, state: State, source: Array | None, old: list[Array]
) -> list[Array]:
    _, texts, mask = places(line, model)
    args = _arguments(line, texts, model, state, source)
    if READS_DST in model.flags:
        high = _high(line, len(texts))
        args.append(dwords_as([old[0] >> _U(16)] if high else old, model.dst))
    if MASK_IN in model.flags:
        low, high_bits = (int(state.registers[n][0]) for n in dword_names(mask))
        args.append(lanes_of_mask(low | high_bits << 32))
    return args


def check(line: Line, model: Op, state: State, got: Mapping[str, Array]) -> None:
    """AssertionError if the registers are not what the form means."""
    is_mask = model.dst == "mask"
    source, written = (
        dpp_lanes(line, state.exec_mask) if line.form == "dpp" else (None, lanes_of_mask(state.exec_mask))
    )
    old = [] if is_mask else [state.registers[n] for n in dword_names(line.operands[0])]
    args = _all_arguments(line, model, state, source, old)
    want, free = _result(line, model, args, state)
    if is_mask:
        _check_mask(line, want, written, got)
        return
    full = [got[n] for n in dword_names(line.operands[0])]
    for now, before in zip(full, old, strict=True):
        assert (now[~written] == before[~written]).all(), "a lane was written that is off"
    placed = line["dst_sel"] not in ("", "DWORD")
    wanted = want, free | ~written
    if placed:
        _check_placed(line, model, args, wanted, full[0], old[0])
    else:
        _check_value(line, model, args, wanted, full, old)
    _check_carry(line, model, args, written, got)


def _check_carry(line: Line, model: Op, args: list[Array], written: Array, got: Mapping[str, Array]) -> None:
    """Check the carry where the manuals define it: not in lanes that DPP leaves out, nor of v_mad_i64_i32."""
    carry = places(line, model)[0]
    if not carry or model.dst == "i64":
        return
    info = np.iinfo(fp.DTYPES[model.dst])
    bits = np.array([not info.min <= int(v) <= info.max for v in model.fn(*args)])
    low, high = (int(got[n][0]) for n in dword_names(carry))
    difference = ((low | high << 32) ^ mask_of_lanes(bits & written)) & mask_of_lanes(written)
    assert not difference, f"carry wrong in lanes {difference:#x}"


def _check_mask(line: Line, want: Array, written: Array, got: Mapping[str, Array]) -> None:
    expected = mask_of_lanes(want & written)
    names = [dword_names(line.operands[0])] + ([["exec_lo", "exec_hi"]] if "v_cmpx" in line.name else [])
    for low, high in names:
        value = int(got[low][0]) | int(got[high][0]) << 32
        assert value == expected, f"{low}: {value:#x}, expected {expected:#x}"


def _check_value(
    line: Line,
    model: Op,
    args: list[Array],
    wanted: tuple[Array, Array],
    full: list[Array],
    old: list[Array],
) -> None:
    want, free = wanted
    high, kind = _high(line, len(model.srcs)), model.dst
    seen = dwords_as([full[0] >> _U(16)] if high else full, kind)
    same(seen, np.ma.array(want, mask=free), model.ulp, args)
    if np.dtype(fp.DTYPES[kind]).itemsize == 2:
        other, before = (x << _U(16) if high else x >> _U(16) for x in (full[0], old[0]))
        kept = high or KEEPS_HIGH in model.flags
        written = (other == (before if kept else 0)) | free
        assert written.all(), f"the other half should be {'kept' if kept else '0'}"


def _check_placed(
    line: Line, model: Op, args: list[Array], wanted: tuple[Array, Array], full: Array, old: Array
) -> None:
    """A result of which SDWA writes a part. The bits of a NaN are free, the last ones of what is inexact."""
    want, free = wanted
    if want.dtype.kind == "f" or model.dst in FLOATS:
        want = want.astype(fp.DTYPES[model.dst])
        free = free | np.isnan(want)
    bits = np.ascontiguousarray(want).view(f"u{want.dtype.itemsize}").astype(_U)
    if not model.ulp:
        same(full, np.ma.array(place(bits, old, line["dst_sel"], line["dst_unused"]), mask=free), 0, args)
        return
    start, width = FIELDS[line["dst_sel"]]
    if width == 16 and model.dst == "f16":
        part = (full >> _U(start)).astype(np.uint16).view(np.float16)
        same(part, np.ma.array(want, mask=free), model.ulp, args)
    field = _U((1 << width) - 1 << start)
    rest = place(full >> _U(start), old, line["dst_sel"], line["dst_unused"])
    assert (((full ^ rest) & ~field == 0) | free).all(), "the rest of the destination"
