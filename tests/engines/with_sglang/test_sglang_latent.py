# SPDX-License-Identifier: MIT OR Apache-2.0
"""SGLang's latent attention with our backend, over its own MLATokenToKVPool, against float64.

SGLang's torch-native backend does each step too, over a pool of its own. It stores the same bits, and the
same bounds judge its output if the pool has no scale, of which it knows nothing.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from built import this_arch
from cases_judge import judge
from engines import recorded
from engines.with_sglang import sglang_batches as sg
from engines.with_sglang.sglang_batches import RANK, ROW, attend, batch, latent_layer, place, random, runner
from engines.with_sglang.test_sglang_backend import LENGTHS, MIXES, host
from reference import attention, numerics_of
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_parallel

from pyfa_rocm import emulator
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.sglang import register


@pytest.fixture(autouse=True)
def _registered() -> None:
    register()


def made(held: Any) -> tuple[Any, Any]:
    """A runner of a latent model, and the backend that SGLang's register makes for it."""
    model = runner(held, latent=True)
    return model, ATTENTION_BACKENDS["pyfa_rocm"](model)


def step_of(model: Any, new: Sequence[int]) -> Any:
    decodes = tuple(new) == MIXES["tokens"]
    mode = ForwardMode.MIXED if tuple(new) == MIXES["chunks"] else None
    return batch(model, LENGTHS, None if decodes else new, mode)


def serve(held: Any, new: Sequence[int], heads: int, scale: float = 1.0) -> float:
    """Do a step over a pool that has the tokens before it; return the largest error."""
    model, backend = made(held)
    their_model = runner(sg.latent_pool(held.page_size, held.dtype), latent=True)
    theirs = TorchNativeAttnBackend(their_model)
    attended = latent_layer(heads)
    if held.dtype.itemsize == 1:
        attended.k_scale = torch.tensor(scale)
    place(model, LENGTHS)
    place(their_model, LENGTHS)
    rows = random(sum(LENGTHS), 1, ROW)
    starts, places = np.cumsum((0, *LENGTHS)), np.cumsum((0, *new))
    table = model.req_to_token_pool.req_to_token
    for i, length in enumerate(LENGTHS):  # what earlier steps stored
        before = rows[starts[i] : starts[i] + length - new[i]] / scale
        for pool in (held, their_model.token_to_kv_pool):
            pool.get_key_buffer(0)[table[i + 1, : len(before)].long()] = before.to(pool.dtype)
    now = torch.cat([torch.arange(starts[i + 1] - n, starts[i + 1]) for i, n in enumerate(new)])
    k, q = rows[now], random(len(now), heads, ROW)
    step = step_of(model, new)
    backend.init_forward_metadata(step)
    out = attend(backend, attended, q, k, k[..., :RANK], step).view(-1, heads, RANK)
    with get_parallel().override(dcp_enabled=False):
        theirs.init_forward_metadata(step)
        # SGLang's pool takes no scale: its backends for cards divide before.
        other = attend(theirs, attended, q, k / scale, (k / scale)[..., :RANK], step).view(-1, heads, RANK)
    stored = held.get_key_buffer(0)
    assert torch.equal(
        stored.view(torch.uint8), their_model.token_to_kv_pool.get_key_buffer(0).view(torch.uint8)
    )
    worst = 0.0
    for i, length in enumerate(LENGTHS):
        found = (stored[table[i + 1, :length].long()].float() * scale).bfloat16()
        part = slice(places[i], places[i + 1])
        numerics = numerics_of("bfloat16", None, 128, this_arch())
        arguments = [host(x) for x in (q[part], found, found[..., :RANK])]
        want = attention(*arguments, numerics=numerics, softmax_scale=attended.scaling, causal=True)
        judge(want, host(out[part]), None)
        worst = max(worst, float(np.abs(host(out[part]).astype(float) - want.o).max()))
        if scale == 1.0:
            judge(want, host(other[part]), None)
    return worst


@pytest.mark.parametrize("heads", [16, 128])
@pytest.mark.parametrize("mix", MIXES)
def test_steps(mix: str, heads: int) -> None:
    """Single tokens, chunks mixed with a token, and prompts; the page has what was measured."""
    with emulator.profile() as profile:
        worst = serve(sg.latent_pool(), MIXES[mix], heads)
    ran = sorted({x.kernel.partition(".")[0] for x in profile.launches if "kv_append" not in x.kernel})
    name = f"{metadata.version('sglang')}: latent, {heads} heads, {mix}"
    recorded.row("sglang.md", name, f"{worst:.1e}", ", ".join(f"`{x}`" for x in ran))


@pytest.mark.parametrize("page_size", [1, 64])
def test_pages(page_size: int) -> None:
    serve(sg.latent_pool(page_size), MIXES["chunks"], 16)


@pytest.mark.parametrize("mix", ["tokens", "chunks"])
def test_pools_of_8_bits(mix: str) -> None:
    """The backend divides by the layer's scale, as SGLang's do, and multiplies by it."""
    serve(sg.latent_pool(16, torch.float8_e4m3fnuz), MIXES[mix], 16, 0.5)


def test_prompts_with_keys_of_heads() -> None:
    """SGLang stores the rows of a prompt that begins itself, and the layer attends to keys of heads."""
    model, backend = made(sg.latent_pool())
    place(model, LENGTHS)
    step = batch(model, LENGTHS, LENGTHS)
    backend.init_forward_metadata(step)
    attended = RadixAttention(4, 64, 64**-0.5, num_kv_heads=4, layer_id=0)  # the kernel set `ci` has these
    q, k, v = random(3, sum(LENGTHS), 4, 64).unbind(0)
    out = attend(backend, attended, q, k, v, step, save_kv_cache=False).view(q.shape)
    assert not model.token_to_kv_pool.get_key_buffer(0).any()
    starts = np.cumsum((0, *LENGTHS))
    for begin, end in itertools.pairwise(starts):
        arguments = [host(x[begin:end]) for x in (q, k, v)]
        numerics = numerics_of("bfloat16", None, 128, this_arch())
        judge(attention(*arguments, numerics=numerics, causal=True), host(out[begin:end]), None)
    later = batch(model, LENGTHS, MIXES["chunks"])
    backend.init_forward_metadata(later)
    n = sum(MIXES["chunks"])
    with pytest.raises(UnsupportedError, match="got keys of heads, which only prompts that begin have here"):
        attend(backend, attended, q[:n], k[:n], v[:n], later, save_kv_cache=False)


def test_the_way_of_a_step() -> None:
    """Prompts that begin take a forward kernel if there is one; all other steps read the rows."""
    model, backend = made(sg.latent_pool())
    place(model, LENGTHS)
    sizes = {"qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 64}
    layer, long = SimpleNamespace(**sizes), SimpleNamespace(**sizes | {"qk_nope_head_dim": 600})
    prompts, chunks = (batch(model, LENGTHS, MIXES[x]) for x in ("prompts", "chunks"))
    assert backend.attends_to_heads(layer, prompts)
    assert not backend.attends_to_heads(long, prompts)
    assert not backend.attends_to_heads(layer, chunks)
    assert not backend.attends_to_heads(layer, batch(model, LENGTHS))
    handlers = importlib.import_module("sglang.srt.models.deepseek_common.attention_backend_handler")
    way = handlers.AttentionBackendRegistry.get_handler("pyfa_rocm")
    assert [way(layer, x).name for x in (prompts, chunks)] == ["MHA", "MLA"]
    _, narrow = made(sg.latent_pool(16, torch.float8_e4m3fnuz))
    for scale, expected in ((None, True), (torch.tensor(0.5), False)):
        layer.attn_mqa = SimpleNamespace(k_scale=scale)  # SGLang stores rows undivided
        assert narrow.attends_to_heads(layer, prompts) == expected


@pytest.mark.parametrize("option", ["dcp_size", "attn_cp_size"])
@pytest.mark.parametrize("latent", [False, True], ids=["pool", "latent"])
def test_ranks_that_share_sequences_are_refused(latent: bool, option: str) -> None:
    """The pool of such a rank has a part of each sequence's tokens, or a step has."""
    model = runner(sg.latent_pool() if latent else sg.pool(), latent)
    said = f"got --{option.replace('_', '-')} 2, expected 1"
    with get_parallel().override(**{option: 2}), pytest.raises(UnsupportedError, match=said):
        ATTENTION_BACKENDS["pyfa_rocm"](model)


def test_pools_that_it_refuses() -> None:
    with pytest.raises(UnsupportedError, match="over a MHATokenToKVPool: expected an MLATokenToKVPool"):
        made(sg.pool())
    held = sg.latent_pool()
    held.use_dsa = True
    with pytest.raises(UnsupportedError, match="without sparse attention"):
        made(held)
    held = sg.latent_pool()
    held.kv_cache_dim = 640
    with pytest.raises(UnsupportedError, match="rows of 640, values of 512 and a pool of"):
        made(held)
