# SPDX-License-Identifier: MIT OR Apache-2.0
"""The decoder against LLVM, form by form: every select, modifier, control, mask and constant of every row."""

from __future__ import annotations

import pytest

from ..support import rows
from ..support.asm import legal
from ..support.syntax.decoding import assembled, differences, emulator, objdump
from ..support.syntax.forms import forms
from .test_decoder import CDNA

# Lines that LLVM takes, at least.
_FORMS = {
    "sdwa": 12000,
    "dpp": 9000,
    "mixed": 2000,
    "short": 20000,
    "long": 50000,
    "packed": 12000,
    "literal": 90,
    "scalar": 10000,
}


@pytest.mark.parametrize("cpu", CDNA)
@pytest.mark.parametrize("form", _FORMS)
def test_forms_decode_as_llvm(form: str, cpu: str) -> None:
    """The device prints LLVM's code as LLVM prints it."""
    tried = [line for row in rows.of(cpu) for line in forms(row).get(form, [])]
    taken = [line for line, good in zip(tried, legal(tried, cpu), strict=True) if good]
    llvm, code, base = objdump(assembled(taken, cpu), cpu)
    wrong = differences(emulator(code, cpu, base), llvm)
    assert not wrong, f"{len(wrong)} of {len(llvm)} differ:\n" + "\n".join(wrong[:60])
    assert len(taken) > _FORMS[form], "LLVM takes fewer than it did"
