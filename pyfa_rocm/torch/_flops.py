# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operations that `torch.utils.flop_counter.FlopCounterMode` counts, as for torch's own attention.

Masks count for nothing: each query is taken to see every key of its sequence.
"""

from __future__ import annotations

from typing import Any

from torch._subclasses import FakeTensor
from torch.utils.flop_counter import register_flop_formula

from pyfa_rocm._call.numbers import operations

__all__ = ["register"]


def register(packet: Any) -> None:
    """Make the count of an operator known to torch."""
    names = [x.name for x in packet.default._schema.arguments]
    backward = "dout" in names

    def count(*values: Any, out_val: Any = None, **named: Any) -> int:
        arguments = dict(zip(names, values, strict=False)) | named
        q, k, v = (arguments[name].shape for name in "qkv")
        if "cu_seqlens_q" in arguments:
            lengths = zip(_lengths(arguments, "q"), _lengths(arguments, "k"), strict=True)
            scores = sum(of_q * of_k for of_q, of_k in lengths)
        else:
            scores = q[0] * q[1] * k[1]
        return int(operations(scores, q[-2], q[-1], v[-1], backward=backward))

    register_flop_formula(packet, get_raw=True)(count)


def _lengths(arguments: dict[str, Any], side: str) -> list[int]:
    """Return the lengths of packed sequences; their bound for each, if they cannot be looked at."""
    starts, used = arguments[f"cu_seqlens_{side}"], arguments.get(f"seqused_{side}")
    if starts.is_meta or isinstance(starts, FakeTensor):
        return [arguments[f"max_seqlen_{side}"]] * (starts.shape[0] - 1)
    lengths: list[int] = (starts.diff() if used is None else used).tolist()
    return lengths
