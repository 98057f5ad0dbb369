# SPDX-License-Identifier: MIT OR Apache-2.0
"""The build's programs, native/tools, as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[2] / "native" / "tools"


def load_tool(name: str) -> Any:
    """A program of native/tools, "folder/name", as a module; those of a folder import each other by name."""
    folder, _, module = name.rpartition("/")
    sys.path.insert(0, str(TOOLS / folder))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(TOOLS / folder))
