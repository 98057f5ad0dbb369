# SPDX-License-Identifier: MIT OR Apache-2.0
"""Halves of a register while a load fills the other one: RDNA's 16-bit loads leave it as it is.

Compilers count on that, and wait for no load of the half that they do not use. code/test_rdna_values.py runs
this file, as gfx1100 and gfx1201.
"""

from __future__ import annotations

import pytest

from ..support.findings import Kernels
from ..support.spelling import GENERATION, RDNA

pytestmark = pytest.mark.skipif(not RDNA, reason="on gfx9 a load writes the whole register")

_HIGH = "global_load_short_d16_hi v2, v1, s[8:9]"
_LOW = "global_load_short_d16 v2, v1, s[8:9]"
_USES = {
    "store": ("ds_write_b16 v1, v2", "ds_write_b16_d16_hi v1, v2"),
    "store_to_memory": ("global_store_short v1, v2, s[8:9]", "global_store_short_d16_hi v1, v2, s[8:9]"),
    "store_a_byte": ("ds_write_b8 v1, v2", "ds_write_b8_d16_hi v1, v2"),
    "arithmetic": ("v_add_nc_u16 v3, v2, v2", "v_add_nc_u16 v3, v2, v2 op_sel:[1,1,0]"),
    "result": ("v_add_nc_u16 v2, v3, v3", "v_add_nc_u16 v2, v3, v3 op_sel:[0,0,1]"),
}
# LLVM 19 does not write halves. LLVM 21 writes these v_fmac_f16 v2.l, v3.l, v3.l; v_swap_b16 v3.l, v2.l;
# v_cmp_class_f16 vcc, v3.l, v2.l; v_alignbit_b32 v3, v3, v3, v2.l; v_sat_pk_u8_i16 v2.l, v3; all with v2.h.
if GENERATION > 10:
    _USES |= {
        "accumulator": (".long 0x6c040703", ".long 0x6d040703"),
        "swap": (".long 0x7e06cd02", ".long 0x7e06cd82"),
        "classes": (".long 0x7cfa0503", ".long 0x7cfb0503"),
        "shift": (".long 0xd6160003, 0x40a0703", ".long 0xd6162003, 0x40a0703"),
        "saturated": (".long 0x7e04c503", ".long 0x7f04c503"),
    }
_WRITES = ("result", "saturated")
_WHOLE = ["v_mov_b32 v3, v2", "v_mov_b32 v2, 0", "ds_write_b32 v1, v2", "v_pk_add_f16 v3, v2, v2"]
_LOADS = {"low": _LOW, "high": _HIGH}
_KERNELS = Kernels(
    {
        f"{name}_{half}_{loaded}": [load, use]
        for name, uses in _USES.items()
        for half, use in zip(("low", "high"), uses, strict=True)
        for loaded, load in _LOADS.items()
    }
    | {f"whole{i}_{loaded}": [load, use] for i, use in enumerate(_WHOLE) for loaded, load in _LOADS.items()}
    if RDNA
    else {},
    lds=1024,
)


@pytest.mark.parametrize("name", _USES)
@pytest.mark.parametrize(("half", "loaded"), [("low", "high"), ("high", "low")])
def test_the_other_half_needs_no_wait(name: str, half: str, loaded: str) -> None:
    _KERNELS.run(f"{name}_{half}_{loaded}")


@pytest.mark.parametrize("name", _USES)
@pytest.mark.parametrize("half", ["low", "high"])
def test_the_same_half_does(name: str, half: str) -> None:
    """An operand of the half that is loaded."""
    text = _KERNELS.finding(f"{name}_{half}_{half}")
    assert "missing wait: " in text, text
    assert f"{'writes' if name in _WRITES else 'reads'} v2 while the load of v2" in text, text


@pytest.mark.parametrize("use", range(len(_WHOLE)), ids=_WHOLE.__getitem__)
@pytest.mark.parametrize("loaded", _LOADS)
def test_the_whole_register_does(use: int, loaded: str) -> None:
    """An operand of 32 bits, or of two halves."""
    assert " v2 while the load of v2" in _KERNELS.finding(f"whole{use}_{loaded}")
