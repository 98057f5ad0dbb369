# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run a Python program with flash-attn's functions from here; without one, print the variables."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyfa_rocm.cli.program import add_program, run_program

_SITE = Path(__file__).resolve().parents[1] / "flash_attn" / "_site"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument(
        "--fa3",
        action="store_true",
        help="flash-attention 3's modules too: flash_attn_interface, flash_attn_3",
    )
    parser.add_argument(
        "--replace", action="store_true", help="also if another flash-attn is installed, otherwise an error"
    )
    add_program(parser)


def run(args: argparse.Namespace) -> int:
    """Become the program; return only if there is none or it cannot be run."""
    words = [word for word in ("fa3", "replace") if getattr(args, word)]
    return run_program(args, {"PYTHONPATH": str(_SITE), "PYFA_ROCM_FLASH_ATTN": ",".join(words)})
