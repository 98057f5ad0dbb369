# SPDX-License-Identifier: MIT OR Apache-2.0
"""Hooks around a fork, on systems that fork: Windows does not."""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["at_fork"]


def at_fork(
    *,
    before: Callable[[], object] | None = None,
    after_in_parent: Callable[[], object] | None = None,
    after_in_child: Callable[[], object] | None = None,
) -> None:
    """Register functions as `os.register_at_fork` does, where processes fork."""
    hooks = {"before": before, "after_in_parent": after_in_parent, "after_in_child": after_in_child}
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(**{name: hook for name, hook in hooks.items() if hook is not None})
