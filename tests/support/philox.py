# SPDX-License-Identifier: MIT OR Apache-2.0
"""The random bytes of dropout: the oracle's, which `pyfa-rocm first-day` needs too."""

from pyfa_rocm.oracle.philox import keep_at_most, keep_scale, random_bytes

__all__ = ["keep_at_most", "keep_scale", "random_bytes"]
