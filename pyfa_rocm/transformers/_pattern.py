# SPDX-License-Identifier: MIT OR Apache-2.0
"""The keys that a query sees, beside padding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["UNLIMITED", "Pattern"]

UNLIMITED = (-1, -1)


@dataclass(frozen=True)
class Pattern:
    """The keys that a query sees, of those that are no padding and of its own sequence.

    Attributes
    ----------
    causal : bool
        It sees none after its own position.
    window_size : (int, int)
        How many before it and after; -1: all.
    sequences : torch.Tensor or None, int64 (batch, seqlen)
        The packed sequence that a token belongs to; equal ones are neighbours. None: there is one.
    padded : bool
        In a graph, tells whether a mask in this pattern may have tokens that are none.
    """

    causal: bool
    window_size: tuple[int, int] = UNLIMITED
    sequences: torch.Tensor | None = None
    padded: bool = True

    @property
    def counts_places(self) -> bool:
        """Tell whether it matters where a query is."""
        return self.causal or self.window_size != UNLIMITED
