# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory as programs have it, and a list of the calls that HIP gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyfa_rocm as p
from pyfa_rocm._runtime import hip_memory


@pytest.fixture(autouse=True)
def _keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs have it so; the other tests keep nothing."""
    p.memory.release()
    monkeypatch.setattr(p.memory, "most_kept_bytes", 2**30)
    yield
    p.memory.release()


@pytest.fixture
def calls_of_hip(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of hipMalloc and hipFree from now on."""
    made: list[str] = []
    for name in ("allocate", "free"):
        function = getattr(hip_memory, name)

        def count(*arguments: Any, name: str = name, function: Callable[..., Any] = function) -> Any:
            made.append(name)
            return function(*arguments)

        monkeypatch.setattr(hip_memory, name, count)
    return made
