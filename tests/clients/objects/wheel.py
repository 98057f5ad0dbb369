# SPDX-License-Identifier: MIT OR Apache-2.0
"""The code objects of AITER's wheel: AMD's hand-written kernels for gfx942, which no compiler made."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COUNT = 1281  # in the wheel that native/tools/fetch/ck-requirements.txt pins


@cache
def folder() -> Path:
    """Where unpack_objects.py has put them: $FMHA_TEST_OBJECTS, else build/clients/objects."""
    path = Path(os.environ.get("FMHA_TEST_OBJECTS") or ROOT / "build/clients/objects")
    if not (path / "SOURCE").exists():
        raise FileNotFoundError(
            f"no code objects in {path}; `make test-clients` puts them there, and so does "
            f"native/tools/fetch/unpack_objects.py with the wheel of native/tools/fetch/ck-requirements.txt"
        )
    return path


@cache
def names() -> list[str]:
    """All objects, by their path in the wheel's folder for gfx942."""
    return sorted(str(p.relative_to(folder())) for p in folder().rglob("*.co"))


def matching(pattern: str) -> list[str]:
    """Objects whose name matches from its start to its end."""
    return [n for n in names() if re.fullmatch(pattern, n)]


def image(name: str) -> bytes:
    """An object's file."""
    return (folder() / name).read_bytes()


def kernel(data: bytes) -> str:
    """The name of an object's only kernel: that of its descriptor, without `.kd`."""
    found = {match[1].decode() for match in re.finditer(rb"\0([\w$]+)\.kd\0", data)}
    if len(found) != 1:
        raise ValueError(f"expected one kernel, got {sorted(found)}")
    return found.pop()
