# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report on kernels finds the instructions of the main loop."""

from __future__ import annotations

import pytest
import report

# The first block, which comes last, branches to what lies in front of the loop; nothing leads back to it.
OUT_OF_ORDER = """
kernel:
 s_cbranch_scc1 .Lfirst
.Lsecond:
 v_mov_b32 v0, 0
.Lloop:
 v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
 v_add_f32 v4, v4, v5
 s_cbranch_scc1 .Lloop
 v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
 s_endpgm
.Lfirst:
 s_branch .Lsecond
"""
# A jump to a register leads to a block that leads back, which the text does not say.
LONG_WAY = """
kernel:
.Lloop:
 v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
 s_cbranch_scc1 .Lend
 s_getpc_b64 s[0:1]
 s_setpc_b64 s[0:1]
.Lnext:
 v_add_f32 v4, v4, v5
 s_branch .Lloop
.Lend:
 s_endpgm
"""


@pytest.mark.parametrize(("text", "counts"), [(OUT_OF_ORDER, (3, 1, 1)), (LONG_WAY, (6, 1, 1))])
def test_main_loop(text: str, counts: tuple[int, int, int]) -> None:
    """A branch back is a loop only if a way leads to it; a jump to a register may be that way."""
    found = report.main_loop(report.read_assembly(text)["kernel"])
    assert (found["instructions"], found["mfma"], found["valu"]) == counts
