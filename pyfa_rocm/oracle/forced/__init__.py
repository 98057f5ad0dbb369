# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random problems for one kernel of the library, which is made to run, and judged against float64."""

from __future__ import annotations

from collections.abc import Callable

from pyfa_rocm.oracle.forced import attention, caches, quantize
from pyfa_rocm.oracle.forced.outcome import NotOfferedError, Outcome, Row, Sizes

__all__ = ["FAMILIES", "NotOfferedError", "Outcome", "Row", "Sizes", "run"]

# The families whose kernels can be asked for by number, and what runs a kernel of each. The others run beside
# a kernel of these.
FAMILIES: dict[str, Callable[[Row, int, Sizes], Outcome]] = {
    "fwd": attention.forward,
    "bwd": attention.backward,
    "decode": caches.decode,
    "kv_append": caches.append,
    "merge": caches.merge,
    "quantize": quantize.quantize,
}


def run(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Run a kernel on a random problem of a seed, several times, and judge it.

    Parameters
    ----------
    row : dict
        The kernel's row in the library's build information.
    seed : int
        The problem is the same for a seed and a kernel.
    sizes : Sizes
        How large it may be.

    Raises
    ------
    NotOfferedError
        The library does not offer the kernel for any problem that was tried.
    """
    return FAMILIES[row["family"]](row, seed, sizes)
