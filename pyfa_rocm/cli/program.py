# SPDX-License-Identifier: MIT OR Apache-2.0
"""Commands that run another program set its environment, and become it."""

from __future__ import annotations

import argparse
import errno
import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["add_program", "run_program"]

# Lists of folders: what the environment has already stays behind ours.
_PATHS = ("LD_LIBRARY_PATH", "PYTHONPATH")
# The exit status of a shell that cannot run a command, or has not found it.
_CANNOT_RUN, _NOT_FOUND = 126, 127


def add_program(parser: argparse.ArgumentParser) -> None:
    """Declare the program that `run_program` takes, behind all options."""
    parser.usage = "%(prog)s [OPTION ...] [--] [PROGRAM [ARGUMENT ...]]"
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, help="what to run, and its arguments; `--` may stand before it"
    )


def run_program(args: argparse.Namespace, variables: Mapping[str, str]) -> int:
    """Become the program with these variables, or print them if there is none."""
    program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if args.json and program:
        raise InvalidArgumentError(f"--json: got the program {program[0]!r} too, expected one of the two")
    if program:
        return _become(args.command, program, variables)
    if args.json:
        print(json.dumps(dict(variables), indent=2))
        return 0
    for name, value in variables.items():
        rest = f'"${{{name}:+:${name}}}"' if name in _PATHS else ""
        print(f"export {name}={shlex.quote(value)}{rest}")
    return 0


def _become(command: str, program: Sequence[str], variables: Mapping[str, str]) -> int:
    """Replace this process by the program, so that its signals and exit status are its own."""
    environment = os.environ | dict(variables)
    for name in set(_PATHS) & set(variables):
        environment[name] = ":".join(filter(None, (variables[name], os.environ.get(name))))
    # Python ignores them, which a program would inherit.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(program[0], list(program), environment)
    except OSError as error:
        print(f"pyfa-rocm {command}: {program[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else _CANNOT_RUN
