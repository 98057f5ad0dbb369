# SPDX-License-Identifier: MIT OR Apache-2.0
"""The findings of the device's checks in the objects, each judged once.

A test wants each finding of its object to come, and nothing else. So a finding that no longer comes, or a new
one, means that the device has changed, or the wheel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SHIPPED = "hazards-shipped"  # off by default: see check/config.h
BOUNDS = "bounds"  # not one of FMHA_EMU_CHECKS: always on


@dataclass(frozen=True)
class Finding:
    """A finding that the objects whose names match are known to give."""

    objects: str  # regular expression for the whole of a name, and of the variant behind it
    check: str
    text: str  # regular expression for a part of the message
    reason: str


_RULE = (
    "LLVM's tables ask for these wait states. AITER ships the object, and it works on its cards: either the "
    "card waits by itself, or nothing shows that it does not"
)


def _hazard(objects: str, writer: str, reader: str, needs: int | str, got: int) -> Finding:
    text = rf"`{reader}.*hazard: .*needs {needs} wait states after pc \S+ `{writer}.*, got {got}"
    return Finding(objects, _SHIPPED, text, _RULE)


_BWD = r"fmha_v3_bwd/bwd_"
_LATENT = r"mla_dec_.*_subQ128_mqa128|mla_pfl_.*|mla_a16w16_.*"
# The first row that matches counts, of each check.
TABLE: tuple[Finding, ...] = (
    # Address of a load to LDS in m0.
    _hazard(r"fmha_v3_fwd/.*|bf16gemm/.*", "s_add_u32 m0", "buffer_load_dword .* lds", 1, 0),
    _hazard(rf"mla/({_LATENT})\.co", "s_mov_b32 m0", "buffer_load_dword .* lds", 1, 0),
    _hazard(r"mla/mla_a16w8_.*_ps\.co", "v_mfma_f32_16x16x16_bf16", "v_max3_f32", "[78]", 6),
    _hazard(r"pa/.*_mtp_.* rows=[23]", "s_add_u32 m0", "buffer_load_dword .* lds", 1, 0),
    _hazard(r"topksoftmax/.*", "v_readlane_b32", "v_mov_b32_e32", 2, 0),
    # A condition, and what selects by it: of a mask's edge, of a row's, of a rounding that looks for NaN.
    _hazard(
        _BWD + r"(hd(128|192)_.*_br_.*|hd64_bf16_causal_br_a32_rt(na|ne|z)_pssk)\.co",
        *("v_cmp_gt_i32_e64", "v_cndmask_b32_e64", 2, 1),
    ),
    _hazard(
        _BWD
        + r"(.*_a16.*|hd128_.*_a32(_rt(na|ne|z))?|hd128_.*_swa_.*|"
        + r"hd64_(fp16_.*|bf16_a32_.*|bf16_causal(_br)?_a32_.*_group))\.co",
        *("v_cmp_eq_u32_e32 vcc", "v_cndmask_b32_e32", 2, 1),
    ),
    _hazard(
        _BWD + r"(hd(128|192)_.*_rtna_pssk.*|hd64_bf16_causal_a32_rtna_pssk)\.co",
        *("v_cmp_u_f32_e64", "v_cndmask_b32_e64", 2, 1),
    ),
    _hazard(
        r"pa/pa_bf16_noquant_gqa(8|16)_1tg_4w(_mtp_msk[01])?\.co( rows=1)?|mla/mla_dec_.*_subQ16_mqa16\.co",
        *("v_cmp_u_f32_e64", "v_cndmask_b32_e64", 2, 1),
    ),
    _hazard(
        _BWD + r"hd192_(fp16|bf16)_(causal_)?a32_(rtz_)?psskddv(_group)?\.co",
        *("v_mfma_f32_16x16x16_b?f16", "v_subrev_f32_dpp", 7, 6),
    ),
    Finding(
        r"pa/pa_(bf16|fp16)_noquant_gqa(8|16)_1tg_4w\.co",
        "waits",
        "missing wait: reads v16 while the load of v16 .* is in flight; no s_waitcnt vmcnt covers it",
        "a true defect: s_waitcnt vmcnt(24) with 23 younger loads, one too many",
    ),
    Finding(
        r"pa/.*_mtp_.* rows=[123]",
        "waits",
        "missing wait: reads v17 while the load of v17 .* is in flight; no s_waitcnt vmcnt covers it",
        "a true defect: the same place in newer objects",
    ),
    Finding(
        r"pa/.*_mtp_.* rows=3",
        "lds-unwritten",
        r"`ds_read_b128 .*: lane \d+ reads LDS bytes .*, of which nobody wrote all",
        "harmless: three rows of eight heads fill 24 of a tile's 32 columns; what comes out of the others "
        "is not stored",
    ),
    Finding(
        rf"mla/({_LATENT})\.co",
        "waits",
        "missing wait: reads v11 while the load of v11 .* is in flight; no s_waitcnt vmcnt covers it",
        "a true defect: s_waitcnt vmcnt(19) with 18 younger loads, one too many",
    ),
    Finding(
        r"mla/mla_a16w8_.*_ps\.co",
        "waits",
        r"missing wait: reads a\[192:193\] while the load of a\[192:195\] .*; no s_waitcnt lgkmcnt",
        "a true defect: of the reads before the barrier up to four may be under way, and s_waitcnt "
        "lgkmcnt(9) lets them be",
    ),
    Finding(
        r"layer_norm(_qnt)?\.co",
        "lds-race",
        r"LDS race: lane \d+ (reads|writes) LDS bytes .*, which wave \d (reads|writes)",
        "a true defect: a barrier is missing, and the results depend on the order of the waves",
    ),
    Finding(
        r"mla/mla_dec_.*_subQ16_mqa16\.co",
        "lds-race",
        r"`ds_read_b128 .*LDS race: .*which wave \d writes at pc \S+ `ds_write_b128 .*no s_waitcnt lgkmcnt",
        "by the manual a true defect: s_waitcnt lgkmcnt(8) before the barrier, with four reads younger than "
        "the eight writes, so that four of these may be under way",
    ),
    Finding(
        r"layer_norm_qnt\.co",
        "global-race",
        r"race: lane -1: store of 4 bytes writes .*, which wave \d .* stores",
        "follows from the race in LDS: every wave stores the row's scale, and their scales differ",
    ),
    Finding(
        _BWD + r".*_swa_.*\.co",
        BOUNDS,
        "load of 4 bytes at .* is not inside one allocation; it is 0 bytes past the end",
        "a true defect: LSE's base advances by the head's offset, and num_records still includes it; it "
        "reads past the end of LSE, and does not use what it reads",
    ),
)

# Objects that give wrong results, none of which AITER's host code ever loads.
# Both drop keys of the first block, those at and after its rows % 32.
WRONG = (
    "fmha_v3_fwd/MI300/fwd_hd128_bf16_causal.co",
    "fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_group.co",
)


def known(name: str) -> list[Finding]:
    """The findings of an object; of one check the first in the table."""
    found: dict[str, Finding] = {}
    for finding in TABLE:
        if re.fullmatch(finding.objects, name):
            found.setdefault(finding.check, finding)
    return list(found.values())
