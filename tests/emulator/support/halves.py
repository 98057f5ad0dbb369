# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random programs that mean the same to a wave of 64 lanes of RDNA and to two waves of 32.

Nothing in them crosses the halves of a wave. A mask of lanes is a pair of scalar registers there and one
register here, which holds a half of it: masks are VCC and s56..s67, of which nothing but masks is made.
Numbers are in s0..s55, the same in all waves. A lane has 128 bytes of LDS to itself.

``FMHA_TEST_LANES=32 python -m emulator.support.halves IN OUT`` in tests/ runs pickled programs so.
"""

from __future__ import annotations

import pickle
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import asm, hip, rows
from .fuzz import FOREIGN, Batch, Drawn, draw, no_check, values
from .spelling import GENERATION, MASKED, NARROW, spell

LANES = 64  # of a program, in one wave or two
_VGPRS, _SGPRS, _MASKS = 80, 56, 6
_LIMITS = {"v": _VGPRS, "a": _VGPRS, "s": _SGPRS}  # there is no a, but lines that LLVM refuses
_ADDRESS, _OWN_LDS = "v118", 128
_LEFT = f"v[{_VGPRS}:{_VGPRS + 31}]"  # where a lane's LDS goes in the end
_OUT = (f"v[0:{_VGPRS - 1}]", _LEFT, f"s[0:{_SGPRS - 1}]", f"s[{_SGPRS}:{_SGPRS + 2 * _MASKS - 1}]")
_WEIGHTS = {
    "VOP1": 14,
    "VOP2": 20,
    "VOPC": 12,
    "VOP3": 50,
    "VOP3B": 8,
    "VOP3P": 8,
    "DS": 16,
    "SOP1": 6,
    "SOP2": 9,
    "SOPC": 4,
    "SOPK": 4,
}
# Instructions that count lanes, cross the halves, depend on the wave's layout, or pick registers by M0; those
# of the harness; and those that no program here needs.
_LEFT_OUT = re.compile(
    r"v_(mbcnt|readlane|readfirstlane|writelane|permlane64|movrel|swaprel|wmma|swmmac|pipeflush|s_)"
    r"|ds_(\w*permute|gws|ordered|add_gs|sub_gs|nop)"
    r"|s_(\w*(saveexec|wrexec)|sendmsg|sleep|barrier|get_barrier|wakeup|waitcnt|subvector|version|rfe)"
)
_SPECIAL = re.compile(r"\b(m0|null|vcc_lo|vcc_hi|exec\w*|src_\w+)\b")
_APART = "s_wait_alu 0x0" if GENERATION == 12 else "s_waitcnt_depctr 0x0"  # for all that is on its way
_ARRIVED = "s_waitcnt lgkmcnt(0)"


def _masks(row: rows.RowInfo, line: str, r: random.Random) -> str:
    """The line with its masks among those of the programs; empty if it has other pairs."""
    name, _, rest = line.partition(" ")
    operands = rest.split(", ")
    places = {0} if row.format == "VOPC" else set()
    if row.format == "VOP3B" or (not places and "writes_vcc" in row.flags):
        places.add(1)
    if "reads_vcc" in row.flags:
        places.add(len(operands) - 1)
    for i, operand in enumerate(operands):
        pair = re.search(r"s\[\d+:\d+\]", operand)
        if pair and i not in places:
            return ""
        if pair:
            first = _SGPRS + 2 * r.randrange(_MASKS)
            operands[i] = f"s[{first}:{first + 1}]{operand[pair.end() :]}"
    return f"{name} {', '.join(operands)}"


def _lds(row: rows.RowInfo, line: str, r: random.Random) -> str:
    """At the lane's own bytes."""
    if "stride64" in row.flags or "addtid" in row.mnemonic:
        return ""
    name, _, rest = line.partition(" ")
    operands = re.split(r" offset| gds", rest)[0].split(", ")
    if "swizzle" in name:
        pattern = r.choice([r.randrange(0x8000), 0x8000 | r.randrange(256)])
        return f"{name} {rest.split(' offset')[0]} offset:{pattern}"
    at = 1 if re.search(r"_rtn|_read|_load", name) else 0
    if len(operands) <= at:
        return ""
    operands[at] = _ADDRESS
    offset = f"offset:{16 * r.randrange(_OWN_LDS // 16)}"
    if "two_offsets" in row.flags:
        offset = f"offset0:{r.randrange(8)} offset1:{r.randrange(8, 14)}"
    return f"{name} {', '.join(operands)} {offset}"


def _overlaps(line: str) -> bool:
    """Return whether the first vector operand overlaps another one."""
    sets = [set(asm.registers(x)) for x in re.findall(r"\bv(?:\d+|\[\d+:\d+\])", line)]
    return bool(sets) and any(sets[0] & s for s in sets[1:])


def _refused(row: rows.RowInfo, line: str) -> bool:
    """Return whether no program here may have the line, for a reason above or since the device refuses it."""
    if "refused" in row.flags or ("scalar_dst" in row.flags and row.format != "VOPC"):
        return True
    if _LEFT_OUT.match(row.mnemonic) or _SPECIAL.search(line) or FOREIGN.search(line):
        return True
    if re.search(r"row_mask:0x[^05af]", line):  # each half has bits of its own
        return True
    if re.match("v_(pk_fmac|ldexp|dot2a?c)", line):  # signs of packed halves and exponents
        return bool(re.search(r"[|-]", line))
    if re.match(r"v_cvt_pk_f32_(fp|bf)8", line) and "op_sel" in line:  # whose second half is of no operand
        return True
    return bool(re.match(r"v_mad_(co_)?[iu]64", line)) and _overlaps(line)


def candidate(r: random.Random, floats: bool) -> tuple[rows.RowInfo, str]:
    """A row and a line, empty if it is not wanted."""
    row, line = draw(r, _WEIGHTS, _LIMITS)
    kinds = {row.dst, *row.srcs}
    numeric = any("f" in k for k in kinds) or re.search(r"_f(16|32|64)|bf16|fp8|bf8", row.mnemonic)
    if (numeric and not floats) or _refused(row, line):
        return row, ""
    if row.format == "DS":
        return row, _lds(row, line, r)
    if MASKED.match(row.mnemonic):
        return row, _masks(row, line, r)
    return row, "" if "vcc" in line else line


def _environment(r: random.Random) -> str:
    """Another EXEC, or another MODE."""
    if r.random() < 0.3:
        return f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), {r.choice([0xF0, r.getrandbits(8)]):#x}"
    first = _SGPRS + 2 * r.randrange(_MASKS)
    return r.choice(["s_mov_b64 exec, -1", f"s_mov_b64 exec, s[{first}:{first + 1}]"])


@dataclass
class Program:
    """Lines in the words of waves of 64, and a seed of what they start from."""

    seed: int
    drawn: list[Drawn]

    def _text(self) -> Iterator[str]:
        fill = "ds_write_b128"
        yield from (f"{fill} {_ADDRESS}, v[{4 * i}:{4 * i + 3}] offset:{16 * i}" for i in range(8))
        yield _ARRIVED
        for d in self.drawn:
            yield _APART
            if d.line.startswith("v_permlane"):
                yield from ("v_mov_b32 v119, v119", _APART)
            yield d.line
            if d.row and d.row.format == "DS":
                yield _ARRIVED
        yield from (_APART, "s_mov_b64 exec, -1")
        yield from (
            f"ds_read_b128 v[{_VGPRS + 4 * i}:{_VGPRS + 4 * i + 3}], {_ADDRESS} offset:{16 * i}"
            for i in range(8)
        )
        yield _ARRIVED

    def case(self) -> asm.Case:
        """For the harness, in waves of this process's size."""
        g = np.random.default_rng(self.seed)
        vin: dict[str, Any] = {_OUT[0]: values(g, _OUT[0], LANES)}
        vin[_ADDRESS] = (np.arange(LANES, dtype=np.uint32) % asm.LANES) * _OWN_LDS
        sin: dict[str, Any] = {f"s{i}": int(v) for i, v in enumerate(values(g, _OUT[2], LANES)[:, 0])}
        for i in range(_MASKS):
            first = _SGPRS + 2 * i
            sin |= _mask_in(int(g.integers(1 << 63)), f"s{first}" if NARROW else f"s[{first}:{first + 1}]")
        sin |= _mask_in(int(g.integers(1 << 63)), "vcc")
        sin["scc"] = self.seed & 1
        if NARROW:
            sin["exec"] = [asm.ALL_LANES] * (LANES // asm.LANES)
        return asm.Case(
            f"seed {self.seed}", list(self._text()), _OUT, no_check, vin, sin, lds=_OWN_LDS * asm.LANES
        )


def _mask_in(mask: int, name: str) -> dict[str, Any]:
    return {name: [mask & 0xFFFFFFFF, mask >> 32] if NARROW else [mask]}


def _left(result: asm.Result) -> dict[str, asm.U32]:
    """Return the registers a program leaves, alike for both waves: masks as pairs of dwords."""
    step = asm.LANES
    pairs = result[_OUT[3]][:, ::step]  # by wave
    masks = pairs[::2].reshape(-1, 1) if NARROW else pairs
    wide = [[x & asm.ALL_LANES for x in xs] for xs in (result.vcc, result.exec)]
    both = [xs[0] | xs[1] << 32 if NARROW else xs[0] for xs in wide]
    scalars = result[_OUT[2]][:, ::step]
    assert (scalars == scalars[:, :1]).all(), "the halves' numbers differ"
    return {
        **{name: result[name] for name in _OUT[:2]},
        _OUT[2]: scalars[:, :1],
        _OUT[3]: masks,
        "vcc": np.array(both[:1], np.uint64),
        "exec": np.array(both[1:], np.uint64),
        "scc": np.array(result.scc[:1], np.uint64),
    }


def run(programs: Sequence[Program]) -> list[dict[str, asm.U32]]:
    """Every register afterwards."""
    batch = Batch.of([p.case() for p in programs])
    module = hip.Module(batch.image)
    out = []
    for program, (case, kernel, count) in zip(programs, batch.cases, strict=True):
        try:
            out.append(_left(asm._launch(module, case, kernel, count)))
        except hip.HipError as error:
            raise AssertionError(f"{case.name}: {program.drawn[0].line}: {error}") from error
    module.unload()
    return out


def programs(seeds: Sequence[int], floats: bool) -> list[Program]:
    """A program for each seed, of 40 to 120 instructions."""
    stocks = []
    for seed in seeds:
        r = random.Random(seed)
        stocks.append([candidate(r, floats) for _ in range(8 * 120)])
    lines = [spell(line)[0] if line else "?" for stock in stocks for _, line in stock]
    good = iter(asm.legal(lines))
    made = []
    for seed, stock in zip(seeds, stocks, strict=True):
        kept = [Drawn(line, row) for row, line in stock if next(good) and line]
        r = random.Random(~seed)
        drawn: list[Drawn] = []
        for d in kept[: r.randrange(40, 121)]:
            if r.random() < 0.08:
                drawn.append(Drawn(_environment(r)))
            drawn.append(d)
        made.append(Program(seed, drawn))
    return made


def main() -> None:
    """Run the programs pickled in the first argument's file, the results into the second's."""
    source, results = map(Path, sys.argv[1:3])
    results.write_bytes(pickle.dumps(run(pickle.loads(source.read_bytes()))))


if __name__ == "__main__":
    main()
