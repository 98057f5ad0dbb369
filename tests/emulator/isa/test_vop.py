# SPDX-License-Identifier: MIT OR Apache-2.0
"""Vector ALU instructions without side effects, against NumPy."""

from __future__ import annotations

from ..support.asm import Case, Suite
from ..support.ops.ops1 import VOP1
from ..support.ops.ops2 import VOP2
from ..support.ops.ops3 import VOP3_OPS
from ..support.ops.ops_rdna import NEW
from ..support.ops.valu import add_all
from ..support.spelling import RDNA

SUITE = Suite("vop")
_seen = {o.name for o in VOP3_OPS}
add_all(SUITE, [*VOP1, *(o for o in VOP2 if o.name not in _seen), *VOP3_OPS, *(NEW if RDNA else [])])


@SUITE.parametrize()
def test_instruction(case: Case) -> None:
    """The instruction computes what the manual says."""
    SUITE.check(case)
