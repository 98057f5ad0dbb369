# SPDX-License-Identifier: MIT OR Apache-2.0
"""The C library's heap while tests run: freed memory stays with the process.

NumPy allocates and frees the oracle's matrices all the time. By default each large one is mapped and unmapped
again, and the system clears its pages anew: 6 % of the CPU time of tests of backward attention.
"""

from __future__ import annotations

import ctypes

# mallopt's names (malloc.h), and bytes: glibc maps no block below _MAPPED, and keeps up to _KEPT at the end.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT, _MAPPED = 1 << 30, 32 << 20


def keep_freed() -> None:
    """Let this process keep what it frees; another C library than glibc has its own way."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in ((_MMAP_THRESHOLD, _MAPPED), (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _MAPPED)):
            mallopt(name, value)
