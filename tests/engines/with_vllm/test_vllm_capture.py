# SPDX-License-Identifier: MIT OR Apache-2.0
"""A step of the backend in a graph, as vLLM captures it: nothing is allocated or waited for, or HIP refuses.

There is no card here: tensors that claim to be on one have the software device's memory.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from adapters import torch_card
from capture import Graph, upload
from engines.with_vllm.test_vllm_backend import (
    BLOCKS,
    HDIM,
    HEADS,
    KEYS,
    LAYER,
    LENGTHS,
    SIZE,
    each,
    made,
    random,
    require,
    step,
)
from ml_dtypes import bfloat16
from vllm.v1.attention.backend import CommonAttentionMetadata

from pyfa_rocm import DeviceArray
from pyfa_rocm.vllm._impl import of_heads
from pyfa_rocm.vllm._metadata import Builder, Metadata

card = torch_card.card
# A replay finds other numbers in these, at the places of the capture.
OF_A_STEP = ("query_start_loc", "seq_lens", "block_table", "slot_mapping")
VIEWS = ("__getitem__", "expand", "split", "transpose", "view")


class OnCard(torch.Tensor):
    """A tensor "on cuda:0" on an array of the device, and its views; torch computes nothing with it."""

    array: DeviceArray
    like: torch.Tensor

    @staticmethod
    def __new__(cls, array: DeviceArray, like: torch.Tensor) -> OnCard:
        tensor: OnCard = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), storage_offset=like.storage_offset(), dtype=like.dtype,
            device="cuda:0",
        )  # fmt: skip
        tensor.array, tensor.like = array, like
        return tensor

    def data_ptr(self) -> int:
        return int(self.array.data + self.like.storage_offset() * self.like.element_size())

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make views without a device's driver, which torch for CPUs does not have."""
        if func.__name__ not in VIEWS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        array, found = args[0].array, func(args[0].like, *args[1:], **(kwargs or {}))
        return cls(array, found) if isinstance(found, torch.Tensor) else [cls(array, x) for x in found]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call those of our operators that are registered for "CUDA"."""
        assert func.namespace == "pyfa_rocm", func
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
        return func.redispatch(keys, *args, **(kwargs or {}))


def to_numpy(x: torch.Tensor) -> Any:
    return x.view(torch.int16).numpy().view(bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def on_card(x: torch.Tensor) -> OnCard:
    return OnCard(DeviceArray.from_numpy(to_numpy(x)), x.to("meta"))


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


@pytest.mark.parametrize("new", [1, 3], ids=["tokens", "drafts"])
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_captured_step(card: torch_card.CurrentStream, kind: str, new: int) -> None:
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

    with Graph(lambda _: run(layer, device, captured), card.stream) as graph:
        for lengths in (LENGTHS, (new, 64, 17), (64, 31, 32)):
            now = step((new,) * 3, lengths)
            for name in OF_A_STEP:
                upload(there[name].array, to_numpy(getattr(now, name)))
            graph.replay()
            run(plain, host, replace(now, max_seq_len=captured.max_seq_len))
            for name in ("cache", "out"):
                np.testing.assert_array_equal(device[name].array.to_numpy(), to_numpy(host[name]))
            keys, values = (x.flatten(0, 1) for x in plain.caches(host["cache"].transpose(1, 2)))
            for at, places in each(now) if kind == "auto" else ():
                require(host["q"][at], keys[places], values[places], host["out"][at], causal=True)
