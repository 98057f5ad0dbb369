# SPDX-License-Identifier: MIT OR Apache-2.0
"""The options that public functions take as ``**ours``: shown in their signatures, and checked by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pyfa_rocm._call.optional import DESCALES, OptionalArguments
from pyfa_rocm._call.params import Keywords, Options

__all__ = ["add_keywords", "key_of", "options_of", "require_known", "spelled_out"]

_F = TypeVar("_F", bound=Callable[..., Any])
_NAMES = tuple(Keywords.__annotations__)
_DEFAULTS = {x.name: x.default for x in fields(Options)}
# OptionalArguments takes these: a plan does not depend on their values.
_PER_CALL = frozenset(("bias", "sinks", "philox", *DESCALES))
# Keywords that say where a call goes. Signatures end with them.
_LAST = ("out", "stream")


def spelled_out(function: _F) -> _F:
    """Have `help` and `inspect` show each keyword of a function that takes ``**ours``."""
    signature = inspect.signature(function)
    own = [x for x in signature.parameters.values() if x.kind is not inspect.Parameter.VAR_KEYWORD]
    first, last = ([x for x in own if (x.name in _LAST) is at_end] for at_end in (False, True))
    keywords = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS[name], annotation=annotation
        )
        for name, annotation in Keywords.__annotations__.items()
    ]
    function.__signature__ = signature.replace(parameters=[*first, *keywords, *last])  # type: ignore[attr-defined]
    return function


def require_known(function: str, ours: Mapping[str, Any]) -> None:
    """Raise as Python does for a keyword that a function does not take."""
    for name in ours:
        if name not in _NAMES:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def options_of(function: str, ours: Mapping[str, Any], **own: Any) -> Options:
    """Return the options of a call to this function, after checking the names of its keywords."""
    require_known(function, ours)
    return Options(**own, **ours)


def add_keywords(optional: OptionalArguments, ours: Mapping[str, Any], dropout_p: float) -> None:
    """Add what differs from call to call among the keywords."""
    if ours:
        optional.add("bias", ours.get("bias"))
        optional.add("sinks", ours.get("sinks"))
        for name in DESCALES:
            optional.add_descale(name, ours.get(name))
    if dropout_p:
        optional.add_philox(ours.get("philox"), dropout_p)


def key_of(ours: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a plan depends on among the keywords, beside what OptionalArguments says."""
    return tuple(x for x in ours.items() if x[0] not in _PER_CALL)
