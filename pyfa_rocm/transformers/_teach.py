# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes continuous batching take our name for that of an implementation like flash-attention.

It refuses names that it does not know, and goes by "flash" in them: whether masks are made of every query and
key, memory is kept for those, and steps are captured in graphs. So it asks two functions of transformers,
which are wrapped where it asks, and nowhere else.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from pyfa_rocm.transformers._continuous import PACKAGE, paged_attention

__all__ = ["teach"]

_ASKING = ("cache", "continuous_api", "initialization")
_KNOWS = "_pyfa_rocm"


def teach(name: str) -> None:
    """Do so, once; a release of transformers that asks otherwise refuses the name as before."""
    for part in _ASKING:
        _wrap(part, "is_flash_attention_requested", functools.partial(_is_flash, name))
    _wrap("initialization", "lazy_import_flash_attention", functools.partial(_imported, name))


def _wrap(part: str, attribute: str, answer: Callable[..., Any]) -> None:
    try:
        module: Any = importlib.import_module(f"{PACKAGE}.{part}")
    except ImportError:
        return
    asked = getattr(module, attribute, None)
    if asked is None or hasattr(asked, _KNOWS):
        return

    @functools.wraps(asked)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return answer(asked, *args, **kwargs)

    setattr(wrapper, _KNOWS, True)
    setattr(module, attribute, wrapper)


def _is_flash(
    name: str,
    asked: Callable[..., bool],
    config: Any = None,
    requested_attention_implementation: Any = None,
    version: Any = None,
) -> bool:
    implementation = getattr(config, "_attn_implementation", requested_attention_implementation)
    return implementation == name or asked(config, requested_attention_implementation, version)


def _imported(name: str, asked: Callable[..., Any], implementation: Any, *args: Any, **kwargs: Any) -> Any:
    """Answer which functions there are; of ours it asks only whether one takes block tables, the third."""
    if implementation != name:
        return asked(implementation, *args, **kwargs)
    return (None, None, paged_attention, None, None), (None, None)
