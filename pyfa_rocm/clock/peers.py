# SPDX-License-Identifier: MIT OR Apache-2.0
"""Peers by the command line: a Python file that says how others' kernels are launched, and what it needs.

benchmarks/peers/__init__.py says what such a file defines.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from pyfa_rocm.clock.subjects import Subject
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["peers"]

_ROOT = Path(__file__).parents[2]
# Modules of a checkout, which are named without a path.
_FOLDER = _ROOT / "benchmarks" / "peers"


def _file(name: str) -> Path:
    """Return the file that a name or a path means."""
    known = _FOLDER / f"{name}.py"
    return known if known.is_file() else Path(name)


def _subjects(argument: str) -> tuple[str, list[Subject]]:
    name, _, path = argument.partition("=")
    file = _file(name)
    if file.suffix != ".py" or not file.is_file():
        known = sorted(each.stem for each in _FOLDER.glob("[!_]*.py"))
        raise InvalidArgumentError(
            f"--peer: got {argument}, expected NAME=PATH, and for NAME a Python file, or one of "
            f"{', '.join(known) or 'those that a checkout has'}"
        )
    if str(_ROOT) not in sys.path:
        sys.path.append(str(_ROOT))
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    if not hasattr(module, "peers"):
        raise InvalidArgumentError(f"--peer: got {file}, expected a file that defines peers()")
    return file.stem, list(module.peers(path))


def peers(arguments: Iterable[str]) -> dict[str, list[Subject]]:
    """Return the subjects of each file, by the file's name.

    Parameters
    ----------
    arguments : iterable of str
        "NAME", "NAME=PATH", or the same with a file's path instead of a name.

    Raises
    ------
    InvalidArgumentError
        There is no such file, or what is behind "=" is not what it needs.
    """
    return dict(_subjects(argument) for argument in arguments)
