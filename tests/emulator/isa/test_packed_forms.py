# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every form of every packed row that LLVM takes, run: halves, signs, constants, scalar registers, clamp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..support import byform, fp, rows
from ..support.asm import ALL_LANES, LANES
from ..support.byform import EXEC, Program
from ..support.fp import Array
from ..support.ops.expect import BITS, IEEE
from ..support.ops.meaning import Line, constant, dword_names, lanes_of_mask, operand
from ..support.ops.ops3p import DOTS, PACKED, Packed, fields
from ..support.ops.valu import clamp01, modify, same
from .test_forms_run import taken
from .test_vop3p import check_mix

_U = np.uint32
_LINES = 2500  # that are run, at least
_SOME = 40  # lines of a program
# Rows of other shapes.
WITHOUT = {
    "v_dot2_f32_f16": "halves without op_sel, and an order of sums: test_vop3p",
    "v_dot2_f32_bf16": "the same, of gfx950: code/test_gfx950",
    "v_pk_mov_b32": "bits, by op_sel only: test_vop3p",
}
_MIXES = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
_MODELS = {p.name: p for p in PACKED}
# Reasons for leaving out forms that no manual explains.
_CONSTANT = "the second register of what has one"
_SIGN = "signs of integers"
_HALF = "constants as halves of v_fma_mix"
_DOT = "dot products must not use op_sel, say the guides"


def _choice(line: Line, option: str, n: int, default: str) -> str:
    bits = line[option].strip("[]").split(",") if line[option] else []
    return bits[n] if bits else default


def _parts_read(line: Line, n: int) -> tuple[int, int]:
    return int(_choice(line, "op_sel", n, "0")), int(_choice(line, "op_sel_hi", n, "1"))


def _negated(line: Line, n: int) -> tuple[bool, bool]:
    return _choice(line, "neg_lo", n, "0") == "1", _choice(line, "neg_hi", n, "0") == "1"


def _aperture(line: Line) -> bool:
    return any(t.startswith("src_") and t.endswith(("_base", "_limit")) for t in line.operands[1:])


def _unsaid(line: Line) -> str:
    count = len(line.operands) - 1
    signs = any(any(_negated(line, n)) for n in range(count))
    if line.name in _MIXES:
        halves = [n for n in range(count) if _choice(line, "op_sel_hi", n, "0") == "1"]
        fixed = any(constant(operand(line.operands[1 + n]).name, "u32") is not None for n in halves)
        return _HALF if fixed or _aperture(line) else ""
    if line.name in DOTS:
        return _DOT if signs or line["op_sel"] or line["op_sel_hi"] else _CONSTANT if _aperture(line) else ""
    model = _MODELS[line.name]
    is_float = model.kind.startswith("f")
    if signs and not is_float:
        return _SIGN
    if line["clamp"] and not is_float and not model.clamp:
        return BITS
    for n, text in enumerate(line.operands[1:]):
        fixed = constant(text, "u32") is not None
        if model.kind == "f32" and (fixed or len(dword_names(text)) < 2) and 1 in _parts_read(line, n):
            return _CONSTANT
    return _CONSTANT if model.kind != "f32" and _aperture(line) else ""


def _halves(text: str, model: Packed, registers: Mapping[str, Array]) -> list[Array]:
    """Low and high part of a source."""
    fixed = constant(text, {"f16": "pf16", "f32": "f32"}.get(model.kind, "u32"))
    if fixed is not None and model.kind == "f32":
        return [fixed, fixed]
    if fixed is not None:
        return [(fixed >> _U(16 * i)).astype(np.uint16).view(fp.DTYPES[model.kind]) for i in (0, 1)]
    held = [registers[n] for n in dword_names(text)]
    if model.kind == "f32":
        return [(held * 2)[i].view(np.float32) for i in (0, 1)]
    return [(held[0] >> _U(16 * i)).astype(np.uint16).view(fp.DTYPES[model.kind]) for i in (0, 1)]


def _check(line: Line, program: Program, got: Mapping[str, Array]) -> None:
    model, registers = _MODELS[line.name], program.registers()
    on = lanes_of_mask(program.exec_mask)
    names = dword_names(line.operands[0])
    for name in names:
        assert (got[name][~on] == registers[name][~on]).all(), "a lane was written that is off"
    seen = _halves(line.operands[0], model, got)
    sources = [_halves(text, model, registers) for text in line.operands[1:]]
    for part in (0, 1):
        args = [s[_parts_read(line, n)[part]] for n, s in enumerate(sources)]
        flips = [_negated(line, n)[part] for n in range(len(args))]
        args = [modify(a, True, False) if flip else a for a, flip in zip(args, flips, strict=True)]
        with np.errstate(all="ignore"):
            want = model.clamp(*args) if line["clamp"] and model.clamp else model.fn(*args)
            if line["clamp"] and not model.clamp:
                want = clamp01(want)
        same(seen[part], np.ma.array(want, mask=~on), 0, args)


def _check_dot(line: Line, program: Program, got: Mapping[str, Array]) -> None:
    (bits, signed), registers = DOTS[line.name], program.registers()
    args = [_word(t, registers) for t in line.operands[1:]]
    total = (fields(args[0], bits, signed) * fields(args[1], bits, signed)).sum(1)
    total += args[2].view(np.int32).astype(np.int64) if signed else args[2].astype(np.int64)
    if line["clamp"]:
        total = np.clip(total, *((-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)))
    want = np.where(lanes_of_mask(program.exec_mask), (total & 0xFFFFFFFF).astype(_U), registers["v8"])
    same(got["v8"], want, 0, args)


def _check_mix(line: Line, program: Program, got: Mapping[str, Array]) -> None:
    registers, on = program.registers(), lanes_of_mask(program.exec_mask)
    args = []
    for n, text in enumerate(line.operands[1:]):
        o = operand(text)
        value = _word(o.name, registers).view(np.float32)
        if _choice(line, "op_sel_hi", n, "0") == "1":
            part = int(_choice(line, "op_sel", n, "0"))
            value = (_word(o.name, registers) >> _U(16 * part)).astype(np.uint16).view(np.float16)
        args.append(modify(value.astype(np.float32), o.neg, o.absolute)[on])
    assert (got["v8"][~on] == registers["v8"][~on]).all(), "a lane was written that is off"
    check_mix(line.name, args, registers["v8"][on], bool(line["clamp"]), got["v8"][on])


def _word(text: str, registers: Mapping[str, Array]) -> Array:
    fixed = constant(operand(text).name, "u32")
    return registers[text] if fixed is None else fixed


def _values() -> dict[str, Array]:
    """Halves and floats: edges and ordinary numbers."""
    rng = np.random.default_rng(12)
    names = ("v2", "v3", "v6", "v7", "v10", "v11", "v40", "v41")
    found = {}
    for i, name in enumerate(names):
        bits = fp.random_bits("f32" if i % 2 else "pf16", LANES, rng).view(_U)
        edges = rng.permutation(fp.edges("f32" if i % 2 else "pf16"))[: LANES // 3]
        found[name] = rng.permutation(np.concatenate([edges, bits[len(edges) :]]))
    return found


def _lines() -> Iterator[Line]:
    for row, lines in taken("packed").items():
        if row.mnemonic not in WITHOUT:
            yield from (line for line in lines if not _unsaid(line))


def test_every_row_has_a_model() -> None:
    """No packed row is left out without a reason."""
    played = (r for r in rows.all_rows() if r.opcode.keys() & {"gfx90a", "gfx942", "gfx950"})
    named = {r.mnemonic for r in played if r.format == "VOP3P"}
    assert named - set(_MODELS) - set(DOTS) - set(_MIXES) == set(WITHOUT)
    assert {row.mnemonic for row in taken("packed")} == named & rows.names()


def test_form_computes_what_it_means() -> None:
    """Each part of the result, of the parts of the sources that it names."""
    lines = list(_lines())
    values = _values()
    programs = []
    for at in range(0, len(lines), _SOME):
        part = lines[at : at + _SOME]
        looks = [dword_names(line.operands[0]) for line in part]
        mask = ALL_LANES if at // _SOME % 2 else EXEC
        programs.append(Program([[line.text] for line in part], looks, values, IEEE, mask))
    byform.run(programs)
    wrong = [p.error for p in programs if p.error]
    for i, line in enumerate(lines):
        program = programs[i // _SOME]
        try:
            if not program.error:
                check = _check_dot if line.name in DOTS else _check_mix if line.name in _MIXES else _check
                check(line, program, program.results[i % _SOME])
        except AssertionError as error:
            wrong.append(f"{line.text}: {error}")
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])
    assert len(lines) > _LINES, "fewer lines than there were"
