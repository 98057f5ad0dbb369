# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle that every kernel test compares with, and the one statement of the tolerances.

It lives in the package, since the installed `pyfa-rocm prove` needs it too.
"""

from pyfa_rocm.cli.gradients import Gradient, gradients
from pyfa_rocm.cli.reference import Expected, attention, distance, visible
from pyfa_rocm.cli.rounding import RMS_SLACK, Numerics, numerics_of, ulp

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
