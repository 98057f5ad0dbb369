# SPDX-License-Identifier: MIT OR Apache-2.0
"""The name by which SGLang knows the backend, and the versions whose interfaces these modules follow."""

from __future__ import annotations

import re
from importlib import metadata

__all__ = ["NAME", "VERSIONS", "refusal"]

NAME = "pyfa_rocm"
# The first that is supported, and the first that is not. Interfaces change between patches too.
VERSIONS = ((0, 5, 23), (0, 5, 24))


def refusal(version: str | None = None) -> str:
    """Return why a version of SGLang, by default the installed one, is refused; "" if it is not."""
    version = metadata.version("sglang") if version is None else version
    numbers = tuple(int(x) for x in re.findall(r"\d+", version)[:3])
    if VERSIONS[0] <= numbers < VERSIONS[1]:
        return ""
    first, behind = (".".join(map(str, x)) for x in VERSIONS)
    return (
        f"pyfa_rocm.sglang: got SGLang {version}, expected {first} or newer and older than {behind}: install "
        "such a version, or choose another attention backend"
    )
