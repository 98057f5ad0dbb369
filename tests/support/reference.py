# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle that every kernel test compares with, and the one statement of the tolerances.

It lives in the package, since the installed `pyfa-rocm prove` needs it too.
"""

from pyfa_rocm.oracle.gradients import Gradient, gradients
from pyfa_rocm.oracle.reference import Expected, attention, distance, visible
from pyfa_rocm.oracle.rounding import RMS_SLACK, Numerics, numerics_of, ulp

__all__ = [
    "RMS_SLACK",
    "Expected",
    "Gradient",
    "Numerics",
    "attention",
    "distance",
    "gradients",
    "numerics_of",
    "ulp",
    "visible",
]
