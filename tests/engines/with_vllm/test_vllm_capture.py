# SPDX-License-Identifier: MIT OR Apache-2.0
"""Steps of both backends in graphs, as vLLM captures them: nothing is allocated or awaited, or HIP refuses.

There is no card here: tensors that claim to be on one have the software device's memory. vLLM's own
`CUDAGraphWrapper` decides when to capture and when to replay; what it asks of torch.cuda goes to HIP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from adapters import torch_card
from capture import upload
from engines.on_card import HipGraph, hip_capture, on_card, to_numpy
from engines.with_vllm.test_vllm_backend import (
    BLOCKS,
    HDIM,
    HEADS,
    KEYS,
    LAYER,
    LENGTHS,
    SIZE,
    each,
    latent,
    made,
    random,
    require,
    step,
)
from vllm.compilation import cuda_graph
from vllm.config import CUDAGraphMode, VllmConfig
from vllm.forward_context import BatchDescriptor, set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata

from pyfa_rocm.torch._serving import of_heads
from pyfa_rocm.vllm._latent import LatentDecode
from pyfa_rocm.vllm._metadata import Builder, Metadata

card = torch_card.card
# A replay finds other numbers in these, at the places of the capture.
OF_A_STEP = ("query_start_loc", "seq_lens", "block_table", "slot_mapping")
RANK, ROW = 512, 576  # elements of a latent row: its value, and all


def built(meta: Metadata) -> Metadata:
    """The step to capture, as the builder makes it of what vLLM's runner hands over."""
    common = CommonAttentionMetadata(
        query_start_loc=meta.query_start_loc, query_start_loc_cpu=torch.arange(4) * meta.max_query_len,
        seq_lens=meta.seq_lens, num_reqs=3, num_actual_tokens=meta.num_actual_tokens,
        max_query_len=meta.max_query_len, max_seq_len=meta.max_seq_len, slot_mapping=meta.slot_mapping,
        block_table_tensor=meta.block_table,
    )  # fmt: skip
    config: Any = SimpleNamespace(model_config=SimpleNamespace(max_model_len=64))
    return Builder(None, ["layers.0"], config, torch.device("cuda:0")).build_for_cudagraph_capture(common)


def captured_by_vllm(
    card: torch_card.CurrentStream, monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any], rows: int
) -> Callable[[], Any]:
    """Let vLLM warm a step up and capture it; return what replays it, and gives what was captured."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", HipGraph)
    monkeypatch.setattr(torch.cuda, "graph", hip_capture)
    for name, value in {"current_stream": lambda: card, "weak_ref_tensors": lambda x: x}.items():
        monkeypatch.setattr(cuda_graph, name, value)
    for name in ("get_global_graph_pool", "graph_pool_handle"):
        monkeypatch.setattr(type(cuda_graph.current_platform), name, lambda *_: (0, 0), raising=False)
    config, batch = VllmConfig(), BatchDescriptor(num_tokens=rows, num_reqs=3, uniform=True)
    options = cuda_graph.CUDAGraphOptions(gc_disable=True)
    wrapper = cuda_graph.CUDAGraphWrapper(run, config, CUDAGraphMode.FULL, options)

    def call(mode: CUDAGraphMode) -> Any:
        with set_forward_context(None, config, rows, cudagraph_runtime_mode=mode, batch_descriptor=batch):
            result = wrapper()
        card.stream.synchronize()
        return result

    # Another mode's step is not this wrapper's: piecewise graphs leave attention out, and it runs as it is.
    for mode in (CUDAGraphMode.NONE, CUDAGraphMode.PIECEWISE):
        call(mode)
        assert not wrapper.concrete_cudagraph_entries
    call(CUDAGraphMode.FULL)
    (entry,) = wrapper.concrete_cudagraph_entries.values()

    def replayed() -> Any:
        before = entry.cudagraph.replays
        result = call(CUDAGraphMode.FULL)
        assert entry.cudagraph.replays == before + 1
        return result

    return replayed


@pytest.mark.parametrize("new", [1, 3], ids=["tokens", "drafts"])
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_captured_step(
    card: torch_card.CurrentStream, monkeypatch: pytest.MonkeyPatch, kind: str, new: int
) -> None:
    """Captured once, it serves sequences of other lengths, with the bits of a plain step."""
    layer, plain = made(kv_cache_dtype=kind), made(kv_cache_dtype=kind)
    if kind == "fp8":
        scales = {"k_scale": LAYER._k_scale, "v_scale": LAYER._v_scale}
        layer.held_scales = {name: on_card(of_heads(x, KEYS)) for name, x in scales.items()}
    rows = 3 * new
    host = dict(zip("qkv", (random(rows, n, HDIM) for n in (HEADS, KEYS, KEYS)), strict=True))
    host["out"] = torch.zeros_like(host["q"])
    cache = random(BLOCKS, SIZE, KEYS, 2 * HDIM).to(layer.cache_dtype)
    host["cache"] = cache.view(torch.uint8) if kind == "fp8" else cache
    device = {name: on_card(x) for name, x in host.items()}
    first = step((new,) * 3)
    there = {name: on_card(getattr(first, name)) for name in OF_A_STEP}
    captured = built(replace(first, **there))

    def run(layer: Any, x: dict[str, Any], meta: Metadata) -> None:
        held = x["cache"].transpose(1, 2)
        layer.do_kv_cache_update(LAYER, x["k"], x["v"], held, meta.slot_mapping)
        layer.forward(LAYER, x["q"], x["k"], x["v"], held, meta, x["out"])

    replayed = captured_by_vllm(card, monkeypatch, lambda: run(layer, device, captured), rows)
    for lengths in (LENGTHS, (new, 64, 17), (64, 31, 32)):
        now = step((new,) * 3, lengths)
        for name in OF_A_STEP:
            upload(there[name].array, to_numpy(getattr(now, name)))
        replayed()
        run(plain, host, replace(now, max_seq_len=captured.max_seq_len))
        for name in ("cache", "out"):
            np.testing.assert_array_equal(device[name].array.to_numpy(), to_numpy(host[name]))
        keys, values = (x.flatten(0, 1) for x in plain.caches(host["cache"].transpose(1, 2)))
        for at, places in each(now) if kind == "auto" else ():
            require(host["q"][at], keys[places], values[places], host["out"][at], causal=True)


@pytest.mark.parametrize("new", [1, 3], ids=["tokens", "drafts"])
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_captured_step_of_latent_attention(
    card: torch_card.CurrentStream, monkeypatch: pytest.MonkeyPatch, kind: str, new: int
) -> None:
    """The same, with one row of the cache for keys and values, and an output that the step allocates."""
    layer, plain, scale = latent(kv_cache_dtype=kind), latent(kv_cache_dtype=kind), torch.tensor(0.5)
    if kind == "fp8":
        layer.held_scale = on_card(of_heads(scale, 1))
    rows = 3 * new
    host = {"q": random(rows, HEADS, ROW), "c": random(rows, RANK), "rope": random(rows, 1, ROW - RANK)}
    cache = random(BLOCKS, SIZE, ROW).to(layer.cache_dtype)
    host["cache"] = cache.view(torch.uint8) if kind == "fp8" else cache
    device = {name: on_card(x) for name, x in host.items()}
    first = step((new,) * 3)
    there = {name: on_card(getattr(first, name)) for name in OF_A_STEP}

    def run(layer: Any, x: dict[str, Any], at: dict[str, Any]) -> Any:
        layer.do_kv_cache_update(x["c"], x["rope"], x["cache"], at["slot_mapping"], kind, scale)
        decode = LatentDecode(at["block_table"], at["seq_lens"], None, at["query_start_loc"], new, 64)
        meta: Any = SimpleNamespace(decode=decode, causal=True)
        return layer.forward_mqa(x["q"], x["cache"], meta, SimpleNamespace(_k_scale=scale))[0]

    replayed = captured_by_vllm(card, monkeypatch, lambda: run(layer, device, there), rows)
    for lengths in (LENGTHS, (new, 64, 17), (64, 31, 32)):
        now = step((new,) * 3, lengths)
        for name in OF_A_STEP:
            upload(there[name].array, to_numpy(getattr(now, name)))
        got = replayed()
        want = run(plain, host, {name: getattr(now, name) for name in OF_A_STEP})
        np.testing.assert_array_equal(got.array.to_numpy(), to_numpy(want))
        np.testing.assert_array_equal(device["cache"].array.to_numpy(), to_numpy(host["cache"]))
        held = plain.rows(host["cache"]).flatten(0, 1)
        for at, places in each(now) if kind == "auto" else ():
            keys = held[places]
            require(host["q"][at], keys, keys[..., :RANK], want[at], causal=True, softmax_scale=192**-0.5)
