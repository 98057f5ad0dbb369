# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle that every kernel test compares with, and the one statement of the tolerances.

It lives in the package, since the installed `pyfa-rocm prove` needs it too.
"""

from pyfa_rocm._reference import (
    BIAS_SLACK,
    LSE_TOLERANCE,
    O_SLACK,
    Expected,
    attention,
    ulp,
    visible,
)

__all__ = ["BIAS_SLACK", "LSE_TOLERANCE", "O_SLACK", "Expected", "attention", "ulp", "visible"]
