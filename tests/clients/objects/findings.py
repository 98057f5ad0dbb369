# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the device's checks have to say of the objects, each judged once."""

from __future__ import annotations

import re
from dataclasses import dataclass

BOUNDS = "bounds"  # not one of FMHA_EMU_CHECKS: always on


@dataclass(frozen=True)
class Finding:
    """A finding that the objects whose names match are known to give."""

    objects: str  # regular expression for the whole of a name
    check: str
    text: str  # regular expression for a part of the message
    reason: str


TABLE: tuple[Finding, ...] = ()


def known(name: str) -> list[Finding]:
    """The findings of an object; of one check the first in the table."""
    found: dict[str, Finding] = {}
    for finding in TABLE:
        if re.fullmatch(finding.objects, name):
            found.setdefault(finding.check, finding)
    return list(found.values())

# Objects that give wrong results, none of which AITER's host code ever loads.
WRONG = {
    "fmha_v3_fwd/MI300/fwd_hd128_bf16_causal.co": "the first block drops keys at and after its rows % 32",
    "fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_group.co": "the first block drops keys at and after its rows % 32",
}
