# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle: attention in float64 NumPy, tolerances, and problems that are judged by them."""
