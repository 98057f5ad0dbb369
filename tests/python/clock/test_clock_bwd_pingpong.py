# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own backward kernels by the clock: what docs/kernels/bwd_{pingpong,one_pass,wide,halves}.md say.

These are regression tests, and no evidence of what a card does.
"""

from __future__ import annotations

from typing import Any

import pytest
from inner import program

pytestmark = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")

# Batch, heads of queries and keys, keys, head dim, causal: TFLOPS at the middle of the range on an MI300X and
# an MI355X.
REACHED = {
    (4, 32, 8, 4096, 128, False): (510, 985),
    (4, 32, 8, 4096, 128, True): (486, 879),
    (4, 32, 8, 4096, 64, False): (379, 636),
    (4, 32, 8, 4096, 256, False): (392, 707),
    (4, 32, 8, 4096, 256, True): (382, 662),
    (4, 32, 8, 4096, 512, False): (339, 627),
    (1, 64, 8, 4096, 128, True): (420, 832),  # workgroups divide groups: undivided it has 260 on an MI300X
}
PIPELINES = {64: "pingpong", 128: "pingpong", 256: "wide", 512: "halves"}
# These add up dQ in memory on an MI300X. The clock does not count its memset, a hundredth of the time.
ONE_PASS = {(4, 32, 8, 4096, 128, False), (4, 32, 8, 4096, 128, True)}
KEPT = 0.95
CODE = f"""
import json
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import Ours
from pyfa_rocm.oracle.problem import Problem
found = [estimate(Ours(), Problem(*shape), "backward") for shape in {list(REACHED)}]
print(json.dumps([[one.kernel, one.middle_tflops] for one in found]))
"""


@pytest.mark.parametrize(("arch", "card"), [("gfx942", 0), ("gfx950", 1)])
def test_what_was_reached(arch: str, card: int) -> None:
    found: Any = program("-c", CODE, arch=arch)
    for (shape, reached), (kernel, tflops) in zip(REACHED.items(), found, strict=True):
        pipeline = "one_pass" if card == 0 and shape in ONE_PASS else PIPELINES[shape[4]]
        assert kernel == f"fmha_bwd_bf16_d{shape[4]}_{pipeline}"
        assert tflops >= KEPT * reached[card], shape
