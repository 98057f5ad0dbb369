# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the checks: each rule has programs that break it and programs that keep it."""
