# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which kernels there are to try."""

from __future__ import annotations

import json

from pyfa_rocm._runtime import library


def built_for(arch: str) -> bool:
    """Whether the library has kernels for this arch."""
    return arch in json.loads(library.build_info_json())["archs"]
