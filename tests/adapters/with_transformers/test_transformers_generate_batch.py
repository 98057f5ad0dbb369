# SPDX-License-Identifier: MIT OR Apache-2.0
"""Continuous batching: `generate_batch` over transformers' paged cache, by attn_implementation="pyfa_rocm".

Tokens are those of `generate`, request by request. Their logarithms of probabilities are compared with the
float64 model's: the error may not be above eager's, but for the spread of a root mean square over so few
numbers, 1 / sqrt(2 n) of it, three times, for each of the two.

transformers offers block tables only to flash-attention on a card; a test makes it do so here.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from adapters.with_transformers.transformers_cases import VOCABULARY, Models, register
from transformers import ContinuousBatchingConfig, GenerationConfig

from pyfa_rocm.transformers import _continuous

STEPS = 5
# Without psutil it cannot tell how much memory there is, and says so: sizes are given.
SIZES: dict[str, Any] = {"page_size": 16, "num_blocks": 24, "max_batch_tokens": 24, "return_logprobs": True}


def prompts(*lengths: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(1)
    return [torch.randint(2, VOCABULARY, (n,), generator=random).tolist() for n in lengths]


class Counts:
    """How often attention went which way, and whether there was something to copy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_tokens = self.by_pages = self.new_only = self.copied = 0

        def count(way: str) -> None:
            plain = getattr(_continuous.Step, way)

            def counted(step: _continuous.Step) -> torch.Tensor:
                reads = way != "by_pages" and step.of_kind("read_index").numel() > 0
                name = way if way != "gathered" else "copied" if reads else "new_only"
                setattr(self, name, getattr(self, name) + 1)
                result: torch.Tensor = plain(step)
                return result

            monkeypatch.setattr(_continuous.Step, way, counted)

        for way in ("by_tokens", "by_pages", "gathered"):
            count(way)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


def run(model: Any, requests: list[list[int]], **sizes: Any) -> list[Any]:
    """Return the requests' results, in their order."""
    generation = GenerationConfig(max_new_tokens=STEPS, do_sample=False, eos_token_id=-1, pad_token_id=0)
    results = model.generate_batch(
        inputs=requests,
        generation_config=generation,
        progress_bar=False,
        continuous_batching_config=ContinuousBatchingConfig(**SIZES | sizes),
    )
    ordered = sorted(results.values(), key=lambda x: requests.index(list(x.prompt_ids)))
    assert [x.error for x in ordered] == [None] * len(requests)
    return ordered


def check(models: Models, requests: list[list[int]], **sizes: Any) -> None:
    """Generate from the requests at once, and judge what they give."""
    results = run(models.ours, requests, **sizes)
    errors = []
    for request, result in zip(requests, results, strict=True):
        whole = torch.tensor([[*request, *result.generated_tokens]])
        plain = models.ours.generate(whole[:, : len(request)], max_new_tokens=STEPS, do_sample=False)
        assert torch.equal(whole, plain)
        with torch.no_grad():
            exact, eager = (
                model(whole, use_cache=False).logits[0, len(request) - 1 : -1].double().log_softmax(-1)
                for model in (models.exact, models.eager)
            )
        at = range(STEPS), result.generated_tokens
        errors += [(torch.tensor(result.logprobs).double() - exact[at], eager[at] - exact[at])]
    ours, allowed = (torch.cat(x) for x in zip(*errors, strict=True))
    slack = 1 + 2 * 3 / (2 * len(ours)) ** 0.5
    assert ours.square().mean().sqrt() <= slack * allowed.square().mean().sqrt()


@pytest.fixture(scope="module")
def llama() -> Models:
    register()
    return Models("LlamaForCausalLM", torch.float16, "pyfa_rocm")


def test_all_layers_see_all(llama: Models, counts: Counts) -> None:
    """Sequences that begin, go on in chunks, and decode, in the same steps; no key is copied."""
    check(llama, prompts(5, 40, 1))
    assert counts.by_tokens
    assert not counts.copied
    assert counts.by_tokens > counts.new_only


@pytest.mark.parametrize(("kind", "dtype"), [("Gemma3", torch.float16), ("GptOss", torch.bfloat16)], ids=str)
def test_windows(kind: str, dtype: torch.dtype, counts: Counts) -> None:
    """A layer with a window, in a ring of tokens, and one without; the second model also has sinks.

    Only chunks of a prompt are copied, with the tokens before them, where there is a window.
    """
    register()
    check(Models(f"{kind}ForCausalLM", dtype, "pyfa_rocm"), prompts(5, 30))
    assert counts.by_tokens > 2 * counts.copied > 0


def test_shared_prefix(llama: Models, counts: Counts) -> None:
    """Pages that several requests have, of a size that is no power of two."""
    common, *others = prompts(40, 3, 1)
    check(llama, [common + other for other in others], page_size=20, max_batch_tokens=48)
    assert counts.by_tokens
    assert not counts.copied


def test_block_tables(monkeypatch: pytest.MonkeyPatch, llama: Models, counts: Counts) -> None:
    """When all sequences decode."""
    initialization = importlib.import_module(f"{_continuous.PACKAGE}.initialization")
    monkeypatch.setattr(initialization, "is_torch_xpu_available", lambda: True)
    check(llama, prompts(5, 16), max_blocks_per_request=4)
    assert counts.by_pages > counts.by_tokens
    assert not counts.copied


@pytest.mark.parametrize("tables", [False, True])
def test_padded_batches(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    llama: Models,
    counts: Counts,
    tables: bool,
) -> None:
    """Tokens and sequences of no request fill up a batch, as it needs to be compiled, which is left out."""
    initialization = importlib.import_module(f"{_continuous.PACKAGE}.initialization")
    monkeypatch.setattr(initialization, "is_torch_xpu_available", lambda: tables)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    settings = transformers.CompileConfig()
    check(
        llama,
        prompts(5, 12, 3),
        varlen_compile_config=settings,
        decode_compile_config=settings,
        q_padding_interval_size=8,
        kv_padding_interval_size=8,
        max_blocks_per_request=4,
    )
    assert bool(counts.by_pages) == tables
    assert "Failed to warm up" not in caplog.text


def test_compiled(llama: Models, counts: Counts) -> None:
    """Around the attention."""
    settings = transformers.CompileConfig(backend="eager", mode=None, fullgraph=False)
    torch._dynamo.reset()
    sizes = {"q_padding_interval_size": 8, "max_batch_tokens": 8}
    check(llama, prompts(5), varlen_compile_config=settings, **sizes)
    assert counts.by_tokens


def test_others_are_what_they_were() -> None:
    register()
    for module in ("cache", "continuous_api", "initialization"):
        asked = importlib.import_module(f"{_continuous.PACKAGE}.{module}").is_flash_attention_requested
        for name, expected in {"sdpa": False, "flash_attention_2": True, "pyfa_rocm": True}.items():
            assert asked(requested_attention_implementation=name) is expected
        config = transformers.LlamaConfig(attn_implementation="flash_attention_3")
        assert asked(config, version=3)
        assert not asked(config, version=2)
    plain = importlib.import_module("transformers.utils.generic").is_flash_attention_requested
    assert not plain(requested_attention_implementation="pyfa_rocm")


def paged(**given: Any) -> Any:
    """Call the attention of a layer that sees all, with a cache that has nothing yet."""
    cache = object.__new__(importlib.import_module(f"{_continuous.PACKAGE}.cache").PagedAttentionCache)
    allocator = SimpleNamespace(layer_type="full_attention", layer_indices=[0], index=0)
    cache.layer_to_allocator = {0: allocator}
    x = torch.zeros(1, 2, 8, 64)
    module = SimpleNamespace(layer_idx=0)
    given = {"attention_mask": None} | given
    return transformers.AttentionInterface()["pyfa_rocm"](module, x, x, x, cache=cache, **given)


def test_what_is_refused() -> None:
    register()
    with pytest.raises(NotImplementedError, match=r"attention_mask: got one of shape \(1, 1, 8, 8\)"):
        paged(attention_mask=torch.zeros(1, 1, 8, 8))
    with pytest.raises(NotImplementedError, match=r"block_table: got one for torch\.float32.*max_blocks"):
        paged(block_table=torch.zeros(1, 1, 4, dtype=torch.int32))
