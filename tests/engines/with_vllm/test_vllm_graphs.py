# SPDX-License-Identifier: MIT OR Apache-2.0
"""vLLM's full and piecewise graphs, in its own runner: the tokens stay those of steps without graphs."""

from __future__ import annotations

from typing import Any

import pytest
from engines.with_vllm.test_vllm_steps import same
from engines.with_vllm.vllm_jobs import CAPTURED, LENGTHS, SIZES

LAYERS = 2  # of each model
SEQUENCES = 8  # the most in a step, and in a full graph


@pytest.mark.parametrize("name", CAPTURED)
def test_tokens(name: str, ours: dict[str, Any]) -> None:
    """Up to ties: a captured step splits keys as for the longest sequences, and pads the batch."""
    model, _ = CAPTURED[name]
    same(ours[name], ours[model], [(i, i) for i in range(len(LENGTHS))])


@pytest.mark.parametrize("name", CAPTURED)
def test_both_kinds_ran(name: str, ours: dict[str, Any]) -> None:
    """Pieces are what lies between layers' attention; a full graph has all of the model."""
    counts = ours[name]["graphs"]
    assert counts["PIECEWISE captured"] == (LAYERS + 1) * len(SIZES)
    assert counts["FULL captured"] == sum(size <= SEQUENCES for size in SIZES)
    assert counts["PIECEWISE replayed"] >= LAYERS + 1
    assert counts["FULL replayed"] >= 2
