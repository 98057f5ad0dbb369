# SPDX-License-Identifier: MIT OR Apache-2.0
"""vLLM's scheduler cuts, joins and repeats sequences; the tokens stay those of a plain run."""

from __future__ import annotations

from typing import Any

import pytest
from engines.with_vllm.vllm_jobs import LAYOUTS, TOKENS

# See test_vllm_models: of two runs whose sums are ordered differently.
NOISE = 0.1


def same(report: dict[str, Any], other: dict[str, Any], pairs: list[tuple[int, int]]) -> None:
    """Raise unless answers are the same up to ties."""
    for report_ in (report, other):
        assert "error" not in report_, report_["error"]
    for i, j in pairs:
        a, b = report["results"][i], other["results"][j]
        for place, (x, y) in enumerate(zip(a["tokens"], b["tokens"], strict=True)):
            if x != y:
                assert b["best"][place][0][1] - b["best"][place][1][1] < NOISE, "no tie"
                break
            assert a["best"][place][0][1] == pytest.approx(b["best"][place][0][1], abs=NOISE)


def test_layouts(ours: dict[str, Any]) -> None:
    """vLLM lays its cache out as it is told, and the numbers are the same bit for bit."""
    reports = {name: ours[f"layout {name}"] for name in LAYOUTS}
    first = reports[LAYOUTS[0]]
    assert len({str(report["ranks"][0]["strides"]) for report in reports.values()}) >= len(LAYOUTS) - 1
    for report in reports.values():
        assert report["results"] == first["results"]


def test_prefixes(ours: dict[str, Any]) -> None:
    """A prompt whose beginning is in the cache; then one that is there twice in a step."""
    report = ours["prefixes"]
    first, longer, again, one, other = report["results"]
    assert (first["cached"], longer["cached"], again["cached"]) == (0, 32, 32)
    assert len(longer["tokens"]) == TOKENS
    same(report, report, [(2, 0), (4, 3)])
    assert one["cached"] == 0
    assert other["cached"] in (0, 32)


def test_preemption(ours: dict[str, Any]) -> None:
    """With too few blocks for all sequences some are thrown out, and computed again."""
    assert ours["squeezed"]["counters"]["vllm:num_preemptions"] > 0
    assert ours["roomy"]["counters"]["vllm:num_preemptions"] == 0
    same(ours["squeezed"], ours["roomy"], [(i, i) for i in range(6)])


def test_drafts(ours: dict[str, Any]) -> None:
    """Tokens that vLLM guesses, and verifies several at a time."""
    assert ours["drafts"]["counters"]["vllm:spec_decode_num_accepted_tokens"] > 0
    same(ours["drafts"], ours["no drafts"], [(0, 0), (1, 1)])


def test_refusal(ours: dict[str, Any]) -> None:
    """It says which layer, and what would do."""
    error = ours["refused"]["error"]
    assert "UnsupportedError: a layer of " in error
    assert "decoder attention with 4 heads of 64, of 2 keys, and a cache of fp8_e5m2" in error
    assert "kv_cache_dtype: got 'fp8_e5m2', expected one of auto, bfloat16, fp8, fp8_e4m3" in error
    assert "PYFA_ROCM_VLLM_CPU" in error
