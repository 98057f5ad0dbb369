# SPDX-License-Identifier: MIT OR Apache-2.0
"""A merge of partial outputs as JAX traces it, and the attributes of the custom call that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyfa_rocm._call.merge import LseParts, MergeParams, Parts, merge_to_c
from pyfa_rocm._call.params import Lse, Strided
from pyfa_rocm.jax._cached import Fields, repeats
from pyfa_rocm.jax._library import MERGE
from pyfa_rocm.jax._traced import Axes, CustomCall, Result, Shape, buffers_of, repeat_attributes, words

__all__ = ["TracedMerge"]


class TracedMerge(NamedTuple):
    """An unmapped merge, hashable.

    Attributes
    ----------
    names : tuple of str
        "outs" and "lses"; "o" and "lse", whose memory becomes that of the results, if they hold a part.
    fields : tuple of (str, value)
        The numbers among the fields of MergeParams.
    results : tuple of Result
        "o" and "lse".
    """

    names: tuple[str, ...]
    fields: Fields
    results: tuple[Result, ...]

    @property
    def target(self) -> str:
        """Name of the custom call."""
        return MERGE

    @property
    def packed(self) -> bool:
        """False: every row of the results is written."""
        return False

    def custom_call(
        self, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
    ) -> CustomCall:
        """Return what the custom call is told, as `pyfa_rocm.jax._traced.custom_call`."""
        buffers, itemsizes = buffers_of(self.names, self.results, sizes, axes, operands)
        # If an operand and a result share a name, the result comes later.
        at = {buffer.name: (number, *buffer.strides[:-1]) for number, buffer in enumerate(buffers, 1)}
        # Packed sequences are one batch: its stride is 0.
        batch = (0,) if len(at["o"]) == 3 else ()
        params = MergeParams(
            **dict(self.fields),
            o=Strided(at["o"][0], *batch, *at["o"][1:]),
            lse=Lse(at["lse"][0], *batch, *at["lse"][1:]),
            o_parts=Parts(*at["outs"][:2], *batch, *at["outs"][2:]),
            lse_parts=LseParts(*at["lses"][:2], *batch, *at["lses"][2:]),
        )
        structs = {"merge_params": words(merge_to_c(params))}
        return CustomCall(structs | repeat_attributes(repeats(sizes, buffers), itemsizes, 0), 0)
