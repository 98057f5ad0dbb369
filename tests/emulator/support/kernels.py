# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernels that tests can run."""

from __future__ import annotations

import json

from pyfa_rocm._runtime import library


def built_for(arch: str) -> bool:
    """Return whether the library has kernels for this arch."""
    return arch in json.loads(library.build_info_json())["archs"]
