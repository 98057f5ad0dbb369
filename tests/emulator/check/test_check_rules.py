# SPDX-License-Identifier: MIT OR Apache-2.0
"""The device's hazard rules against LLVM's own: as many wait states as llc inserts, and not one less.

Each rule is a pair of instructions, sometimes with one between, as machine IR for llc, which runs its hazard
recogniser over it, and as assembly for the device. LLVM is the only source of the counts here.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache

import pytest

from ..support import rows
from ..support.findings import Kernels
from ..support.hip import HipError
from ..support.toolchain import tool

_MODE = "implicit $mode, implicit $exec"
_QUAD = "228, 15, 15, 0, implicit $exec"
_DPP = "quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf"


@dataclass(frozen=True)
class _Inst:
    """An instruction: LLVM's opcode, the assembly, and what follows the operands in machine IR."""

    opcode: str
    asm: str
    tail: str = "implicit $exec"
    stores: bool = False  # no operand is written
    modifiers: bool = False  # a modifier in front of every source
    tied: bool = False  # the destination is the first source too

    def mir(self) -> str:
        """The instruction as machine IR."""
        words = [w.split()[0] for w in self.asm.split(None, 1)[1].split(", ")]
        operands = [_machine_register(w) for w in words if w != "off"]
        if self.opcode.startswith("S_SETREG_IMM"):
            operands = [operands[1], str(int(operands[0], 16))]
        defs = [] if self.stores else [operands.pop(0)]
        if "_LOAD_DWORD_SADDR" in self.opcode:
            operands.reverse()  # the scalar address comes first
        sources = [f"0, {o}" for o in operands] if self.modifiers else operands
        text = ", ".join([*(defs if self.tied else []), *sources, *([self.tail] if self.tail else [])])
        return f"{', '.join(defs)}{' = ' if defs else ''}{self.opcode} {text}"


def _machine_register(name: str) -> str:
    """ "v[4:5]" as machine IR says it: "$vgpr4_vgpr5"; a number as it is."""
    match = re.fullmatch(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])", name)
    if not match:
        return f"${name}" if name.isalpha() or name == "m0" else name
    first, last = int(match[2] or match[3]), int(match[2] or match[4])
    kind = {"v": "vgpr", "s": "sgpr", "a": "agpr"}[match[1]]
    return "$" + "_".join(f"{kind}{i}" for i in range(first, last + 1))


def _regs(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


@dataclass(frozen=True)
class _Matrix:
    """A matrix instruction: its names and how many registers A, B and C have."""

    asm: str
    opcode: str
    inputs: int
    outputs: int
    archs: str = "gfx90a gfx942"

    def inst(self, d: int, a: int, c: int) -> _Inst:
        """With D, A and C from these registers on; B is always v[6:...]."""
        text = ", ".join(
            [_regs(d, self.outputs), _regs(a, self.inputs), _regs(6, self.inputs), _regs(c, self.outputs)]
        )
        return _Inst(self.opcode, f"v_{self.asm} {text}", f"0, 0, 0, {_MODE}")


_MATRICES = {
    "f16_4": _Matrix("mfma_f32_4x4x4f16", "V_MFMA_F32_4X4X4F16_vgprcd_e64", 2, 4),
    "f16_16": _Matrix("mfma_f32_16x16x16f16", "V_MFMA_F32_16X16X16F16_vgprcd_e64", 2, 4),
    "f16_32": _Matrix("mfma_f32_32x32x8f16", "V_MFMA_F32_32X32X8F16_vgprcd_e64", 2, 16),
    "f16_32_4": _Matrix("mfma_f32_32x32x4f16", "V_MFMA_F32_32X32X4F16_vgprcd_e64", 2, 32),
    "f32_4": _Matrix("mfma_f32_4x4x1f32", "V_MFMA_F32_4X4X1F32_vgprcd_e64", 1, 4),
    "f32_16": _Matrix("mfma_f32_16x16x4f32", "V_MFMA_F32_16X16X4F32_vgprcd_e64", 1, 4),
    "f32_32": _Matrix("mfma_f32_32x32x2f32", "V_MFMA_F32_32X32X2F32_vgprcd_e64", 1, 16),
    "i8_16": _Matrix("mfma_i32_16x16x32_i8", "V_MFMA_I32_16X16X32I8_vgprcd_e64", 2, 4, "gfx942"),
    "i8_32": _Matrix("mfma_i32_32x32x16_i8", "V_MFMA_I32_32X32X16I8_vgprcd_e64", 2, 16, "gfx942"),
    "xf32_16": _Matrix("mfma_f32_16x16x8_xf32", "V_MFMA_F32_16X16X8XF32_vgprcd_e64", 2, 4, "gfx942"),
    "xf32_32": _Matrix("mfma_f32_32x32x4_xf32", "V_MFMA_F32_32X32X4XF32_vgprcd_e64", 2, 16, "gfx942"),
    "fp8_16": _Matrix("mfma_f32_16x16x32_fp8_fp8", "V_MFMA_F32_16X16X32_FP8_FP8_vgprcd_e64", 2, 4, "gfx942"),
    "fp8_32": _Matrix("mfma_f32_32x32x16_fp8_bf8", "V_MFMA_F32_32X32X16_FP8_BF8_vgprcd_e64", 2, 16, "gfx942"),
}
_F64 = {
    "f64_4": _Matrix("mfma_f64_4x4x4f64", "V_MFMA_F64_4X4X4F64_vgprcd_e64", 2, 2),
    "f64_16": _Matrix("mfma_f64_16x16x4f64", "V_MFMA_F64_16X16X4F64_vgprcd_e64", 2, 8),
}
_D = 32  # the producer's D; its C is there too, or at _C
_C = 64
_OTHER = 96  # registers that nothing else touches


def _move(d: int, s: int) -> _Inst:
    return _Inst("V_MOV_B32_e32", f"v_mov_b32 v{d}, v{s}")


_DIV_FMAS = _Inst(
    "V_DIV_FMAS_F32_e64",
    "v_div_fmas_f32 v2, v1, v1, v1",
    "0, 0, implicit $mode, implicit $vcc, implicit $exec",
    modifiers=True,
)
_CMP = _Inst("V_CMP_EQ_U32_e64", "v_cmp_eq_u32 vcc, v1, v1")
_FIRST_LANE = _Inst("V_READFIRSTLANE_B32", "v_readfirstlane_b32 s12, v1")
_CMPX = _Inst("V_CMPX_EQ_U32_e64", "v_cmpx_eq_u32 vcc, v1, v1", "implicit-def $exec, implicit $exec")
_DPP_MOVE = _Inst("V_MOV_B32_dpp", f"v_mov_b32_dpp v2, v3 {_DPP}", _QUAD, tied=True)
_EXP = _Inst("V_EXP_F32_e32", "v_exp_f32 v3, v1", _MODE)
_STORE = "GLOBAL_STORE_DWORD_SADDR"
_CACHE = "0, 0, implicit $exec"


def _buffer(words: str, registers: str, offset: str) -> _Inst:
    asm = f"buffer_store_{words.lower()} {registers}, v1, s[4:7], {offset} offen"
    return _Inst(f"BUFFER_STORE_{words}_OFFEN_exact", asm, "0, 0, 0, implicit $exec", stores=True)


def _wide_store(words: int) -> _Inst:
    asm = f"global_store_dwordx{words} v1, {_regs(4, words)}, s[8:9]"
    return _Inst(f"GLOBAL_STORE_DWORDX{words}_SADDR", asm, _CACHE, stores=True)


def _dot(d: int, a: int, c: int) -> _Inst:
    tail = "0, 0, 0, 0, 0, " + _MODE
    return _Inst("V_DOT2_F32_F16", f"v_dot2_f32_f16 v{d}, v{a}, v1, v{c}", tail, modifiers=True)


def _store(register: str) -> _Inst:
    return _Inst(_STORE, f"global_store_dword v1, {register}, s[8:9]", _CACHE, stores=True)


def _load(d: int) -> _Inst:
    return _Inst("GLOBAL_LOAD_DWORD_SADDR", f"global_load_dword v{d}, v1, s[8:9]", _CACHE)


_SETREG = _Inst(
    "S_SETREG_IMM32_B32", "s_setreg_imm32_b32 0x1801, 0", "implicit-def $mode, implicit $mode", stores=True
)
# name: producer, perhaps one between, consumer.
_PAIRS: dict[str, tuple[_Inst, ...]] = {
    "vmem_offset": (_FIRST_LANE, _buffer("DWORD", "v1", "s12")),
    "vmem_records": (_Inst("V_READFIRSTLANE_B32", "v_readfirstlane_b32 s6, v1"), _buffer("DWORD", "v1", "0")),
    "lane_select": (_FIRST_LANE, _Inst("V_READLANE_B32", "v_readlane_b32 s13, v1, s12", "")),
    "lane_write_select": (_FIRST_LANE, _Inst("V_WRITELANE_B32", "v_writelane_b32 v2, 1, s12", "$vgpr2")),
    "lane_write_value": (_FIRST_LANE, _Inst("V_WRITELANE_B32", "v_writelane_b32 v2, s12, 1", "$vgpr2")),
    "lane_vector": (_move(3, 1), _Inst("V_READFIRSTLANE_B32", "v_readfirstlane_b32 s12, v3")),
    "lane_exec": (_CMPX, _Inst("V_READLANE_B32", "v_readlane_b32 s13, v1, 0", "")),
    "lane_write_exec": (_CMPX, _Inst("V_WRITELANE_B32", "v_writelane_b32 v2, 1, 0", "$vgpr2")),
    "div_fmas": (_CMP, _DIV_FMAS),
    "scalar": (_FIRST_LANE, _Inst("V_ADD_U32_e32", "v_add_u32 v2, s12, v1")),
    "mask": (_CMP, _Inst("V_CNDMASK_B32_e32", "v_cndmask_b32_e32 v2, v1, v1",
                         "implicit $vcc, implicit $exec")),
    "dpp_exec": (_CMPX, _DPP_MOVE),
    "dpp_vector": (_move(3, 1), _DPP_MOVE),
    "trans": (_EXP, _move(2, 3)),
    "trans_pair": (_EXP, _Inst("V_LOG_F32_e32", "v_log_f32 v2, v3", _MODE)),
    "big_store": (_wide_store(4), _move(5, 1)),
    "middle_store": (_wide_store(2), _move(5, 1)),
    "big_buffer_store": (_buffer("DWORDX3", "v[4:6]", "0"), _move(6, 1)),
    "dot": (_dot(3, 1, 2), _move(5, 3)),
    "dot_twice": (_dot(3, 1, 2), _dot(5, 3, 2)),
    "dot_accumulates": (_dot(3, 1, 2), _dot(3, 1, 3)),
    "dot_stored": (_dot(3, 1, 2), _store("v3")),
    "dot_overwritten": (_dot(3, 1, 2), _move(3, 1)),
    "dot_loaded_over": (_dot(3, 1, 2), _load(3)),
    "m0_add_tid": (_Inst("S_MOV_B32", "s_mov_b32 m0, 0", ""),
                   _Inst("DS_WRITE_ADDTID_B32", "ds_write_addtid_b32 v1",
                         "0, 0, implicit $m0, implicit $exec", stores=True)),
    "setreg": (_SETREG, _SETREG),
    "fma_f64": (_F64["f64_4"].inst(_D, 4, _D),
                _Inst("V_FMA_F64_e64", "v_fma_f64 v[96:97], v[98:99], v[98:99], v[98:99]",
                      "0, 0, " + _MODE, modifiers=True)),
    "erratum": (_move(3, 1), _F64["f64_4"].inst(_D, 4, _D), _store("v3")),
    "erratum_lds": (_move(3, 1), _F64["f64_16"].inst(_D, 4, _D),
                    _Inst("DS_WRITE_B32_gfx9", "ds_write_b32 v1, v3", _CACHE, stores=True)),
}  # fmt: skip


def _vector_uses() -> dict[str, _Inst]:
    """Return instructions that may follow a matrix instruction and touch the first register of D, or C."""
    return {
        "read": _move(3, _D),
        "write": _move(_D, 1),
        "store": _store(_regs(_D, 1)),
        "lds": _Inst("DS_WRITE_B32_gfx9", f"ds_write_b32 v1, v{_D}", _CACHE, stores=True),
        "load": _load(_D),
        "write_c": _move(_C, 1),
        "load_c": _load(_C),
    }


def _matrix_pairs(arch: str) -> dict[str, tuple[_Inst, ...]]:
    """Every kind of matrix instruction with every use of its registers, in other matrix instructions too."""
    here = {n: m for n, m in (_MATRICES | _F64).items() if arch in m.archs}
    pairs: dict[str, tuple[_Inst, ...]] = {}
    for name, m in here.items():
        apart, in_place = m.inst(_D, 4, _C), m.inst(_D, 4, _D)
        pairs[f"{name}_exec"] = (_CMPX, in_place)
        pairs[f"{name}_valu_a"] = (_move(4, 1), in_place)
        pairs[f"{name}_valu_c"] = (_move(_D, 1), in_place)
        for use, inst in _vector_uses().items():
            pairs[f"{name}_{use}"] = (apart, inst)
        for other, o in here.items():
            far = _OTHER if _OTHER + o.outputs <= 128 else 0
            pairs[f"{name}_a_of_{other}"] = (apart, o.inst(_OTHER, _D, _OTHER))
            pairs[f"{name}_c_of_{other}"] = (apart, o.inst(far, 4, _D))
            pairs[f"{name}_some_c_of_{other}"] = (apart, o.inst(far, 4, _D - o.outputs + 2))
    return pairs


@cache
def _pairs() -> dict[str, tuple[_Inst, ...]]:
    return _PAIRS | _matrix_pairs(rows.arch())


# A matrix instruction at the end of a block, and who uses its result in the block jumped to.
_JUMPS = {
    f"{name}_jump_{use}": (_MATRICES | _F64)[name].inst(_D, 4, _D)
    for name in ("f16_32", "f32_32", "f64_4", "f64_16")
    for use in ("taken", "not_taken")
}


def _recognised(functions: dict[str, str]) -> str:
    """Run llc's hazard recogniser on these bodies."""
    text = "".join(f"---\nname: {name}\nbody: |\n{body}\n...\n" for name, body in functions.items())
    command = [tool("llc"), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={rows.arch()}"]
    done = subprocess.run(
        [*command, "-run-pass=post-RA-hazard-rec", "-x", "mir", "-", "-o", "-"],
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:3000]
    return done.stdout


def _nops(lines: list[str]) -> int:
    """Wait states that a block's last instruction but s_endpgm has in front of it."""
    lines = [line.strip() for line in lines if line.strip() and "liveins" not in line]
    count = 0
    for line in reversed(lines[:-1]):
        if not line.startswith("S_NOP"):
            break
        count += int(line.split()[1]) + 1
    return count


@cache
def _inserted() -> dict[str, int]:
    """By pair, the wait states that llc puts in front of its last instruction."""
    bodies = {
        name: "  bb.0:\n" + "".join(f"    {i.mir()}\n" for i in insts) + "    S_ENDPGM 0"
        for name, insts in _pairs().items()
    }
    found = {}
    for part in _recognised(bodies).split("\n---\n"):
        match = re.search(r"^name: +(\w+)$", part, re.MULTILINE)
        if match and match[1] in bodies:
            found[match[1]] = _nops(part.split("bb.0:")[1].split("S_ENDPGM")[0].splitlines())
    return found


@cache
def _inserted_behind_jumps() -> dict[str, int]:
    """The same of the blocks behind s_cbranch and s_branch."""
    use = f"    {_move(3, _D).mir()}\n    S_ENDPGM 0\n"
    blocks = f"  bb.1:\n{use}  bb.2:\n{use}"
    bodies = {
        name: "  bb.0:\n    successors: %bb.2, %bb.1\n"
        f"    {inst.mir()}\n    S_CBRANCH_SCC1 %bb.2, implicit $scc\n    S_BRANCH %bb.1\n{blocks}"
        for name, inst in _JUMPS.items()
    }
    found = {}
    for part in _recognised(bodies).split("\n---\n"):
        match = re.search(r"^name: +(\w+)$", part, re.MULTILINE)
        if match and match[1] in bodies:
            block = "bb.1:" if "not_taken" in match[1] else "bb.2:"
            found[match[1]] = _nops(part.split(block)[-1].split("S_ENDPGM")[0].splitlines())
    return found


def _wait(states: int) -> list[str]:
    return [f"s_nop {min(states - at, 8) - 1}" for at in range(0, states, 8)]


def _body(name: str, states: int) -> list[str]:
    """The pair with so many wait states in front of its last instruction."""
    *first, last = _pairs()[name]
    return [*(i.asm for i in first), *_wait(states), last.asm]


def _jump_body(name: str, states: int) -> list[str]:
    """The same of a use behind s_cbranch and s_branch, whose other block ends."""
    scc = 0 if "not_taken" in name else 1
    used = [*_wait(states), _move(3, _D).asm, "s_endpgm"]
    blocks = ["@no:", *(used if not scc else ["s_endpgm"]), "@yes:", *(used if scc else ["s_endpgm"])]
    return [f"s_cmp_eq_u32 {scc}, 1", _JUMPS[name].asm, "s_cbranch_scc1 @yes", "s_branch @no", *blocks]


@cache
def _kernels() -> Kernels:
    counts, behind = _inserted(), _inserted_behind_jumps()
    return Kernels(
        {f"{n}_good": _body(n, c) for n, c in counts.items()}
        | {f"{n}_bad": _body(n, c - 1) for n, c in counts.items() if c}
        | {f"{n}_good": _jump_body(n, c) for n, c in behind.items()}
        | {f"{n}_bad": _jump_body(n, c - 1) for n, c in behind.items()},
        lds=1024,
    )


_GROUPS = ["pairs", *_MATRICES, *_F64]


def _members(group: str) -> list[str]:
    arch = rows.arch()
    if group != "pairs" and arch not in (_MATRICES | _F64)[group].archs:
        pytest.skip(f"{arch} does not have it")
    return [
        n
        for n in _pairs()
        if (n in _PAIRS if group == "pairs" else n.startswith(group + "_") and n not in _PAIRS)
    ]


@pytest.mark.parametrize("group", _GROUPS)
def test_as_many_as_llvm_inserts_pass(group: str) -> None:
    """Code from the compiler is clean."""
    found = []
    for name in _members(group):
        try:
            _kernels().run(f"{name}_good")
        except HipError as error:
            found.append(f"{name}: LLVM inserts {_inserted()[name]}: {error.fault}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("group", _GROUPS)
def test_one_less_is_found(group: str) -> None:
    """The finding asks for exactly what LLVM inserts."""
    missed = []
    for name in _members(group):
        if not _inserted()[name]:
            continue
        try:
            _kernels().run(f"{name}_bad")
            missed.append(f"{name}: LLVM inserts {_inserted()[name]}, the device finds nothing")
        except HipError as error:
            between = len(_pairs()[name]) - 2  # itself a wait state
            text = f"needs {_inserted()[name] + between} wait states after pc"
            if "hazard" not in error.fault or text not in error.fault:
                missed.append(f"{name}: LLVM inserts {_inserted()[name]}: {error.fault}")
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("name", _JUMPS)
def test_as_llvm_behind_a_jump(name: str) -> None:
    """A block that ends in s_cbranch and s_branch counts for two wait states, whichever is taken."""
    assert set(_inserted_behind_jumps()) == set(_JUMPS)
    assert _inserted_behind_jumps()[name] > 0
    _kernels().run(f"{name}_good")
    text = _kernels().finding(f"{name}_bad")
    assert f"needs {_inserted_behind_jumps()[name] + 2} wait states after pc" in text, text
