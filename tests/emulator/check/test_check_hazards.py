# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wait states that the manual leaves to software: one too few is a finding, enough is none.

The counts are written down here once more, from the ISA guides' section on manually inserted wait states, as
LLVM's GCNHazardRecognizer reads it.
"""

from __future__ import annotations

import pytest

from ..support import rows, small_float_waits
from ..support.findings import Kernels

_DPP = "quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf"
_SDWA = "dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD"
_MFMA8 = "v_mfma_f32_32x32x8f16 v[16:31], v[4:5], v[6:7], v[16:31]"  # 8 passes on gfx942, 16 on gfx90a
_MFMA4 = "v_mfma_f32_16x16x16f16 v[16:19], v[4:5], v[6:7], v[16:19]"  # 4 and 8
_MFMA2 = "v_mfma_f32_4x4x4f16 v[16:19], v[4:5], v[6:7], v[16:19]"  # 2 and 2
_MFMA_F32 = "v_mfma_f32_32x32x2f32 v[16:31], v4, v5, v[16:31]"  # 16 and 16; not XDL on gfx942
_MFMA_F64_SMALL = "v_mfma_f64_4x4x4f64 v[16:17], v[4:5], v[6:7], v[16:17]"
_MFMA_F64 = "v_mfma_f64_16x16x4f64 v[16:23], v[4:5], v[6:7], v[16:23]"
_MFMA_APART = "v_mfma_f32_32x32x8f16 v[32:47], v[4:5], v[6:7], v[16:31]"
_MOVE = "v_mov_b32 v3, v16"
_TWO = "global_store_dwordx4 v1, v[30:33], s[8:9]"
_STORE = "global_store_dword v1, v16, s[8:9]"

# name: (producer, consumer, wait states on gfx90a, on gfx942, words of the finding)
_CASES: dict[str, tuple[str, str, int, int, str]] = {
    "vmem_scalar": (
        "v_readfirstlane_b32 s12, v1",
        "buffer_load_dword v2, v1, s[4:7], s12 offen",
        5, 5, "VALU instruction writes s12, a vector memory instruction reads it",
    ),
    "vmem_resource": (
        "v_readfirstlane_b32 s6, v1",
        "buffer_load_dword v2, v1, s[4:7], 0 offen",
        5, 5, "vector memory instruction reads it",
    ),
    "lane_select": ("v_readfirstlane_b32 s12, v1", "v_readlane_b32 s13, v1, s12", 4, 4, "selects the lane"),
    "lane_select_write": ("v_readfirstlane_b32 s12, v1", "v_writelane_b32 v2, 1, s12", 4, 4, "the lane"),
    "div_fmas": ("v_cmp_eq_u32 vcc, v1, v1", "v_div_fmas_f32 v2, v1, v1, v1", 4, 4, "v_div_fmas"),
    "mask": ("v_cmp_eq_u32 vcc, v1, v1", "v_cndmask_b32 v2, v1, v1, vcc", 0, 2, "writes vcc"),
    "scalar_operand": ("v_readfirstlane_b32 s12, v1", "v_add_u32 v2, s12, v1", 0, 2, "writes s12"),
    "dpp_exec": ("v_cmpx_eq_u32 vcc, v1, v1", f"v_mov_b32_dpp v2, v1 {_DPP}", 5, 5, "writes exec"),
    "mfma_exec": ("v_cmpx_eq_u32 vcc, v1, v1", _MFMA8, 4, 4, "writes exec, then an MFMA"),
    "lane_exec": ("v_cmpx_eq_u32 vcc, v1, v1", "v_readlane_b32 s12, v1, 0", 0, 4, "writes exec"),
    "dpp_vector": ("v_mov_b32 v3, v1", f"v_mov_b32_dpp v2, v3 {_DPP}", 2, 2, "v3 is written, a DPP"),
    "mfma_vector": ("v_mov_b32 v4, v1", _MFMA8, 2, 2, "VALU instruction writes v4, an MFMA reads it"),
    "mfma_vector_c": ("v_mov_b32 v20, v1", _MFMA8, 2, 2, "VALU instruction writes v20, an MFMA reads it"),
    "mfma_accvgpr": (
        "v_accvgpr_write_b32 a3, v1",
        "v_mfma_f32_32x32x8f16 a[0:15], v[4:5], v[6:7], a[0:15]",
        2, 2, "VALU instruction writes a3",
    ),
    "readlane_vector": ("v_mov_b32 v3, v1", "v_readfirstlane_b32 s12, v3", 0, 1, "v_readfirstlane reads it"),
    "trans": ("v_exp_f32 v3, v1", "v_add_f32 v2, v3, v1", 0, 1, "transcendental instruction writes v3"),
    "sdwa": (f"v_add_u16_sdwa v3, v1, v1 {_SDWA}", "v_mov_b32 v2, v3", 0, 1, "part of v3 is written"),
    "op_sel": ("v_mad_i16 v3, v1, v1, v1 op_sel:[0,0,0,1]", "v_mov_b32 v2, v3", 0, 1, "part of v3"),
    "store_data": ("global_store_dwordx4 v1, v[4:7], s[8:9]", "v_mov_b32 v5, 0", 1, 2, "is stored"),
    "store_data_3": ("buffer_store_dwordx3 v[4:6], v1, s[4:7], 0 offen", "v_mov_b32 v6, 0", 1, 2, "stored"),
    "store_data_offset": (
        "buffer_store_dwordx4 v[4:7], v1, s[4:7], s10 offen", "v_mov_b32 v5, 0", 0, 1, "at an SGPR offset",
    ),
    "atomic_data": (
        "v_lshlrev_b32 v8, 1, v1\nglobal_atomic_cmpswap_x2 v8, v[4:7], s[8:9]", "v_mov_b32 v5, 0",
        1, 2, "stored",
    ),
    "vccz": ("v_cmp_eq_u32 vcc, v1, v1", "v_mov_b32 v2, src_vccz", 5, 5, "reads its zero flag as data"),
    "execz": ("v_cmpx_eq_u32 vcc, v1, v1", "v_mov_b32 v2, src_execz", 5, 5, "reads its zero flag as data"),
    "dot": ("v_dot2_f32_f16 v3, v1, v1, v1", "v_mov_b32 v2, v3", 3, 3, "v_dot writes v3"),
    "dot_twice": ("v_dot2_f32_f16 v3, v1, v1, v1", "v_dot2_f32_f16 v2, v3, v1, v1", 3, 3, "v_dot writes v3"),
    "dot_store": ("v_dot2_f32_f16 v3, v1, v1, v1", "global_store_dword v1, v3, s[8:9]", 3, 3, "v_dot"),
    "f64_fma": (_MFMA_F64_SMALL, "v_fma_f64 v[40:41], v[42:43], v[42:43], v[42:43]", 2, 2, "v_fma_f64"),
    "m0_addtid": ("s_mov_b32 m0, 0", "ds_write_addtid_b32 v1", 1, 1, "writes m0"),
    "m0_movrel": ("s_mov_b32 m0, 0", "s_movrels_b32 s12, s12", 1, 1, "writes m0"),
    "m0_load_to_lds": ("s_mov_b32 m0, 0", "buffer_load_dword v1, s[4:7], 0 offen lds", 1, 1, "writes m0"),
    "getreg": (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0",
        "s_getreg_b32 s12, hwreg(HW_REG_MODE)",
        2, 2, "s_getreg",
    ),
    "setreg": (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 0",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 15",
        2, 2, "then s_setreg",
    ),
    "mfma_valu_8": (_MFMA8, _MOVE, 19, 11, "an MFMA writes v[16:31], another instruction reads it"),
    "mfma_valu_4": (_MFMA4, _MOVE, 11, 7, "an MFMA writes v[16:19]"),
    "mfma_valu_2": (_MFMA2, _MOVE, 5, 5, "an MFMA writes v[16:19]"),
    "mfma_valu_f32": (_MFMA_F32, _MOVE, 19, 18, "an MFMA writes v[16:31]"),
    "mfma_valu_f64_small": (_MFMA_F64_SMALL, _MOVE, 6, 6, "an MFMA writes v[16:17]"),
    "mfma_valu_f64": (_MFMA_F64, _MOVE, 11, 11, "an MFMA writes v[16:23]"),
    "mfma_memory": (_MFMA8, _STORE, 19, 11, "an MFMA writes v[16:31]"),
    "mfma_memory_f64_small": (_MFMA_F64_SMALL, _STORE, 9, 9, "an MFMA writes v[16:17]"),
    "mfma_memory_f64": (_MFMA_F64, _STORE, 18, 18, "an MFMA writes v[16:23]"),
    "mfma_lds": (_MFMA8, "ds_write_b32 v1, v16", 19, 11, "an MFMA writes v[16:31]"),
    "mfma_overwrite": (_MFMA8, "v_mov_b32 v31, 0", 19, 11, "another instruction overwrites it"),
    "mfma_load": (_MFMA8, "global_load_dword v31, v1, s[8:9]", 19, 11, "another instruction overwrites it"),
    "mfma_c_overwritten": (
        _MFMA_APART, "v_mov_b32 v16, 0", 15, 7, "an MFMA reads v[16:31] as C, another instruction",
    ),
    "mfma_a": (
        _MFMA8,
        "v_mfma_f32_32x32x8f16 v[48:63], v[16:17], v[6:7], v[48:63]",
        19, 11, "an MFMA writes v[16:31], another instruction reads it",
    ),
    "mfma_b_f64": (
        _MFMA_F64,
        "v_mfma_f64_16x16x4f64 v[48:55], v[4:5], v[16:17], v[48:55]",
        11, 11, "an MFMA writes v[16:23]",
    ),
    "mfma_same_c": (_MFMA8, _MFMA8, 0, 0, ""),
    "mfma_same_c_2": (_MFMA2, _MFMA2, 0, 2, "an MFMA writes v[16:19]"),
    "mfma_same_c_f64_small": (_MFMA_F64_SMALL, _MFMA_F64_SMALL, 4, 4, "an MFMA writes v[16:17]"),
    "mfma_other_c": (
        _MFMA8,
        "v_mfma_f32_32x32x8f16 v[48:63], v[4:5], v[6:7], v[20:35]",
        16, 9, "an MFMA reads other registers and some of it as C",
    ),
    "mfma_other_c_4": (
        _MFMA4,
        "v_mfma_f32_16x16x16f16 v[48:51], v[4:5], v[6:7], v[18:21]",
        8, 5, "some of it as C",
    ),
    "mfma_other_c_2": (
        _MFMA2,
        "v_mfma_f32_16x16x16f16 v[48:51], v[4:5], v[6:7], v[18:21]",
        2, 3, "some of it as C",
    ),
}  # fmt: skip
# Where gfx950 asks for more than gfx942, as LLVM 22's does of machine instructions in these pairs.
_GFX950 = {
    "mfma_valu_8": 12,
    "mfma_valu_4": 8,
    "mfma_memory": 12,
    "mfma_lds": 12,
    "mfma_overwrite": 12,
    "mfma_load": 12,
    "mfma_a": 12,
    "mfma_other_c": 10,
    "mfma_other_c_4": 6,
    "mfma_other_c_2": 4,
    "mfma_valu_f64": 19,
    "mfma_b_f64": 19,
}
if rows.arch() == "gfx950":
    _SWAP = "v_permlane32_swap_b32 v2, v3"
    _CASES |= {
        "swap_first": ("v_mov_b32 v2, v1", _SWAP, 0, 2, "VALU instruction writes v2, v_permlane16_swap"),
        "swap_second": ("v_mov_b32 v3, v1", _SWAP, 0, 2, "VALU instruction writes v3, v_permlane16_swap"),
        "swap_twice": (_SWAP, _SWAP, 0, 2, "VALU instruction writes v2, v_permlane16_swap"),
        "swap_exec": ("v_cmpx_eq_u32 vcc, v1, v1", _SWAP, 0, 4, "writes exec, then v_permlane16_swap"),
        "f64_overwrite": (_MFMA_F64, "v_mov_b32 v16, 0", 0, 11, "another instruction overwrites it"),
        "f64_other_c": (
            _MFMA_F64,
            "v_mfma_f64_16x16x4f64 v[48:55], v[4:5], v[6:7], v[18:25]",
            0,
            17,
            "some of it as C",
        ),
    }
    _CASES |= small_float_waits.matrix_cases() | small_float_waits.conversion_cases()
if rows.arch() != "gfx90a":
    _CASES["m0_global_load_lds"] = ("s_mov_b32 m0, 0", "global_load_lds_dword v1, s[8:9]", 1, 1, "writes m0")
# These look like the cases above but need no wait states.
_FINE = {
    "salu_scalar": ["s_mov_b32 s12, 0", "buffer_load_dword v2, v1, s[4:7], s12 offen"],
    "overwritten_scalar": [
        "v_readfirstlane_b32 s12, v1",
        "s_mov_b32 s12, 0",
        "buffer_load_dword v2, v1, s[4:7], s12 offen",
    ],
    "overwritten_exec": ["v_cmpx_eq_u32 vcc, v1, v1", "s_mov_b64 exec, -1", f"v_mov_b32_dpp v2, v1 {_DPP}"],
    "trans_to_trans": ["v_exp_f32 v3, v1", "v_log_f32 v2, v3"],
    "other_register": ["v_mov_b32 v3, v1", f"v_mov_b32_dpp v2, v1 {_DPP}"],
    "exec_then_memory": ["v_cmpx_eq_u32 vcc, v1, v1", "buffer_load_dword v2, v1, s[4:7], 0 offen"],
    "narrow_store": ["global_store_dwordx2 v1, v[4:5], s[8:9]", "v_mov_b32 v5, 0"],
    "wide_dst": ["v_exp_f32 v3, v1", "v_mov_b32 v2, v1"],
    "dot_accumulates": ["v_dot2_f32_f16 v3, v1, v1, v1", "v_dot2_f32_f16 v3, v1, v1, v3"],
    "instructions_count": [_MFMA8, *["v_mov_b32 v3, v1"] * 19, _MOVE],
    "nops_count": [_MFMA8, "s_nop 15", "s_nop 2", _MOVE],
}
# The scalar unit rewrites one half; the other is still what the vector instruction wrote.
_HALF_OF_EXEC = ["v_cmpx_eq_u32 vcc, v1, v1", "s_mov_b32 exec_lo, -1"]


def _wait(name: str) -> int:
    if rows.arch() == "gfx950" and name in _GFX950:
        return _GFX950[name]
    return _CASES[name][2 if rows.arch() == "gfx90a" else 3]


def _nops(states: int) -> list[str]:
    """`states` wait states: s_nop counts one more than it says."""
    out = []
    while states > 0:
        out.append(f"s_nop {min(states, 8) - 1}")
        states -= 8
    return out


def _body(name: str, states: int) -> list[str]:
    producer, consumer = _CASES[name][:2]
    return [producer, *_nops(states), consumer]


_KERNELS = Kernels(
    {f"{n}_good": _body(n, _wait(n)) for n in _CASES}
    | {f"{n}_bad": _body(n, _wait(n) - 1) for n in _CASES if _wait(n)}
    | _FINE
    | {"half_of_exec": [*_HALF_OF_EXEC, *_nops(3), f"v_mov_b32_dpp v2, v1 {_DPP}"]}
    | {"two_results": [_MFMA8, _MFMA2.replace("v[16:19]", "v[32:35]"), *_nops(6), _TWO]},
    lds=1024,
)


@pytest.mark.parametrize("name", [n for n in _CASES if _wait(n)])
def test_one_too_few_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The finding says what is wrong, after which instruction, what it takes and what there is."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "all")  # also the rule that shipped kernels break
    text = _KERNELS.finding(f"{name}_bad")
    assert _CASES[name][4] in text, text
    assert f"needs {_wait(name)} wait states after pc 0x" in text, text
    assert text.endswith(f", got {_wait(name) - 1}"), text


@pytest.mark.parametrize("name", _CASES)
def test_enough_passes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Exactly what the manual asks for."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "all")
    _KERNELS.run(f"{name}_good")


def test_every_result_counts() -> None:
    """A store of what two MFMAs have written waits for both, not only for the later one."""
    text = _KERNELS.finding("two_results")
    assert "an MFMA writes v[16:31], another instruction reads it" in text, text


def test_half_of_exec() -> None:
    """EXEC counts as the vector instruction's until all of it is rewritten."""
    text = _KERNELS.finding("half_of_exec")
    assert "a VALU instruction writes exec, then a DPP instruction: needs 5" in text, text
    assert text.endswith("got 4"), text


@pytest.mark.parametrize("name", _FINE)
def test_no_hazard(name: str) -> None:
    """No wait states when none are due."""
    _KERNELS.run(name)


def test_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device itself has no pipeline: without the check nothing is seen."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-hazards")
    for name in _CASES:
        if _wait(name):
            _KERNELS.run(f"{name}_bad")
