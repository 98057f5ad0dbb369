# SPDX-License-Identifier: MIT OR Apache-2.0
"""The releases of ROCm that the device plays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..support import hip


@pytest.fixture(params=["", "6.0", "6.2", "7"], ids=["unset", "6.0", "6.2", "7"])
def rocm(request: pytest.FixtureRequest) -> Iterator[str]:
    """One of them, or none in particular; the tests of a module that uses this run under each."""
    release = str(request.param)
    hip.recover()  # from what a test before this one stopped
    hip.call("fmha_emu_set_rocm", release.encode())
    yield release
    hip.lib().fmha_emu_set_rocm(b"")
    hip.recover()
