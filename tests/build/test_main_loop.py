# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which instructions the report on kernels counts as the main loop."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "native" / "tools"
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


# A way that leaves the loop for good, as far as the text says: a jump by a register comes back to .Lnext.
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


def test_a_long_jump_may_lead_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    report = import_module("report")
    counts = report.main_loop(report.read_assembly(LONG_WAY)["kernel"])
    assert (counts["instructions"], counts["mfma"], counts["valu"]) == (6, 1, 1)


def test_a_branch_back_is_no_loop_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    report = import_module("report")
    counts = report.main_loop(report.read_assembly(OUT_OF_ORDER)["kernel"])
    assert (counts["instructions"], counts["mfma"], counts["valu"]) == (3, 1, 1)
