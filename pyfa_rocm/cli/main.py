# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line: ``pyfa-rocm`` or ``python -m pyfa_rocm``, and its commands."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from pyfa_rocm.cli import demo, device, flash_attn, info, paths, prove
from pyfa_rocm.cli.bench import command as bench
from pyfa_rocm.cli.first_day import command as first_day
from pyfa_rocm.errors import FmhaError

_SIGPIPE = 13  # Windows has no such signal


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pyfa-rocm", description="Attention on AMD GPUs, or on the software device."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = {
        "info": info,
        "prove": prove,
        "demo": demo,
        "bench": bench,
        "first-day": first_day,
        "paths": paths,
        "device": device,
        "flash-attn": flash_attn,
    }
    for name, module in modules.items():
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
        command.set_defaults(run=module.run)
    info.add_arguments(commands.choices["info"])
    bench.add_arguments(commands.choices["bench"])
    first_day.add_arguments(commands.choices["first-day"])
    prove.add_arguments(commands.choices["prove"])
    paths.add_arguments(commands.choices["paths"])
    device.add_arguments(commands.choices["device"])
    flash_attn.add_arguments(commands.choices["flash-attn"])
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0 if all is well, 1 if a result is wrong, 2 if it could not run."""

    def command() -> int:
        args = _parser().parse_args(argv)
        try:
            return int(args.run(args))
        except FmhaError as error:
            print(f"pyfa-rocm {args.command}: {error}", file=sys.stderr)
            return 2

    return _written(command)


def _written(command: Callable[[], int]) -> int:
    """Return a command's exit status, also if its output cannot be written or it is interrupted."""
    _print_any_path()
    try:
        try:
            return command()
        finally:
            if sys.stdout is not None:  # None: it was closed from the start, and nobody wants the output
                sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: as if the signal had ended us, without a word
        _forget_output()
        return 128 + _SIGPIPE
    except OSError as error:
        if error.filename is not None:  # of a file, so not of the output
            raise
        print(f"pyfa-rocm: cannot write the output: {error.strerror}", file=sys.stderr)
        _forget_output()
        return 2
    except KeyboardInterrupt:
        print("pyfa-rocm: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def _print_any_path() -> None:
    """Let paths be printed that are no text in the locale."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.errors == "strict":
        is_utf8 = sys.stdout.encoding.lower() == "utf-8"
        reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


def _forget_output() -> None:
    """Keep the interpreter from writing the rest at its end, to fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
