# SPDX-License-Identifier: MIT OR Apache-2.0
"""`generate` through key-value caches: each kind of them, padding, beams, several tokens a step, compiled.

`transformers_cases` says what judges the logits. Tokens are those of the float64 model, which no two logits
of these models are too close for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from adapters.with_transformers.transformers_cases import WINDOW, Checked, Models, ids, padding, register

import pyfa_rocm.transformers
from pyfa_rocm.transformers import _attention, _decode

STEPS = 6
# The kernel set `ci` has softcap for packed sequences only in bfloat16.
KINDS = [
    ("LlamaForCausalLM", torch.float16),
    ("Gemma2ForCausalLM", torch.bfloat16),
    ("Gemma3ForCausalLM", torch.float16),
    ("GptOssForCausalLM", torch.bfloat16),
]


@pytest.fixture
def checked() -> Iterator[Checked]:
    check = register()
    yield check
    assert check.calls


class Reads:
    """The calls that read a cache in place.

    Attributes
    ----------
    queries : list of int
        Queries of a sequence, call by call.
    storages : list of int
        Addresses of the memory that the keys are in.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queries: list[int] = []
        self.storages: list[int] = []
        plain = _decode.decode

        def decode(q: torch.Tensor, k: torch.Tensor, *rest: Any) -> torch.Tensor:
            self.queries.append(q.shape[1])
            self.storages.append(k.untyped_storage().data_ptr())
            return plain(q, k, *rest)

        monkeypatch.setattr(_attention, "decode", decode)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture(scope="module")
def llama() -> Models:
    """Not judged call by call: logits are."""
    register()
    return Models("LlamaForCausalLM", torch.float16, "pyfa_rocm")


def greedily(models: Models, prompt: torch.Tensor, mask: torch.Tensor, **options: Any) -> torch.Tensor:
    """Generate, judge the logits and the tokens, and return these."""
    batch, length = prompt.shape
    result = models.ours.generate(
        prompt,
        attention_mask=mask,
        max_new_tokens=STEPS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **{"disable_compile": True} | options,
    )
    whole = torch.cat((mask, torch.ones(batch, STEPS, dtype=torch.long)), 1)
    after = torch.zeros_like(whole, dtype=torch.bool)
    after[:, length - 1 : -1] = True
    inputs = {
        "input_ids": result.sequences,
        "attention_mask": whole,
        "position_ids": (whole.cumsum(1) - 1).clamp(min=0),
        "use_cache": False,
    }
    models.compare(torch.stack(result.logits, 1).flatten(0, 1), after, **inputs)
    with torch.no_grad():
        want = models.exact(**inputs).logits[after].argmax(-1)
    assert torch.equal(result.sequences[:, length:].flatten(), want)
    return result.sequences


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("kind", "dtype"), KINDS, ids=str)
def test_greedy(checked: Checked, reads: Reads, kind: str, dtype: torch.dtype, cache: str) -> None:
    """A prompt padded at the left, then token after token from the cache, past the window.

    So much padding that each window has some: without it there would be no kernel with softcap in `ci`.
    """
    mask = padding((20, 6), 20, "left")
    greedily(Models(kind, dtype), ids(2, 20) * mask, mask, cache_implementation=cache)
    assert checked.calls == 2 * STEPS
    assert reads.queries == [1] * 2 * (STEPS - 1)


def test_past_the_window(checked: Checked, reads: Reads) -> None:
    """A cache of fixed size that begins to turn around while it is read."""
    steps = torch.ones(2, WINDOW - 3, dtype=torch.long)
    greedily(
        Models("Gemma3ForCausalLM", torch.float16), ids(2, WINDOW - 3), steps, cache_implementation="static"
    )
    assert reads.queries == [1] * 2 * (STEPS - 1)


def test_chunks_of_a_prompt(checked: Checked, reads: Reads) -> None:
    """Several queries meet a cache; many go by the forward kernels."""
    models, prompt = Models("LlamaForCausalLM", torch.bfloat16), ids(1, 50)
    cache = transformers.DynamicCache(config=models.ours.config)
    with torch.no_grad():
        parts = [models.ours(x, past_key_values=cache).logits for x in prompt.split((15, 10, 20, 1, 4), 1)]
    tokens = torch.ones(1, 50, dtype=torch.bool)
    models.compare(torch.cat(parts, 1)[tokens], tokens, input_ids=prompt, use_cache=False)
    assert reads.queries == [10] * 2 + [1] * 2 + [4] * 2


@pytest.mark.parametrize("padded", [False, True])
def test_static_cache_is_read_where_it_lies(llama: Models, reads: Reads, padded: bool) -> None:
    """And only its tokens are: all others are NaN, those that padding left behind too."""
    cache = transformers.StaticCache(config=llama.ours.config, max_cache_len=64)
    cache.early_initialization(2, 2, 64, torch.float16, torch.device("cpu"))
    for layer in cache.layers:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)
    mask = padding((20, 6), 20, "left") if padded else torch.ones(2, 20, dtype=torch.long)
    greedily(llama, ids(2, 20) * mask, mask, past_key_values=cache)
    held = [layer.keys.untyped_storage().data_ptr() for layer in cache.layers]
    assert reads.storages == held * (STEPS - 1)


@pytest.mark.parametrize("gradients", [False, True])
def test_static_cache_in_chunks(llama: Models, reads: Reads, gradients: bool) -> None:
    """Several queries, that end where the part in use does; with gradients that is copied."""
    prompt, cache = ids(2, 40), transformers.StaticCache(config=llama.ours.config, max_cache_len=64)
    with torch.set_grad_enabled(gradients):
        parts = [llama.ours(x, past_key_values=cache).logits for x in prompt.split((15, 18, 1, 6), 1)]
    tokens = torch.ones(2, 40, dtype=torch.bool)
    llama.compare(torch.cat(parts, 1).detach()[tokens], tokens, input_ids=prompt, use_cache=False)
    assert reads.queries == ([] if gradients else [18] * 2 + [1] * 2 + [6] * 2)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_beams(llama: Models, reads: Reads, cache: str) -> None:
    """transformers puts the cache in another order after each step."""
    mask = padding((15, 7), 15, "left")
    options = {"attention_mask": mask, "num_beams": 3, "max_new_tokens": STEPS, "do_sample": False}
    prompt = ids(2, 15) * mask
    got = llama.ours.generate(prompt, cache_implementation=cache, disable_compile=True, **options)
    assert torch.equal(got, llama.exact.generate(prompt, **options))
    assert reads.queries == [1] * 2 * (STEPS - 1)


def test_assisted(llama: Models, reads: Reads) -> None:
    """Another model guesses several tokens, which are looked at together, and some dropped again."""
    assistant = Models("LlamaForCausalLM", torch.float16, "pyfa_rocm").ours
    with torch.no_grad():
        assistant.model.layers[1].mlp.down_proj.weight *= 0.7
    options = {"max_new_tokens": 12, "do_sample": False}
    got = llama.ours.generate(ids(1, 15), assistant_model=assistant, **options)
    assert torch.equal(got, llama.exact.generate(ids(1, 15), **options))
    assert max(reads.queries) > 1


@pytest.mark.parametrize("padded", [False, True])
def test_compiled(llama: Models, padded: bool) -> None:
    """The step of a static cache is one graph: transformers compiles it by itself on a card."""
    mask = padding((20, 6), 20, "left") if padded else torch.ones(2, 20, dtype=torch.long)
    settings = transformers.CompileConfig(backend="aot_eager", mode=None, fullgraph=True)
    settings._compile_all_devices = True
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    options = {"cache_implementation": "static", "compile_config": settings, "disable_compile": False}
    greedily(llama, ids(2, 20) * mask, mask, **options)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_padding_in_between(llama: Models, reads: Reads) -> None:
    """No range of the cache: its tokens are copied out of it."""
    mask = padding((20, 6), 20, "both")
    prompt = ids(2, 20) * mask
    whole = torch.cat((mask, torch.ones(2, 1, dtype=torch.long)), 1)
    positions = (whole.cumsum(1) - 1).clamp(min=0)
    tokens = torch.cat((prompt, ids(2, 1)), 1)
    cache = transformers.DynamicCache(config=llama.ours.config)
    with torch.no_grad():
        llama.ours(prompt, attention_mask=mask, position_ids=positions[:, :-1], past_key_values=cache)
        last = llama.ours(
            tokens[:, -1:], attention_mask=whole, position_ids=positions[:, -1:], past_key_values=cache
        )
    after = torch.zeros_like(whole, dtype=torch.bool)
    after[:, -1] = True
    inputs = {"input_ids": tokens, "attention_mask": whole, "position_ids": positions, "use_cache": False}
    llama.compare(last.logits[:, 0], after, **inputs)
    assert not reads.queries


def test_sinks_have_gradients() -> None:
    """q, k, v and the sinks have gradients in float32 that agree with the definition in float64."""
    torch.manual_seed(0)
    sizes = ((2, 4, 20, 64), (2, 2, 20, 64), (2, 2, 20, 64), (4,))
    given = [torch.randn(size, requires_grad=True) for size in sizes]
    wide = [x.detach().double().requires_grad_() for x in given]
    q, k, v, sinks = wide
    scores = q @ k.repeat_interleave(2, 1).mT / 8
    seen = torch.ones(20, 20, dtype=torch.bool).tril()
    scores = scores.masked_fill(~seen, -torch.inf)
    scores = torch.cat((scores, sinks[:, None, None].expand(2, 4, 20, 1)), -1).softmax(-1)
    want = (scores[..., :-1] @ v.repeat_interleave(2, 1)).transpose(1, 2)
    x, y, z, sink = given
    got, _ = pyfa_rocm.transformers.attention_forward(
        torch.nn.Identity(), x, y, z, None, is_causal=True, s_aux=sink
    )
    grad = torch.randn_like(got)
    gradients = torch.autograd.grad(got, given, grad)
    for gradient, exact in zip(gradients, torch.autograd.grad(want, wide, grad.double()), strict=True):
        # float32's; attention at scores of up to 30 or so multiplies it.
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-4, atol=1e-4)


def test_encoder_and_decoder(checked: Checked, reads: Reads) -> None:
    """A decoder's queries over its own keys, and over those of an encoder, padded at the right."""
    models = Models("BartForConditionalGeneration", torch.float16)
    mask = padding((24, 9), 24, "right")
    given = {"input_ids": ids(2, 24) * mask, "attention_mask": mask}
    result = models.ours.generate(
        **given, max_new_tokens=STEPS, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    tokens = torch.ones(2, STEPS, dtype=torch.bool)
    logits = torch.stack(result.logits, 1).flatten(0, 1)
    models.compare(logits, tokens, **given, decoder_input_ids=result.sequences[:, :-1], use_cache=False)
    # Two layers have two attentions each. The first step's self-attention has as many keys as queries.
    assert reads.queries == [1] * 2 * (2 * STEPS - 1)
