# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forward problems: how one is described, put on the device, run and judged, and drawn at random."""

from cases_draw import MAX_TILES, cases, layouts, seqlens
from cases_judge import (
    expected,
    forced,
    judge,
    numerics_by,
    randval_is_right,
    run_flash,
    run_or_refused,
    run_raw,
    run_shared,
)
from cases_place import Placed, Placement, bits, canary
from cases_types import DTYPES, UNLIMITED, Bias, Case, Dropout, Layout, Varlen

__all__ = [
    "DTYPES",
    "MAX_TILES",
    "UNLIMITED",
    "Bias",
    "Case",
    "Dropout",
    "Layout",
    "Placed",
    "Placement",
    "Varlen",
    "bits",
    "canary",
    "cases",
    "expected",
    "forced",
    "judge",
    "layouts",
    "numerics_by",
    "randval_is_right",
    "run_flash",
    "run_or_refused",
    "run_raw",
    "run_shared",
    "seqlens",
]
