# SPDX-License-Identifier: MIT OR Apache-2.0
"""The profile of hypothesis that all tests use: importing this loads it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Random problems of a suite. `make test-all` takes twice as many.
EXAMPLES = int(os.environ.get("FMHA_TEST_EXAMPLES", "400"))
# Derandomised: a run is the same everywhere, and a failing case prints all that it takes to repeat it.
settings.register_profile(
    "fmha",
    derandomize=True,
    deadline=None,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fmha")
