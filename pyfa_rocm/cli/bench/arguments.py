# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers on the command line of `bench`."""

from __future__ import annotations

import argparse

__all__ = ["positive", "positives"]


def positive(text: str) -> int:
    """Return a whole number of 1 or more."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number of 1 or more")
    return value


def positives(text: str) -> tuple[int, ...]:
    """Return such numbers, between commas."""
    return tuple(positive(item.strip()) for item in text.split(","))
