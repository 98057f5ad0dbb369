# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values of RDNA's instructions: gfx9's suites as far as they apply, and RDNA's own.

They run in waves of 32 and of 64; a process has one arch, so each in its own. Each row has a case, or a test
elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from inner import run_script
from plugins import quick

from ..isa.test_rdna_rest import REFUSED
from ..support import rows
from .test_coverage import covered

ARCHS = ("gfx1030", "gfx1100", "gfx1150", "gfx1201")
SUITES = (
    *("vop", "vop3p", "vopc", "carry", "mad", "lanes", "scalar", "scalar_control", "smem", "ds"),
    *("global", "buffer", "format", "scratch", "rdna", "rdna_dpp", "rdna_scalar", "rdna_rest", "transposed"),
    "rdna_cards",
)
CHECKS = ("flat", "halves", "rdna", "scalars")
_TESTS = Path(__file__).resolve().parents[1]
_MATRIX = ("v_wmma_", "v_swmmac_")  # wave32_matrix_test.cc, and test_wmma_products against the compiler
_WIDE = "waves of 64 lanes, in which the suites run too"
_NARROW = "waves of 32 lanes, in which the suites run too"
ELSEWHERE = {
    **{f"s_{n}_saveexec_b64": _WIDE for n in ("and", "or", "xor", "nand", "nor", "xnor")},
    **{f"s_{n}_not{i}_saveexec_b64": _WIDE for n in ("and", "or") for i in (0, 1)},
    **{f"s_and_not{i}_wrexec_b64": _WIDE for i in (0, 1)},
    **{f"s_{n}n{i}_saveexec_b64": _WIDE for n in ("and", "or") for i in (1, 2)},
    **{f"s_andn{i}_wrexec_b64": _WIDE for i in (1, 2)},
    "s_subvector_loop_begin": _WIDE,
    "s_subvector_loop_end": _WIDE,
    "s_endpgm": "every kernel ends with it",
    "s_trap": "test_faults",
    "s_barrier_signal": "test_attention_as: every __syncthreads of gfx12",
    "s_barrier_wait": "test_attention_as: every __syncthreads of gfx12",
    "s_code_end": "never run: what lies behind a kernel",
    **dict.fromkeys(
        (
            *("s_rfe_b64", "s_endpgm_saved", "s_sendmsg", "s_sendmsghalt", "s_setkill"),
            *("s_cbranch_cdbgsys", "s_cbranch_cdbguser"),
            *("s_cbranch_cdbgsys_or_user", "s_cbranch_cdbgsys_and_user"),
            "s_endpgm_ordered_ps_done",
        ),
        "gfx9's bodies: test_scalar_special",
    ),
    "v_pipeflush": "computes nothing",
    "s_barrier_signal_isfirst": "test_rdna_rest, with several waves",
    **dict.fromkeys(REFUSED, "test_rdna_rest"),
}

pytestmark = pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")


# Tests elsewhere cover these rows for waves of 64.
ELSEWHERE_WIDE = {name: why for name, why in ELSEWHERE.items() if why != _WIDE} | {
    **{f"s_{n}_saveexec_b32": _NARROW for n in ("and", "or", "xor", "nand", "nor", "xnor")},
    **{f"s_{n}_not{i}_saveexec_b32": _NARROW for n in ("and", "or") for i in (0, 1)},
    **{f"s_and_not{i}_wrexec_b32": _NARROW for i in (0, 1)},
    **{f"s_{n}n{i}_saveexec_b32": _NARROW for n in ("and", "or") for i in (1, 2)},
    **{f"s_andn{i}_wrexec_b32": _NARROW for i in (1, 2)},
    "v_dual": _NARROW,
}
# Waves of 64 of gfx1150 differ from those of gfx1100 as little as its waves of 32 do.
RUNS = [(arch, lanes) for arch in ARCHS for lanes in ("32", "64") if (arch, lanes) != ("gfx1150", "64")]


@pytest.mark.parametrize(("arch", "lanes"), RUNS)
def test_suites(arch: str, lanes: str) -> None:
    """Every case passes."""
    script = (
        "import sys, pytest\nsys.exit(pytest.main(['-q', '-pno:cacheprovider', '-pno:xdist', *sys.argv[1:]]))"
    )
    files = [str(path) for name in SUITES for path in _TESTS.glob(f"isa/**/test_{name}.py")]
    files += [str(_TESTS / "check" / f"test_check_{name}.py") for name in CHECKS]
    out = run_script(
        script, *files, *quick.arguments(), env={"FMHA_EMU_ARCH": arch, "FMHA_TEST_LANES": lanes}
    )
    assert " passed" in out, out


def exercised() -> set[str]:
    """Rows that some case of these suites tests, on this process's arch."""
    return covered(tuple(f"test_{name}" for name in SUITES))


@pytest.mark.parametrize(("arch", "lanes"), RUNS)
def test_every_row_has_a_test(arch: str, lanes: str) -> None:
    """No row without a case, and no exemption that is none."""
    script = "from emulator.code.test_rdna_values import *; print(*sorted(exercised()))"
    tested = set(run_script(script, env={"FMHA_EMU_ARCH": arch, "FMHA_TEST_LANES": lanes}).split())
    missing = {n for n in rows.names(arch) - tested if not n.startswith(_MATRIX)}
    exempt = set(ELSEWHERE if lanes == "32" else ELSEWHERE_WIDE)
    elsewhere = exempt & rows.names(arch)
    assert missing == elsewhere - tested, sorted(missing ^ elsewhere)
    assert not exempt & tested
