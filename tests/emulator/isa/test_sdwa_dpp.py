# SPDX-License-Identifier: MIT OR Apache-2.0
"""SDWA selects and DPP controls: every kind in detail, then at random on every instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..support import fp, rows
from ..support.asm import ALL_LANES, LANES, Case, Result, Suite, legal
from ..support.fp import Array
from ..support.ops1 import VOP1
from ..support.ops2 import VOP2
from ..support.valu import DST, FLOATS, NO_MODS, READS_DST, SRC, Op, bits_of_exec, evaluate, modify, reg, same

SUITE = Suite("sdwa_dpp")
SELECTS = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    "DWORD": (0, 32),
}
_U = np.uint32
EXEC_HOLES = 0xFFFF_7FFE_8001_F0F7


def pick(x: Array, select: str, sext: bool) -> Array:
    """The selected part of a register, extended to 32 bits."""
    start, width = SELECTS[select]
    part = x >> _U(start) & _U((1 << width) - 1)
    if sext and width < 32:
        part = ((part.astype(np.int64) ^ 1 << width - 1) - (1 << width - 1)).astype(_U)
    return part


def place(value: Array, old: Array, select: str, unused: str) -> Array:
    """A 32-bit result put into the selected part of the destination."""
    start, width = SELECTS[select]
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


def _sdwa_case(o: Op, k: int) -> tuple[str, Callable[[], None]]:
    rng = np.random.default_rng(k * 1000 + sum(map(ord, o.name)))
    selects = [str(rng.choice(list(SELECTS))) for _ in o.srcs]
    dst_sel = str(rng.choice(list(SELECTS)))
    unused = str(rng.choice(["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"]))
    regs = _registers(o, k)
    texts, args = [], []
    for i, kind in enumerate(o.srcs):
        name = f"v{SRC[i]}"
        is_float = kind in FLOATS and NO_MODS not in o.flags
        flip = bool(rng.integers(2))
        part = pick(regs[i], selects[i], flip and not is_float)
        value = typed(part, kind)
        if is_float and flip:
            value = modify(value, True, k % 2 == 1)
            name = f"-|{name}|" if k % 2 == 1 else f"-{name}"
        elif flip:
            name = f"sext({name})"
        texts.append(name)
        args.append(value)
    sel = "".join(f" src{i}_sel:{s}" for i, s in enumerate(selects))
    dst = "" if READS_DST in o.flags else f" dst_sel:{dst_sel} dst_unused:{unused}"
    if READS_DST in o.flags:
        dst_sel, unused = "DWORD", "UNUSED_PAD"
        dst = " dst_sel:DWORD dst_unused:UNUSED_PAD"
    line = f"{o.name}_sdwa v{DST}, {', '.join(texts)}{dst}{sel}"
    old = np.random.default_rng(k).integers(0, 1 << 32, 192, dtype=_U)

    def add() -> None:
        vin = {f"v{SRC[i]}": r for i, r in enumerate(regs)} | {f"v{DST}": old}
        SUITE.add(
            f"{o.name}-sdwa{k}",
            [line],
            [f"v{DST}"],
            _check_sdwa(o, args, old, dst_sel, unused),
            vin,
            covers=[o.name],
        )

    return line, add


def _check_sdwa(
    o: Op, args: Sequence[Array], old: Array, dst_sel: str, unused: str
) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        want: Any = evaluate(o, args, typed(old, o.dst))
        free = np.ma.getmaskarray(want)
        value = np.asarray(want.data if isinstance(want, np.ma.MaskedArray) else want)
        value = value.astype(fp.DTYPES[o.dst]) if value.dtype.kind == "f" else value
        if value.dtype.kind == "f":
            free = free | np.isnan(value)
        bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}").astype(_U)
        got = result[f"v{DST}"][0]
        if o.ulp and dst_sel == "DWORD" and np.dtype(fp.DTYPES[o.dst]).itemsize == 4:
            same(got.view(np.float32), np.ma.array(value, mask=free), o.ulp + 1, args)
        elif o.ulp and not np.all(free):
            start, width = SELECTS[dst_sel]
            if width >= 16 and np.dtype(fp.DTYPES[o.dst]).itemsize == 2:
                part = (got >> _U(start)).astype(np.uint16).view(np.float16)
                same(part, np.ma.array(value, mask=free), o.ulp + 1, args)
        else:
            same(got, np.ma.array(place(bits, old, dst_sel, unused), mask=free), 0, args)

    return check


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


CONTROLS = [
    "quad_perm:[3,2,1,0]",
    "quad_perm:[0,0,2,2]",
    "row_shl:1",
    "row_shl:15",
    "row_shr:1",
    "row_shr:8",
    "row_ror:1",
    "row_ror:12",
    "wave_shl:1",
    "wave_rol:1",
    "wave_shr:1",
    "wave_ror:1",
    "row_mirror",
    "row_half_mirror",
    "row_bcast:15",
    "row_bcast:31",
    "row_newbcast:0",
    "row_newbcast:13",
]


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


def _dpp_case(
    o: Op, control: str, row_mask: int, bank_mask: int, bound: bool, mask: int, seed: int
) -> tuple[str, Callable[[], None]]:
    args = [a[:LANES] for a in fp.lanes_of(o.srcs, seed=seed, limit=192)]
    args = [np.random.default_rng(seed + i).permutation(a) for i, a in enumerate(args)]
    wide = 2 if np.dtype(fp.DTYPES[o.dst]).itemsize == 8 else 1
    old = np.random.default_rng(seed).integers(0, 1 << 32, (wide, LANES), dtype=_U)
    line = (
        f"{o.name}_dpp {reg(o.dst, DST)}, "
        f"{', '.join(reg(k, r) for k, r in zip(o.srcs, SRC, strict=False))} {control} "
        f"row_mask:0x{row_mask:x} bank_mask:0x{bank_mask:x}{' bound_ctrl:0' if bound else ''}"
    )

    def add() -> None:
        vin: dict[str, Any] = {reg(k, SRC[i]): a for i, (k, a) in enumerate(zip(o.srcs, args, strict=True))}
        if bits_of_exec(mask, LANES).sum() == 0:
            return
        vin = {n: a.view(np.uint16).astype(_U) if a.dtype.itemsize == 2 else a for n, a in vin.items()}
        SUITE.add(
            f"{o.name}-dpp-{control}-{row_mask:x}{bank_mask:x}{int(bound)}-{mask:x}",
            [line],
            [reg(o.dst, DST)],
            _check_dpp(o, args, old, _dpp_expect(control, row_mask, bank_mask, bound, mask)),
            vin | {reg(o.dst, DST): old if wide == 2 else old[0]},
            {"exec": mask},
            covers=[o.name],
        )

    return line, add


def _check_dpp(o: Op, args: list[Array], old: Array, expect: tuple[Array, Array]) -> Callable[[Result], None]:
    source, written = expect

    def check(result: Result) -> None:
        moved = np.where(source >= 0, args[0].view(f"u{args[0].dtype.itemsize}")[np.maximum(source, 0)], 0)
        first = moved.astype(f"u{args[0].dtype.itemsize}").view(args[0].dtype)
        seen = [first, *args[1:]]
        old_value = (
            typed(old[0], o.dst)
            if len(old) == 1
            else np.ascontiguousarray(old.T).view(fp.DTYPES[o.dst])[:, 0]
        )
        want = evaluate(o, seen, old_value)
        full = result[reg(o.dst, DST)]
        got = (
            typed(full[0] & _U(0xFFFF) if np.dtype(fp.DTYPES[o.dst]).itemsize == 2 else full[0], o.dst)
            if len(old) == 1
            else np.ascontiguousarray(full.T).view(fp.DTYPES[o.dst])[:, 0]
        )
        same(got, want, o.ulp, seen, written)
        assert (full[:, ~written] == old[:, ~written]).all(), "a lane without a source was written"

    return check


def _build() -> None:
    ops = [
        o
        for o in [*VOP1, *VOP2]
        if o.name in rows.names() and not any(np.dtype(fp.DTYPES[k]).itemsize == 8 for k in (*o.srcs, o.dst))
    ]
    made = [_sdwa_case(o, k) for o in ops for k in range(4)]
    mov = next(o for o in VOP1 if o.name == "v_mov_b32")
    add = next(o for o in VOP2 if o.name == "v_add_u32")
    fadd = next(o for o in VOP2 if o.name == "v_max_f32")
    for i, control in enumerate(CONTROLS):
        for bound in (False, True):
            for mask in (ALL_LANES, EXEC_HOLES):
                made.append(_dpp_case(mov, control, 15, 15, bound, mask, i))
        made.append(_dpp_case(add, control, 0b1010, 0b0111, False, ALL_LANES, i))
        made.append(_dpp_case(fadd, control, 0b0101, 0b1110, True, EXEC_HOLES, i))
    for i, o in enumerate([o for o in [*VOP1, *VOP2] if o.name in rows.names()]):
        made.append(_dpp_case(o, CONTROLS[i % len(CONTROLS)], 15, 15, True, ALL_LANES, i))
        made.append(_dpp_case(o, CONTROLS[(i * 7 + 3) % len(CONTROLS)], 13, 11, False, EXEC_HOLES, i))
    # Not every instruction has these forms: the assembler says which do.
    for (_, add_case), good in zip(made, legal([line for line, _ in made]), strict=True):
        if good:
            add_case()


_build()


def _sdwa_compare() -> None:
    """VOPC in SDWA form writes any SGPR pair; CK's dropout uses it on bytes."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 1 << 32, LANES, dtype=_U) for _ in range(2))
    b[::3] = a[::3]
    for name, sel0, sel1, sext in (
        ("ge_u16", "BYTE_0", "BYTE_3", 0),
        ("lt_u16", "BYTE_0", "BYTE_1", 0),
        ("lt_i32", "WORD_1", "BYTE_2", 1),
        ("eq_u32", "WORD_0", "DWORD", 0),
        ("gt_i16", "BYTE_1", "WORD_1", 1),
    ):
        x, y = pick(a, sel0, bool(sext)), pick(b, sel1, bool(sext))
        if "16" in name:
            x, y = (v & _U(0xFFFF) for v in (x, y))
        kind = name.split("_")[1]
        x, y = (typed(v, kind) for v in (x, y))
        want = {"ge": x >= y, "lt": x < y, "eq": x == y, "gt": x > y}[name.split("_")[0]]
        expected = sum(1 << i for i in range(LANES) if want[i])
        srcs = ["sext(v2)", "sext(v4)"] if sext else ["v2", "v4"]
        for dst in ("vcc", "s[8:9]"):
            line = f"v_cmp_{name}_sdwa {dst}, {', '.join(srcs)} src0_sel:{sel0} src1_sel:{sel1}"

            def check(result: Result, expected: int = expected, dst: str = dst) -> None:
                got = result.vcc[0] if dst == "vcc" else int(result[dst][0, 0]) | int(result[dst][1, 0]) << 32
                assert hex(got) == hex(expected)

            SUITE.add(
                f"v_cmp_{name}-sdwa-{dst}",
                [line],
                [] if dst == "vcc" else [dst],
                check,
                {"v2": a, "v4": b},
                {"s[8:9]": 0} if dst != "vcc" else {},
                covers=[f"v_cmp_{name}"],
            )


_sdwa_compare()


@SUITE.parametrize()
def test_sdwa_dpp(case: Case) -> None:
    """Parts and lanes come from where the control says."""
    SUITE.check(case)
