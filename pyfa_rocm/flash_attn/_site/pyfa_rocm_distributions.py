# SPDX-License-Identifier: MIT OR Apache-2.0
"""Answers queries for the installed flash-attn, from folders with the metadata of packages.

They have names of their own, since what builds wheels leaves out folders *.dist-info.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import Distribution

_FOLDERS = {"flash_attn": "flash-attn-2.8.3", "flash_attn_3": "flash-attn-3-3.0.0"}


def distributions(name: str | None, flash_attn_3: bool) -> Iterator[Distribution]:
    """Yield those of this name, in any spelling; None: all. flash-attention 3's only if it is asked for."""
    wanted = None if name is None else name.lower().replace("-", "_").replace(".", "_")
    for known, folder in list(_FOLDERS.items())[: 1 + flash_attn_3]:
        if wanted in (None, known):
            yield Distribution.at(os.path.join(os.path.dirname(__file__), folder))  # noqa: PTH118, PTH120
