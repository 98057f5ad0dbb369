# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of every instruction against NumPy."""
