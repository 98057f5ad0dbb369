# SPDX-License-Identifier: MIT OR Apache-2.0
"""The code that Composable Kernel's families share: its names of types, and how their lines are written."""

from __future__ import annotations

from typing import Any

from family import DTYPES

# ck_tile's names of types; of fp8, ours (ck/fwd_kernel.h).
CK_TYPES = {name: f"{name}_t" for name in DTYPES} | {"fp8": "fp8fnuz_t"}


def read_numbers(content: dict[str, Any], lengths: dict[str, int], where: str) -> dict[str, tuple[int, ...]]:
    """Read lists of so many numbers each."""
    found = {}
    for key, length in lengths.items():
        value = content[key]
        if not (isinstance(value, list) and len(value) == length and all(isinstance(n, int) for n in value)):
            raise ValueError(f"{where}: {key} is a list of {length} numbers, got {value!r}")
        found[key] = tuple(value)
    return found


def read_hdim_step(content: dict[str, Any], where: str) -> int:
    """Read what head dims are multiples of."""
    step = content.get("hdim_step", 8)
    if not isinstance(step, int) or step < 0:
        raise ValueError(f"{where}: hdim_step is 0 or what head dims are multiples of, got {step!r}")
    return step


def initializer(fields: dict[str, Any]) -> str:
    """Return a C++ designated initializer."""
    return "{" + ", ".join(f".{key} = {_literal(value)}" for key, value in fields.items()) + "}"


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(map(str, value)) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
