# SPDX-License-Identifier: MIT OR Apache-2.0
"""SDWA and DPP: every select, extension, sign, control and mask on every instruction that has the form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..support import fp, rows
from ..support.asm import ALL_LANES, LANES, Case, Result, Suite, legal
from ..support.forms import CONTROLS, SELECTS, UNUSED
from ..support.fp import Array
from ..support.ops1 import VOP1
from ..support.ops2 import VOP2
from ..support.predicates import compares, masks
from ..support.valu import FLOATS, NO_MODS_OUT, SRC, Op, clamp01, evaluate, modify, reg, same

SUITE = Suite("sdwa_dpp")
FIELDS = dict(
    zip(SELECTS, [(0, 8), (8, 8), (16, 8), (24, 8), (0, 16), (16, 16), (0, 32)], strict=True)
)  # first bit and width
_U = np.uint32
EXEC_HOLES = 0xFFFF_7FFE_8001_F0F7


def pick(x: Array, select: str, sext: bool) -> Array:
    """The selected part of a register, extended to 32 bits."""
    start, width = FIELDS[select]
    part = x >> _U(start) & _U((1 << width) - 1)
    if sext and width < 32:
        part = ((part.astype(np.int64) ^ 1 << width - 1) - (1 << width - 1)).astype(_U)
    return part


def place(value: Array, old: Array, select: str, unused: str) -> Array:
    """A 32-bit result put into the selected part of the destination."""
    start, width = FIELDS[select]
    mask = _U((1 << width) - 1 << start)
    placed = value << _U(start) & mask
    if unused == "UNUSED_PRESERVE":
        return placed | (old & ~mask)
    if unused == "UNUSED_SEXT" and start + width < 32:
        negative = placed >> _U(start + width - 1) & _U(1) == 1
        placed = np.where(negative, placed | _U(0xFFFFFFFF << (start + width) & 0xFFFFFFFF), placed)
    return placed


def typed(bits: Array, kind: str) -> Array:
    """Register bits as a value of a type."""
    dtype = np.dtype(fp.DTYPES[kind])
    return bits.astype(np.uint16).view(dtype) if dtype.itemsize == 2 else bits.view(dtype)


def _registers(o: Op, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    out = []
    for kind in o.srcs:
        wide = rng.integers(0, 1 << 32, 192, dtype=_U)
        if kind == "f16":
            wide = fp.random_bits("pf16", 192, rng)
        elif kind == "f32":
            wide = np.where(rng.random(192) < 0.5, fp.random_bits("f32", 192, rng).view(_U), wide)
        edges = fp.edges(kind)
        wide[: len(edges)] = (
            edges if edges.dtype == _U else edges.astype(_U) << _U(16) | edges.astype(_U)[::-1]
        )
        out.append(wide)
    return out


@dataclass(frozen=True)
class _Source:
    """How an SDWA source is read."""

    select: str = "DWORD"
    sext: bool = False
    neg: bool = False
    absolute: bool = False
    scalar: bool = False

    def text(self, i: int) -> str:
        """The operand."""
        name = f"{'s' if self.scalar else 'v'}{SRC[i]}"
        name = f"|{name}|" if self.absolute else name
        return f"sext({name})" if self.sext else f"-{name}" if self.neg else name

    def value(self, register: Array, kind: str) -> Array:
        """What it reads of a register."""
        whole = np.full_like(register, register[7]) if self.scalar else register
        value = typed(pick(whole, self.select, self.sext), kind)
        return modify(value, self.neg, self.absolute) if self.neg or self.absolute else value


@dataclass(frozen=True)
class _Sdwa:
    """An SDWA form of an instruction."""

    sources: tuple[_Source, ...]
    dst_sel: str = "DWORD"
    unused: str = "UNUSED_PAD"
    clamp: bool = False

    def line(self, o: Op, dst: int) -> str:
        """The instruction, its result in this register."""
        texts = [s.text(i) for i, s in enumerate(self.sources)]
        placed = "" if o.name in NO_DST_SEL else f" dst_sel:{self.dst_sel} dst_unused:{self.unused}"
        sel = "".join(f" src{i}_sel:{s.select}" for i, s in enumerate(self.sources))
        clamp = " clamp" if self.clamp else ""
        return f"{o.name}_sdwa {reg(o.dst, dst)}, {', '.join(texts)}{clamp}{placed}{sel}"


NO_DST_SEL = {"v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"}
_SIGNS = [{}, {"sext": True}, {"neg": True}, {"absolute": True}, {"neg": True, "absolute": True}]
_SLOTS = range(16, 118, 2)  # registers of results, a pair each
_OLD = 12  # and what they hold before


def _sdwa_forms(o: Op) -> list[_Sdwa]:
    """Each property in its turn, then some at random together."""
    n = len(o.srcs)
    plain = (_Source(),) * n
    found = [
        _Sdwa((*plain[:i], source, *plain[i + 1 :]))
        for i in range(n)
        for source in [*(_Source(sel, **sign) for sel in SELECTS for sign in _SIGNS), _Source(scalar=True)]
    ]
    if o.name not in NO_DST_SEL:
        found += [_Sdwa(plain, sel, unused) for sel in SELECTS for unused in UNUSED]
    if o.clamp or (o.dst in FLOATS and NO_MODS_OUT not in o.flags):
        found.append(_Sdwa(plain, clamp=True))
    rng = np.random.default_rng(sum(map(ord, o.name)))
    for _ in range(8):
        sources = tuple(_Source(str(rng.choice(SELECTS)), **_SIGNS[rng.integers(5)]) for _ in o.srcs)
        placed = () if o.name in NO_DST_SEL else (str(rng.choice(SELECTS)), str(rng.choice(UNUSED)))
        found.append(_Sdwa(sources, *placed))
    return found


def _add_sdwa(o: Op, forms: Sequence[_Sdwa]) -> None:
    regs = _registers(o, 1)
    for at in range(0, len(forms), len(_SLOTS)):
        used = list(zip(_SLOTS, forms[at : at + len(_SLOTS)], strict=False))
        old = np.random.default_rng(at).integers(0, 1 << 32, 192, dtype=_U)

        def check(result: Result, used: list[tuple[int, _Sdwa]] = used, old: Array = old) -> None:
            for slot, form in used:
                args = [s.value(r, k) for s, r, k in zip(form.sources, regs, o.srcs, strict=True)]
                try:
                    _compare(o, form, result[reg(o.dst, slot)], args, old)
                except AssertionError as error:
                    raise AssertionError(f"{form.line(o, slot)}: {error}") from error

        SUITE.add(
            f"{o.name}-sdwa{at}",
            [*(f"v_mov_b32 v{slot}, v{_OLD}" for slot, _ in used), *(f.line(o, slot) for slot, f in used)],
            [reg(o.dst, slot) for slot, _ in used],
            check,
            {f"v{SRC[i]}": r for i, r in enumerate(regs)} | {f"v{_OLD}": old},
            {f"s{SRC[i]}": int(r[7]) for i, r in enumerate(regs)},
            covers=[o.name],
        )


def _compare(o: Op, form: _Sdwa, got: Array, args: Sequence[Array], old: Array) -> None:
    want: Any = evaluate(o, args, typed(old, o.dst) if len(got) == 1 else old, form.clamp)
    if form.clamp and not o.clamp:
        with np.errstate(all="ignore"):
            want = clamp01(want)
    free = np.ma.getmaskarray(want)
    value = np.asarray(want.data if isinstance(want, np.ma.MaskedArray) else want)
    if len(got) == 2:
        same(np.ascontiguousarray(got.T).view(np.uint64)[:, 0], np.ma.array(value, mask=free), 0, args)
        return
    value = value.astype(fp.DTYPES[o.dst]) if value.dtype.kind == "f" else value
    if value.dtype.kind == "f":
        free = free | np.isnan(value)
    bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}").astype(_U)
    if o.ulp and form.dst_sel == "DWORD" and np.dtype(fp.DTYPES[o.dst]).itemsize == 4:
        same(got[0].view(np.float32), np.ma.array(value, mask=free), o.ulp + 1, args)
    elif o.ulp and not np.all(free):
        start, width = FIELDS[form.dst_sel]
        if width >= 16 and np.dtype(fp.DTYPES[o.dst]).itemsize == 2:
            part = (got[0] >> _U(start)).astype(np.uint16).view(np.float16)
            same(part, np.ma.array(value, mask=free), o.ulp + 1, args)
    else:
        same(got[0], np.ma.array(place(bits, old, form.dst_sel, form.unused), mask=free), 0, args)


# --- DPP


def dpp_source(control: str, lane: int) -> int:
    """The lane that `lane` reads, -1 if there is none."""
    row, i = lane & ~15, lane & 15
    name, _, arg = control.partition(":")
    if name == "quad_perm":
        return lane & ~3 | [int(v) for v in arg.strip("[]").split(",")][lane & 3]
    n = int(arg or 0)
    inside = {"row_shl": i + n, "row_shr": i - n}.get(name)
    if inside is not None:
        return row + inside if 0 <= inside < 16 else -1
    wave = {"wave_shl": lane + 1, "wave_shr": lane - 1}.get(name)
    if wave is not None:
        return wave if 0 <= wave < 64 else -1
    if name == "row_bcast":
        return (row - 1 if row else -1) if n == 15 else (31 if lane >= 32 else -1)
    return {
        "row_ror": row | (i - n) % 16,
        "wave_rol": (lane + 1) % 64,
        "wave_ror": (lane - 1) % 64,
        "row_mirror": row | 15 - i,
        "row_half_mirror": lane & ~7 | 7 - (lane & 7),
        "row_newbcast": row | n,
    }[name]


def _dpp_expect(control: str, row_mask: int, bank_mask: int, bound: bool, mask: int) -> tuple[Array, Array]:
    """For each lane: the lane read (-1: a zero), and whether it is written."""
    source, written = np.full(LANES, -1), np.zeros(LANES, bool)
    for lane in range(LANES):
        s = dpp_source(control, lane)
        if s >= 0 and not mask >> s & 1:
            s = -1  # lanes that are off count as outside: there is no fetch-inactive on GFX9
        enabled = mask >> lane & 1 and row_mask >> lane // 16 & 1 and bank_mask >> lane // 4 % 4 & 1
        source[lane] = s
        written[lane] = enabled and (s >= 0 or bound)
    return source, written


@dataclass(frozen=True)
class _Dpp:
    """A DPP form of an instruction."""

    control: str
    row_mask: int
    bank_mask: int
    bound: bool
    sign: int  # 1: the first source is negated, 2: its sign is dropped

    def line(self, o: Op, dst: int) -> str:
        """The instruction, its result in this register."""
        first, *rest = [reg(k, r) for k, r in zip(o.srcs, SRC, strict=False)]
        first = f"-{first}" if self.sign == 1 else f"|{first}|" if self.sign == 2 else first
        operands = ", ".join([reg(o.dst, dst), first, *rest])
        masks = f"row_mask:{self.row_mask:#x} bank_mask:{self.bank_mask:#x}"
        return f"{o.name}_dpp {operands} {self.control} {masks}{' bound_ctrl:0' if self.bound else ''}"


def _dpp_forms(o: Op) -> list[_Dpp]:
    """Every control, with the masks and the rest in turn, so that all of each occur."""
    forms = []
    for i, control in enumerate(CONTROLS):
        row_mask, bank_mask = (15, 15) if i % 3 == 0 else (i % 16, (5 * i + 3) % 16)
        sign = i % 4 if o.srcs[0] in FLOATS and i % 4 < 3 else 0
        forms.append(_Dpp(control, row_mask, bank_mask, i % 2 == 1, sign))
        if i % 8 == 0:
            forms.append(_Dpp(control, 15, 15, i % 2 == 0, 0))
    return forms


def _add_dpp(o: Op, forms: Sequence[_Dpp]) -> None:
    for at in range(0, len(forms), len(_SLOTS)):
        used = list(zip(_SLOTS, forms[at : at + len(_SLOTS)], strict=False))
        mask = EXEC_HOLES if at else ALL_LANES
        args = [a[:LANES] for a in fp.lanes_of(o.srcs, seed=at, limit=192)]
        args = [np.random.default_rng(at + i).permutation(a) for i, a in enumerate(args)]
        wide = np.dtype(fp.DTYPES[o.dst]).itemsize == 8
        old = np.random.default_rng(at).integers(0, 1 << 32, (2, LANES), dtype=_U)[: 2 if wide else 1]

        def check(
            result: Result,
            used: list[tuple[int, _Dpp]] = used,
            args: list[Array] = args,
            old: Array = old,
            mask: int = mask,
        ) -> None:
            for slot, form in used:
                try:
                    _check_dpp(o, form, result[reg(o.dst, slot)], args, old, mask)
                except AssertionError as error:
                    raise AssertionError(f"{form.line(o, slot)}: {error}") from error

        moves = [f"v_mov_b32 v{slot + i}, v{_OLD + i}" for slot, _ in used for i in range(len(old))]
        inputs = {reg(k, SRC[i]): a for i, (k, a) in enumerate(zip(o.srcs, args, strict=True))}
        inputs = {n: a.view(np.uint16).astype(_U) if a.dtype.itemsize == 2 else a for n, a in inputs.items()}
        SUITE.add(
            f"{o.name}-dpp{at}",
            [*moves, "s_mov_b64 exec, s[8:9]", "s_nop 4", *(f.line(o, slot) for slot, f in used)],
            [reg(o.dst, slot) for slot, _ in used],
            check,
            inputs | {f"v{_OLD + i}": part for i, part in enumerate(old)},
            {"s[8:9]": mask},
            covers=[o.name],
        )


def _check_dpp(o: Op, form: _Dpp, full: Array, args: list[Array], old: Array, mask: int) -> None:
    source, written = _dpp_expect(form.control, form.row_mask, form.bank_mask, form.bound, mask)
    bits = f"u{args[0].dtype.itemsize}"
    moved = np.where(source >= 0, args[0].view(bits)[np.maximum(source, 0)], 0)
    first = modify(moved.astype(bits).view(args[0].dtype), form.sign == 1, form.sign == 2)
    want = evaluate(o, [first, *args[1:]], _of_registers(old, o.dst))
    same(_of_registers(full, o.dst), want, o.ulp, [first, *args[1:]], written)
    assert (full[:, ~written] == old[:, ~written]).all(), "a lane without a source was written"


def _of_registers(dwords: Array, kind: str) -> Array:
    if len(dwords) == 1:
        return typed(dwords[0], kind)
    return np.ascontiguousarray(dwords.T).view(fp.DTYPES[kind])[:, 0]


def _build() -> None:
    """Every form of every instruction that the assembler takes: it says which there are."""
    ops = [o for o in [*VOP1, *VOP2] if o.name in rows.names() and o.srcs]
    forms = [(o, f) for o in ops for f in (*_sdwa_forms(o), *_dpp_forms(o))]
    good = legal([f.line(o, _SLOTS[0]) for o, f in forms])
    taken: dict[str, list[Any]] = {}
    for (o, form), ok in zip(forms, good, strict=True):
        if ok:
            taken.setdefault(o.name, []).append(form)
    for o in ops:
        found = taken.get(o.name, [])
        _add_sdwa(o, [f for f in found if isinstance(f, _Sdwa)])
        _add_dpp(o, [f for f in found if isinstance(f, _Dpp)])


_build()


# --- compares


@dataclass(frozen=True)
class _Compare:
    """An SDWA form of a compare."""

    name: str
    kinds: tuple[str, str]
    fn: Callable[[Array, Array], Array]
    sources: tuple[_Source, _Source]

    def lines(self, to: str) -> list[str]:
        """The instruction, what it says of the lanes in an SGPR pair; v_cmpx says it in EXEC too."""
        texts = ", ".join(s.text(i) for i, s in enumerate(self.sources))
        selects = " ".join(f"src{i}_sel:{s.select}" for i, s in enumerate(self.sources))
        if "cmpx" not in self.name:
            return [f"{self.name}_sdwa {to}, {texts} {selects}"]
        return [
            f"{self.name}_sdwa vcc, {texts} {selects}",
            f"s_and_b64 {to}, exec, vcc",
            "s_mov_b64 exec, -1",
        ]

    def wanted(self, registers: Sequence[Array]) -> int:
        """A bit for each lane that it finds true."""
        args = [s.value(r, k) for s, r, k in zip(self.sources, registers, self.kinds, strict=True)]
        with np.errstate(all="ignore"):
            return masks(self.fn(*args))[0]


_PAIRS = [f"s[{i}:{i + 1}]" for i in range(10, 70, 2)]  # results of compares


def _compare_forms() -> list[_Compare]:
    """Each select and sign of each source, and scalar sources."""
    turns = [*(_Source(sel, **sign) for sel in SELECTS for sign in _SIGNS), _Source(scalar=True)]
    sources = [pair for turn in turns for pair in ((turn, _Source()), (_Source(), turn))]
    return [
        _Compare(name, kinds, fn, (first, second))
        for name, kinds, fn in compares()
        if name in rows.names()
        for first, second in sources
    ]


def _add_compares() -> None:
    forms = _compare_forms()
    good = legal([f.lines("vcc")[0] for f in forms])
    taken: dict[str, list[_Compare]] = {}
    for form, ok in zip(forms, good, strict=True):
        if ok:
            taken.setdefault(form.name, []).append(form)
    for name, found in taken.items():
        kinds = found[0].kinds
        regs = [r[:LANES] for r in _registers(Op(name, "mask", kinds, found[0].fn), 2)]
        regs[1][::3] = regs[0][::3]
        for at in range(0, len(found), len(_PAIRS)):
            used = list(zip(_PAIRS, found[at : at + len(_PAIRS)], strict=False))

            def check(
                result: Result, used: list[tuple[str, _Compare]] = used, regs: list[Array] = regs
            ) -> None:
                for to, form in used:
                    want = form.wanted(regs)
                    assert hex(result.scalar(to)[0]) == hex(want), form.lines(to)[0]

            SUITE.add(
                f"{name}-sdwa{at}",
                [line for to, form in used for line in form.lines(to)],
                [to for to, _ in used],
                check,
                {f"v{SRC[i]}": r for i, r in enumerate(regs)},
                {f"s{SRC[i]}": int(r[7]) for i, r in enumerate(regs)},
                covers=[name],
            )


_add_compares()


@SUITE.parametrize()
def test_sdwa_dpp(case: Case) -> None:
    """Parts and lanes come from where the control says."""
    SUITE.check(case)
