# SPDX-License-Identifier: MIT OR Apache-2.0
"""Backward on Radeon by the clock: what docs/kernels/wmma.md says of it.

These are regression tests, and no evidence of what a card does.
"""

from __future__ import annotations

from typing import Any

import pytest
from built import rows
from inner import program

pytestmark = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")

# Batch, heads of queries and keys, keys, head dim, causal: TFLOPS at the middle of the range on an RX 7900
# XTX and an RX 9070 XT.
REACHED = {
    (4, 8, 8, 1024, 128, False): (56.0, 72.5),
    (4, 8, 8, 1024, 64, False): (50.6, 68.8),
}
KEPT = 0.95
CODE = f"""
import json
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import Ours
from pyfa_rocm.oracle.problem import Problem
found = [estimate(Ours(), Problem(*shape), "backward") for shape in {list(REACHED)}]
print(json.dumps([[one.kernel, one.middle_tflops] for one in found]))
"""


@pytest.mark.parametrize(("arch", "card"), [("gfx1100", 0), ("gfx1201", 1)])
def test_what_radeon_reached(arch: str, card: int) -> None:
    names = {row["name"] for row in rows("bwd") if row["arch"] == arch}
    wanted = [f"fmha_bwd_bf16_d{shape[4]}" for shape in REACHED]
    if not names.issuperset(wanted):
        pytest.skip(f"this build lacks {wanted} for {arch}")
    found: Any = program("-c", CODE, arch=arch)
    for (shape, reached), name, (kernel, tflops) in zip(REACHED.items(), wanted, found, strict=True):
        assert kernel == name
        assert tflops >= KEPT * reached[card], shape
