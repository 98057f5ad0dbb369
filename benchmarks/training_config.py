# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sizes of the transformer that training_step.py trains, and training_clock.py models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """The model that is trained, and for how long.

    Attributes
    ----------
    batch, seqlen, d_model, heads, layers, vocab : int
        Sizes.
    dtype : str
        "bfloat16" or "float16", of autocast, or "float32".
    warmup, steps : int
        Steps before the timed ones, and timed steps.
    learning_rate : float
        AdamW's rate.
    seed : int
        Seed of parameters and tokens.
    """

    batch: int
    seqlen: int
    d_model: int
    heads: int
    layers: int
    vocab: int
    dtype: str
    warmup: int
    steps: int
    learning_rate: float = 1e-3
    seed: int = 0


PRESETS = {
    "mi300x": Config(4, 4096, 1024, 16, 8, 32000, "bfloat16", 20, 80),
    "default": Config(4, 2048, 1024, 16, 6, 32000, "bfloat16", 10, 40),
    "tiny": Config(2, 128, 128, 2, 2, 64, "bfloat16", 2, 8),
}
