# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of packed sequences, which may have rows of no sequence: the kernels leave those as they are.

Such rows are 0 in O and in gradients, and -inf in the log-sum-exp. Otherwise they would hold what the memory
held before, and a NaN there would spread to all that a program makes of the whole array.
"""

from __future__ import annotations

import math
from typing import Any

from pyfa_rocm._runtime.tensor import Layout
from pyfa_rocm.array import DeviceArray

__all__ = ["packed_results"]


def packed_results(o: Layout, lse: Layout | None, to: Any, handle: int) -> tuple[Any, DeviceArray | None]:
    """Return O, allocated unless it is given as `to`, and the log-sum-exp if it is wanted.

    The device must be current. A given O keeps its rows of no sequence.
    """
    if to is None:
        to = DeviceArray.filled(o, handle, 0.0)
    return to, None if lse is None else DeviceArray.filled(lse, handle, -math.inf)
