# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line: ``pyfa-rocm`` or ``python -m pyfa_rocm``, with info, prove, demo and paths."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyfa_rocm import _demo, _info, _paths, _prove
from pyfa_rocm.errors import FmhaError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyfa-rocm", description="Attention on AMD GPUs, or on the software device."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in (("info", _info), ("prove", _prove), ("demo", _demo), ("paths", _paths)):
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
        command.set_defaults(run=module.run)
    for module in (_prove, _paths):
        module.add_arguments(commands.choices[module.__name__.rpartition("._")[2]])
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0 if all is well, 1 if a result is wrong, 2 if it could not run."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except FmhaError as error:
        print(f"pyfa-rocm {args.command}: {error}", file=sys.stderr)
        return 2
