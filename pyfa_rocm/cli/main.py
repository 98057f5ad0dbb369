# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line: ``pyfa-rocm`` or ``python -m pyfa_rocm``, with info, prove, demo and paths."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyfa_rocm.cli import demo, info, paths, prove
from pyfa_rocm.errors import FmhaError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyfa-rocm", description="Attention on AMD GPUs, or on the software device."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in (("info", info), ("prove", prove), ("demo", demo), ("paths", paths)):
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
        command.set_defaults(run=module.run)
    prove.add_arguments(commands.choices["prove"])
    paths.add_arguments(commands.choices["paths"])
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0 if all is well, 1 if a result is wrong, 2 if it could not run."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except FmhaError as error:
        print(f"pyfa-rocm {args.command}: {error}", file=sys.stderr)
        return 2
