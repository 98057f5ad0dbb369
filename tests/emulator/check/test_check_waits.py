# SPDX-License-Identifier: MIT OR Apache-2.0
"""Registers and LDS used while the load that fills them is in flight."""

from __future__ import annotations

import re

import pytest

from ..support.asm import RETURN
from ..support.findings import Kernels

_LOAD = "global_load_dword v2, v1, s[8:9]"
_LOAD3 = "global_load_dword v3, v1, s[8:9] offset:256"
_STORE = "global_store_dword v1, v1, s[8:9]"
_USE = "v_add_u32 v4, v2, v2"
_INIT = [
    "ds_write_b32 v1, v1",
    "ds_write_b32 v1, v1 offset:256",
    "s_waitcnt lgkmcnt(0)",
]
_FLAT = ["v_mov_b32 v6, s8", "v_mov_b32 v7, s9", "s_nop 1", "flat_load_dword v2, v[6:7]"]

# name: (instructions before the wait, the wait that is too weak, the one that is enough, what follows,
#        what the finding says)
_CASES: dict[str, tuple[list[str], str, str, list[str], str]] = {
    "read": (
        [_LOAD],
        "s_nop 0",
        "s_waitcnt vmcnt(0)",
        [_USE],
        r"reads v2 while the load of v2 at pc 0x\w+ `global_load_dword v2, v1, s\[8:9\]` is in flight; "
        r"no s_waitcnt vmcnt covers it",
    ),
    "overwrite": ([_LOAD], "s_nop 0", "s_waitcnt vmcnt(0)", ["v_mov_b32 v2, 0"], r"writes v2 while"),
    "store": (
        [_LOAD],
        "s_waitcnt lgkmcnt(0)",
        "s_waitcnt vmcnt(0)",
        ["global_store_dword v1, v2, s[8:9]"],
        r"`global_store_dword v1, v2, s\[8:9\]`: missing wait: reads v2",
    ),
    "address": ([_LOAD], "s_nop 0", "s_waitcnt vmcnt(0)", ["global_load_dword v4, v2, s[8:9]"], r"reads v2"),
    "second_of_two": ([_LOAD3, _LOAD], "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", [_USE], r"reads v2"),
    "first_of_two": ([_LOAD, _LOAD3], "s_waitcnt vmcnt(2)", "s_waitcnt vmcnt(1)", [_USE], r"reads v2"),
    "stores_count": ([_LOAD, _STORE], "s_waitcnt vmcnt(2)", "s_waitcnt vmcnt(1)", [_USE], r"reads v2"),
    "many": (
        [_LOAD, *[_STORE] * 20],
        "s_waitcnt vmcnt(21)",
        "s_waitcnt vmcnt(20)",
        [_USE],
        r"reads v2",
    ),
    "wide": (
        ["global_load_dwordx4 v[4:7], v1, s[8:9]"],
        "s_nop 0",
        "s_waitcnt vmcnt(0)",
        ["v_mov_b32 v3, v7"],
        r"reads v7 while the load of v\[4:7\]",
    ),
    "accvgpr": (
        ["global_load_dword a3, v1, s[8:9]"],
        "s_nop 0",
        "s_waitcnt vmcnt(0)",
        ["v_accvgpr_read_b32 v3, a3"],
        r"reads a3 while",
    ),
    "matrix": (
        ["global_load_dwordx2 v[4:5], v1, s[8:9]"],
        "s_nop 7",
        "s_waitcnt vmcnt(0)",
        ["v_mfma_f32_32x32x8f16 v[16:31], v[4:5], v[8:9], v[16:31]"],
        r"reads v\[4:5\] while",
    ),
    "scalar": (
        ["s_load_dword s12, s[8:9], 0x0"],
        "s_waitcnt vmcnt(0)",
        "s_waitcnt lgkmcnt(0)",
        ["s_add_u32 s13, s12, s12"],
        r"reads s12 while the load of s12 .* no s_waitcnt lgkmcnt",
    ),
    "scalar_out_of_order": (
        ["s_load_dword s12, s[8:9], 0x0", "s_load_dword s14, s[8:9], 0x4"],
        "s_waitcnt lgkmcnt(1)",
        "s_waitcnt lgkmcnt(0)",
        ["s_add_u32 s13, s12, s12"],
        r"reads s12 while",
    ),
    "scalar_to_vector": (
        ["s_load_dword s12, s[8:9], 0x0"],
        "s_nop 0",
        "s_waitcnt lgkmcnt(0)",
        ["v_add_u32 v4, s12, v1"],
        r"reads s12 while",
    ),
    "vcc": (
        ["s_load_dwordx2 vcc, s[8:9], 0x0"],
        "s_nop 0",
        "s_waitcnt lgkmcnt(0)",
        ["v_cndmask_b32 v4, v1, v1, vcc"],
        r"reads vcc while",
    ),
    "lds": (
        [*_INIT, "ds_read_b32 v2, v1"],
        "s_waitcnt vmcnt(0)",
        "s_waitcnt lgkmcnt(0)",
        [_USE],
        r"reads v2 while",
    ),
    "lds_in_order": (
        [*_INIT, "ds_read_b32 v2, v1", "ds_read_b32 v3, v1"],
        "s_waitcnt lgkmcnt(2)",
        "s_waitcnt lgkmcnt(1)",
        [_USE],
        r"reads v2 while the load of v2 at pc 0x\w+ `ds_read_b32 v2, v1`",
    ),
    "lds_and_scalar": (
        [*_INIT, "ds_read_b32 v2, v1", "s_load_dword s12, s[8:9], 0x0"],
        "s_waitcnt lgkmcnt(1)",
        "s_waitcnt lgkmcnt(0)",
        [_USE],
        r"reads v2 while",
    ),
    "permute": (
        ["ds_bpermute_b32 v2, v1, v1"],
        "s_nop 0",
        "s_waitcnt lgkmcnt(0)",
        [_USE],
        r"reads v2 while",
    ),
    "flat_needs_both": (
        _FLAT,
        "s_waitcnt vmcnt(0)",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
        [_USE],
        r"no s_waitcnt vmcnt\(0\) lgkmcnt\(0\) covers it",
    ),
    "atomic": (
        [f"global_atomic_add v2, v1, v1, s[8:9] {RETURN}"],
        "s_nop 0",
        "s_waitcnt vmcnt(0)",
        [_USE],
        r"reads v2 while",
    ),
    "load_to_lds": (
        ["s_mov_b32 m0, 0", "s_nop 0", "buffer_load_dword v1, s[4:7], 0 offen lds"],
        "s_waitcnt lgkmcnt(0)",
        "s_waitcnt vmcnt(0)",
        ["ds_read_b32 v2, v1"],
        r"missing wait: lane 0 reads LDS bytes 0x0 to 0x3, which wave 0 writes at pc 0x\w+ `buffer_load_",
    ),
    "load_over_reads": (
        [*_INIT, "ds_read_b32 v2, v1", "s_mov_b32 m0, 0"],
        "s_nop 0",
        "s_waitcnt lgkmcnt(0)",
        ["buffer_load_dword v1, s[4:7], 0 offen lds"],
        r"missing wait: lane 0 writes LDS bytes 0x0 to 0x3, which wave 0 reads at pc 0x\w+ `ds_read_b32",
    ),
}
_KERNELS = Kernels(
    {f"{n}_bad": [*c[0], c[1], *c[3]] for n, c in _CASES.items()}
    | {f"{n}_good": [*c[0], c[2], *c[3]] for n, c in _CASES.items()}
    | {"in_order": [_LOAD, _LOAD, "ds_bpermute_b32 v3, v1, v1", "ds_bpermute_b32 v3, v1, v1"]},
    lds=1024,
)


@pytest.mark.parametrize("name", _CASES)
def test_missing_wait_is_named(name: str) -> None:
    """The finding names the register and the load that is in flight."""
    text = _KERNELS.finding(f"{name}_bad")
    assert "missing wait" in text
    assert re.search(_CASES[name][4], text), text


@pytest.mark.parametrize("name", _CASES)
def test_repaired_twin_passes(name: str) -> None:
    """The weakest wait that covers the load is enough."""
    _KERNELS.run(f"{name}_good")


def test_loads_that_complete_in_order_may_share_a_register() -> None:
    """The later of two loads of one counter wins, without a wait between."""
    _KERNELS.run("in_order")


def test_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device completes loads at once: without the check nothing is seen."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-waits")
    for name in _CASES:
        _KERNELS.run(f"{name}_bad")
