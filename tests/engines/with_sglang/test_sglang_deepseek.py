# SPDX-License-Identifier: MIT OR Apache-2.0
"""DeepSeek's attention as SGLang's model has it, unmodified, on our backend: products, ways, pool and all.

The judge is that of with_parallel's test_others: against float64 at most twice the error of the same layer on
SGLang's torch-native backend, which computes in the same precision, and a rounding of the result. Queries and
keys are not rotated: SGLang's wheel has no kernel for that on CPUs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from engines.with_sglang import sglang_batches as sg
from engines.with_sglang.test_sglang_backend import LENGTHS, MIXES
from sglang.srt import runtime_context
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils import BumpAllocator
from torch.nn import functional

from pyfa_rocm import emulator
from pyfa_rocm.sglang import register

WIDTH, HEADS, NOPE, ROPE, HDIM_V = 256, 4, 64, 64, 128
HDIM, RANK = NOPE + ROPE, sg.RANK
# By which kernels a step attends: prompts that begin have keys of heads.
DECODE = "fmha_decode_bf16_d576v512"
KERNELS = {"prompts": "fmha_fwd_bf16_d128", "tokens": DECODE, "chunks": DECODE}


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A layer with random weights, in a program that has published its configuration."""
    register()
    folder: Path = tmp_path_factory.mktemp("deepseek")
    config = transformers.DeepseekV3Config(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=HEADS, num_hidden_layers=1,
        q_lora_rank=None, kv_lora_rank=RANK, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=HDIM_V,
        architectures=["DeepseekV3ForCausalLM"], max_position_embeddings=sg.MOST,
    )  # fmt: skip
    config.save_pretrained(folder)
    arguments = ServerArgs(model_path=str(folder), device="cpu", attention_backend="pyfa_rocm")
    model = importlib.import_module("sglang.srt.models.deepseek_v2")
    one = SimpleNamespace(world_size=1)
    with (
        runtime_context.use_context(runtime_context.create_context(arguments, role="test")),
        runtime_context.get_parallel().override(attn_tp_size=1, attn_tp_rank=0, tp_rank=0, tp_group=one),
    ):
        torch.set_default_dtype(torch.bfloat16)
        try:
            made = model.DeepseekV2AttentionMLA(
                config, WIDTH, HEADS, NOPE, ROPE, HDIM_V, None, RANK, max_position_embeddings=sg.MOST,
                layer_id=0, reduce_results=False, skip_rope=True,
            )  # fmt: skip
        finally:
            torch.set_default_dtype(torch.float32)
        generator = torch.Generator().manual_seed(0)
        for x in made.parameters():
            x.requires_grad_(False)
            if x.ndim > 1:
                x.normal_(0, 0.05, generator=generator)
        # As SGLang's loader cuts the weights of keys and values.
        keys, values = made.kv_b_proj.weight.unflatten(0, (HEADS, -1)).split([NOPE, HDIM_V], 1)
        made.w_kc, made.w_vc = keys, values.transpose(1, 2)
        yield made


def attended(layer: Any, name: str, new: tuple[int, ...], x: torch.Tensor) -> torch.Tensor:
    """The layer's output of a step over what an earlier step stored, by SGLang's backend of this name."""
    model = sg.runner(sg.latent_pool(), latent=True)
    model.server_args = None
    backend = ATTENTION_BACKENDS[name](model)
    backend.prefill_attention_backend_str = backend.decode_attention_backend_str = name
    sg.place(model, LENGTHS)
    starts, out = np.cumsum((0, *LENGTHS)), torch.empty(0)
    before = tuple(length - n for length, n in zip(LENGTHS, new, strict=True))
    for lengths, added in ((before, before), (LENGTHS, new)):
        if not any(lengths):
            continue
        step = sg.batch(model, lengths, None if added == MIXES["tokens"] else added)
        ends = starts[:-1] + lengths
        rows = torch.cat([torch.arange(end - n, end) for end, n in zip(ends, added, strict=True)])
        places = torch.cat([torch.arange(end - n, end) for end, n in zip(lengths, added, strict=True)])
        with forward_context(ForwardContext(attn_backend=backend)):
            backend.init_forward_metadata(step)
            out = layer(places, x[rows], step, BumpAllocator(8, torch.float32, "cpu"))
    return out


def exact(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """All rows' output in float64, by the formula without the latent row."""
    weights = {name: w.double() for name, w in layer.named_parameters()}
    q = (x.double() @ weights["q_proj.weight"].T).unflatten(-1, (HEADS, HDIM))
    row, rope = (x.double() @ weights["kv_a_proj_with_mqa.weight"].T).split([RANK, ROPE], -1)
    row = functional.rms_norm(row, (RANK,), weights["kv_a_layernorm.weight"], 1e-6)
    k, v = (row @ weights["kv_b_proj.weight"].T).unflatten(-1, (HEADS, -1)).split([NOPE, HDIM_V], -1)
    k = torch.cat([k, rope[:, None].expand(-1, HEADS, -1)], -1)
    parts = []
    for one in zip(*(y.split(LENGTHS) for y in (q, k, v)), strict=True):
        heads = (y.transpose(0, 1)[None] for y in one)
        out = functional.scaled_dot_product_attention(*heads, is_causal=True, scale=HDIM**-0.5)
        parts.append(out[0].transpose(0, 1).flatten(1))
    return torch.cat(parts) @ weights["o_proj.weight"].T


@pytest.mark.parametrize("mix", MIXES)
def test_layer(layer: Any, mix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The torch-native backend reads rows only, which SGLang's models do not know.
    ways = importlib.import_module("sglang.srt.models.deepseek_common.attention_backend_handler")
    rows_only = ways.AttnForwardMethod.MLA
    monkeypatch.setitem(ways.AttentionBackendRegistry._handlers, "torch_native", lambda *_: rows_only)
    new, x = MIXES[mix], sg.random(sum(LENGTHS), WIDTH)
    with emulator.profile() as profile:
        mine = attended(layer, "pyfa_rocm", new, x)
    assert any(launch.kernel.startswith(KERNELS[mix]) for launch in profile.launches)
    theirs = attended(layer, "torch_native", new, x)
    ends = np.cumsum(LENGTHS)
    rows = torch.cat([torch.arange(end - n, end) for end, n in zip(ends, new, strict=True)])
    want = exact(layer, x)[rows]
    rounding = torch.finfo(torch.bfloat16).eps * want.abs().max()
    error, allowed = ((y.double() - want).abs().max() for y in (mine, theirs))
    assert error <= 2 * allowed + rounding
    assert allowed < 0.1 * want.abs().max()  # the judge is one
