# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of events, profile and cache model."""
