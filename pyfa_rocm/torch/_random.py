# SPDX-License-Identifier: MIT OR Apache-2.0
"""The random state of dropout: given by the caller, or drawn from torch's generator."""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["NO_STATE", "State", "philox_state"]

# A tensor of two, or None; and the two numbers if it is None, as signed integers of 64 bits.
State = tuple["torch.Tensor | None", int, int]
NO_STATE: State = (None, 0, 0)
_MOST_INT64, _SIZE_UINT64 = 2**63 - 1, 2**64


def philox_state(philox: Any, dropout_p: float, device: torch.device) -> State:
    """Return the random state of a call that drops.

    Without one given, seed and offset are drawn on the device by its default generator, so that
    ``torch.manual_seed`` decides them, a captured graph draws new ones whenever it is replayed, and the host
    waits for nothing.
    """
    if not dropout_p:
        return NO_STATE
    if philox is None:
        return torch.randint(_MOST_INT64, (2,), dtype=torch.int64, device=device), 0, 0
    if isinstance(philox, torch.Tensor):
        return philox, 0, 0
    if not isinstance(philox, (tuple, list)) or len(philox) != 2:
        raise InvalidArgumentError(
            f"philox: got {philox!r}, expected (seed, offset), a tensor of these two, or None"
        )
    seed, offset = philox
    return None, _signed(seed), _signed(offset)


def _signed(number: int) -> int:
    """Return an unsigned number of 64 bits as the signed one of the same bits, which torch can pass on."""
    if not 0 <= number < _SIZE_UINT64:
        raise InvalidArgumentError(f"philox: got {number}, expected two integers from 0 to 2**64 - 1")
    return number if number <= _MOST_INT64 else number - _SIZE_UINT64
