# SPDX-License-Identifier: MIT OR Apache-2.0
"""vLLM's tensor and pipeline parallelism: two workers, each a process with a software device of its own."""

from __future__ import annotations

from typing import Any

import pytest
from engines.with_vllm.test_vllm_steps import same
from engines.with_vllm.vllm_jobs import OF_PARALLEL, PARALLEL, TENSOR

# Kernels of each worker. With half of both kinds of heads, a head of keys serves as many queries as before.
KERNELS = {
    "llama": {"fmha_decode_bf16_d64", "fmha_fwd_bf16_d64_group_mask_pad_pingpong"},
    "gpt_oss": {"fmha_decode_bf16_d64", "fmha_decode_bf16_d64_m64"},
}
LAYERS = 2  # of each model, with 4 heads of queries, and 2 of keys


@pytest.mark.parametrize("name", PARALLEL)
def test_answers(name: str, ours: dict[str, Any]) -> None:
    """Those of one process up to ties: what two workers add is rounded to bfloat16 before."""
    model, _ = PARALLEL[name]
    assert "error" not in ours[model], ours[model]["error"]
    alone = {"results": ours[model]["results"][OF_PARALLEL]}
    same(ours[name], alone, [(i, i) for i in range(len(alone["results"]))])


@pytest.mark.parametrize("name", PARALLEL)
def test_shares(name: str, ours: dict[str, Any]) -> None:
    """A layer has the worker's heads, or a worker the stage's layers, and each launches our kernels."""
    model, options = PARALLEL[name]
    ranks = ours[name]["ranks"]
    assert len({rank["pid"] for rank in ranks}) == 2
    heads, layers = ([2, 1], LAYERS) if options is TENSOR else ([4, 2], LAYERS // 2)
    for rank in ranks:
        assert list(rank["heads"].values()) == [heads] * layers
        assert KERNELS[model] <= set(rank["kernels"]), rank["kernels"]
    names = [set(rank["heads"]) for rank in ranks]
    assert names[0] == names[1] if options is TENSOR else not names[0] & names[1]
    (alone,) = ours[model]["ranks"]
    assert list(alone["heads"].values()) == [[4, 2]] * LAYERS
