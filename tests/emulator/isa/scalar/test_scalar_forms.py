# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every form of every row of the scalar ALU that LLVM takes, run: constants, literals, special registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...support import byform, rows
from ...support.asm import legal
from ...support.byform import EXEC, Program
from ...support.fp import Array
from ...support.ops.expect import APERTURE
from ...support.ops.meaning import Line, constant, dword_names, parse
from ...support.ops.scalar_ops import COMPARE, M32, M64, ONE, TWO
from ...support.rows import RowInfo
from ...support.syntax.forms import forms, is_kept

_LINES = 9000  # that are run, at least
_SOME = 60  # lines of a program
_SPECIAL = "goes elsewhere, or to another mode: test_scalar_control, test_scalar_special"
_BY_M0 = "a register that M0 names: test_scalar"
WITHOUT = {
    "s_getpc_b64": _SPECIAL,
    "s_setpc_b64": _SPECIAL,
    "s_swappc_b64": _SPECIAL,
    "s_rfe_b64": _SPECIAL,
    "s_rfe_restore_b64": _SPECIAL,
    "s_cbranch_g_fork": _SPECIAL,
    "s_cbranch_join": _SPECIAL,
    "s_setvskip": _SPECIAL,
    "s_set_gpr_idx_on": _SPECIAL,
    "s_set_gpr_idx_idx": _SPECIAL,
    "s_movrels_b32": _BY_M0,
    "s_movrels_b64": _BY_M0,
    "s_movreld_b32": _BY_M0,
    "s_movreld_b64": _BY_M0,
}


@dataclass(frozen=True)
class _Model:
    """The model of a row, in integers: `fn` gets the sources and the destination's old value; SCC was 1."""

    bits: tuple[int, ...]
    dst_bits: int  # 0: only SCC
    fn: Callable[..., tuple[int, int | None]]
    exec_fn: Callable[[int, int], int] | None = None


def _plain(fn: Callable[..., tuple[int, int | None]]) -> Callable[..., tuple[int, int | None]]:
    return lambda *a: fn(*a[:-1])


_MASKS: dict[str, Callable[[int, int], int]] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "andn1": lambda s, e: ~s & e,
    "orn1": lambda s, e: ~s | e,
}


def _saved(fn: Callable[[int, int], int], saves: bool) -> _Model:
    def both(s: int, _: int) -> tuple[int, int]:
        new = fn(s, EXEC) & M64
        return (EXEC if saves else new), int(new != 0)

    return _Model((64,), 64, both, fn)


def models() -> dict[str, _Model]:
    """The model of each row that has one."""
    found = {n: _Model((src,), dst, _plain(fn)) for n, (dst, src, fn) in ONE.items()}
    found |= {n: _Model((a, b), dst, _plain(fn)) for n, (dst, a, b, fn) in TWO.items()}
    for name, (a, b, test) in COMPARE.items():
        found[name] = _Model((a, b), 0, lambda x, y, _, test=test: (0, int(test(x, y))))
    found["s_addc_u32"] = _Model((32, 32), 32, lambda a, b, _: (a + b + 1 & M32, int(a + b + 1 > M32)))
    found["s_subb_u32"] = _Model((32, 32), 32, lambda a, b, _: (a - b - 1 & M32, int(b + 1 > a)))
    for bits in (32, 64):
        found[f"s_cselect_b{bits}"] = _Model((bits, bits), bits, lambda a, b, _: (a, None))
        found[f"s_cmov_b{bits}"] = _Model((bits,), bits, lambda a, _: (a, None))
        low = bits - 1
        found[f"s_bitset0_b{bits}"] = _Model((32,), bits, lambda a, d, m=low: (d & ~(1 << (a & m)), None))
        found[f"s_bitset1_b{bits}"] = _Model((32,), bits, lambda a, d, m=low: (d | 1 << (a & m), None))
    for stem, fn in _MASKS.items():
        found[f"s_{stem}_saveexec_b64"] = _saved(fn, True)
        found[f"s_{stem}_wrexec_b64"] = _saved(fn, False)
    return found


def _value(text: str, kind: str, registers: Mapping[str, Array]) -> int:
    fixed = constant(text, kind)
    if fixed is not None:
        return int(fixed[0]) & M64
    return sum(int(registers[n][0]) << 32 * i for i, n in enumerate(dword_names(text)))


def _sources(line: Line, model: _Model) -> list[str]:
    return list(line.operands[1 if model.dst_bits else 0 :])


def _unsaid(line: Line, model: _Model) -> str:
    """Why nobody says what a line does."""
    pairs = zip(_sources(line, model), model.bits, strict=True)
    if any(t.startswith("src_") and t.endswith(("_base", "_limit")) and bits == 32 for t, bits in pairs):
        return APERTURE
    if model.exec_fn and line.operands[0].startswith("exec"):
        return "two results in EXEC"
    return ""


def _looks(line: Line, model: _Model) -> list[str]:
    found = ["src_scc", *(dword_names(line.operands[0]) if model.dst_bits else [])]
    return list(dict.fromkeys(found + (["exec_lo", "exec_hi"] if model.exec_fn else [])))


def _taken() -> Iterator[tuple[RowInfo, Line]]:
    every = ((row, line) for row in rows.of(rows.arch()) for line in forms(row).get("scalar", []))
    tried = [(row, line) for row, line in every if row.mnemonic not in WITHOUT and is_kept(row, line)]
    for (row, line), good in zip(tried, legal([line for _, line in tried]), strict=True):
        if good:
            yield row, parse(line)


def _wrong(line: Line, model: _Model, registers: Mapping[str, Array], got: Mapping[str, Array]) -> str:
    kinds = ["u32" if b == 32 else "i64" if line.name.endswith("_i64") else "u64" for b in model.bits]
    texts = _sources(line, model)
    args = [_value(t, k, registers) & (1 << b) - 1 for t, k, b in zip(texts, kinds, model.bits, strict=True)]
    dst = dword_names(line.operands[0]) if model.dst_bits else []
    old = sum(int(registers[n][0]) << 32 * i for i, n in enumerate(dst))
    want, scc = model.fn(*args, old)
    wanted = {"src_scc": 1 if scc is None else scc}
    if model.exec_fn:
        new = model.exec_fn(args[0], EXEC)
        wanted |= {"exec_lo": new & M32, "exec_hi": new >> 32 & M32}
    wanted |= {n: want >> 32 * i & M32 for i, n in enumerate(dst)}
    bad = {n: (hex(int(got[n][0])), hex(v)) for n, v in wanted.items() if int(got[n][0]) != v}
    return f"{line.text}: got, expected: {bad}" if bad else ""


def test_every_row_has_a_model() -> None:
    """No row of the scalar ALU of gfx9 is left out without a reason; wave32_gfx12_test.cc has RDNA's."""
    of_gfx9 = [r for r in rows.all_rows() if any(arch.startswith("gfx9") for arch in r.opcode)]
    named = {r.mnemonic for r in of_gfx9 if r.format in ("SOP1", "SOP2", "SOPC")}
    assert named - set(models()) == set(WITHOUT)


def test_form_computes_what_it_means() -> None:
    """Constants, literals and special registers, as every source and as the destination."""
    table = models()
    lines = [line for row, line in _taken() if not _unsaid(line, table[row.mnemonic])]
    programs = []
    for at in range(0, len(lines), _SOME):
        part = lines[at : at + _SOME]
        looks = [_looks(line, table[line.name]) for line in part]
        programs.append(Program([[line.text] for line in part], looks, {}, 0x3F0))
    byform.run(programs)
    wrong = [p.error for p in programs if p.error]
    registers = programs[0].registers()
    for i, line in enumerate(lines):
        program = programs[i // _SOME]
        if not program.error:
            wrong.append(_wrong(line, table[line.name], registers, program.results[i % _SOME]))
    wrong = [w for w in wrong if w]
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])
    assert len(lines) > _LINES, "fewer lines than there were"
