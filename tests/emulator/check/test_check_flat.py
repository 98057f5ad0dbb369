# SPDX-License-Identifier: MIT OR Apache-2.0
"""FLAT loads on RDNA complete in the order of both counters: vmcnt(1) is a wait for the older of two.

code/test_rdna_values.py runs this file, as gfx1100 and gfx1201.
"""

from __future__ import annotations

import pytest

from ..support.findings import Kernels
from ..support.spelling import RDNA

pytestmark = pytest.mark.skipif(not RDNA, reason="on gfx9 nothing is known of a FLAT load before 0")

_PLACE = ["v_mov_b32 v6, s8", "v_mov_b32 v7, s9"]
_LOADS = {
    "flat": ["flat_load_dword v2, v[6:7]", "global_load_dword v3, v1, s[8:9] offset:256"],
    "global": ["global_load_dword v2, v1, s[8:9]", "flat_load_dword v3, v[6:7] offset:256"],
    "both": ["flat_load_dword v2, v[6:7]", "flat_load_dword v3, v[6:7] offset:256"],
}
_WAITS = {
    "vector": "s_waitcnt vmcnt(1)",
    "lds": "s_waitcnt lgkmcnt(1)",
    "two": "s_waitcnt vmcnt(1) lgkmcnt(0)",
}
_KERNELS = Kernels(
    {
        f"{name}_{wait}_{register}": [*_PLACE, *loads, text, f"v_mov_b32 v4, {register}"]
        for name, loads in _LOADS.items()
        for wait, text in _WAITS.items()
        for register in ("v2", "v3")
    }
    if RDNA
    else {},
    lds=1024,
)


@pytest.mark.parametrize("name", _LOADS)
def test_the_older_is_there(name: str) -> None:
    """The vector counter at 1 and the other at 0 cover the older load."""
    _KERNELS.run(f"{name}_two_v2")


@pytest.mark.parametrize("name", _LOADS)
def test_the_younger_is_not(name: str) -> None:
    text = _KERNELS.finding(f"{name}_two_v3")
    assert "missing wait: reads v3 while the load of v3" in text, text


@pytest.mark.parametrize("wait", ["vector", "lds"])
def test_one_counter_is_not_enough(wait: str) -> None:
    """A FLAT load reaches LDS or memory: both counters must say that it is there."""
    text = _KERNELS.finding(f"flat_{wait}_v2")
    assert "missing wait: reads v2 while the load of v2" in text, text
