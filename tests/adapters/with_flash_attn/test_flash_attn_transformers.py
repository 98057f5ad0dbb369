# SPDX-License-Identifier: MIT OR Apache-2.0
"""transformers' "flash_attention_2" and "flash_attention_3" over its paged cache, by the drop-in."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from adapters.with_transformers.transformers_cases import COMMON, VOCABULARY
from transformers import ContinuousBatchingConfig, GenerationConfig

from pyfa_rocm import flash_attn
from pyfa_rocm.flash_attn import flash_attn_3

STEPS = 5
_IMPORTS = "transformers.utils.import_utils"
_FUNCTIONS = "transformers.modeling_flash_attention_utils"
_BATCHING = "transformers.generation.continuous_batching.initialization"


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, version: int) -> Iterator[Counter[str]]:
    """Put the drop-in where flash-attn would be, as on a card; count the calls of its functions."""
    imports, functions = importlib.import_module(_IMPORTS), importlib.import_module(_FUNCTIONS)
    monkeypatch.setattr(imports, "is_torch_cuda_available", lambda: True)
    batching = importlib.import_module(_BATCHING)
    monkeypatch.setattr(batching, "is_torch_xpu_available", lambda: True)
    monkeypatch.setattr(batching, "is_flash_attention_requested", lambda *_, **__: True)
    # transformers keeps the functions that it found: forget them.
    for name in dir(functions):
        if name == "_loaded_implementation" or (name.startswith("_") and name.endswith("_fn")):
            monkeypatch.setattr(functions, name, None)
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        module = flash_attn_3 if version == 3 else flash_attn
        function = getattr(module, name)

        @functools.wraps(function)
        def counted(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*args, **options)

        monkeypatch.setattr(module, name, counted)

    for name in ("flash_attn_varlen_func", "flash_attn_with_kvcache"):
        count(name)
    flash_attn.install(flash_attn_3=version == 3)
    yield counts
    flash_attn.uninstall()


def model_like(model: Any, attention: str, dtype: torch.dtype) -> Any:
    config = transformers.LlamaConfig(**COMMON, attn_implementation=attention)
    other = transformers.LlamaForCausalLM(config).to(dtype).eval()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("page_size", [16, 256])
def test_generates(calls: Counter[str], version: int, page_size: int) -> None:
    """Prompts are packed sequences; once all sequences decode, steps append to pages in place."""
    torch.manual_seed(0)
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**COMMON)).eval()
    model = model_like(plain, f"flash_attention_{version}", torch.float16)
    random = torch.Generator().manual_seed(1)
    requests = [torch.randint(2, VOCABULARY, (n,), generator=random).tolist() for n in (5, 16, 30)]
    results = model.generate_batch(
        inputs=requests,
        progress_bar=False,
        generation_config=GenerationConfig(
            max_new_tokens=STEPS, do_sample=False, eos_token_id=-1, pad_token_id=0
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=page_size, num_blocks=24, max_batch_tokens=64, max_blocks_per_request=4
        ),
    )
    assert calls["flash_attn_varlen_func"]
    assert calls["flash_attn_with_kvcache"] >= (STEPS - 2) * 2  # in each of two layers
    exact, eager = (model_like(plain, "eager", dtype) for dtype in (torch.float64, torch.float16))
    assert len(results) == len(requests)
    for result in results.values():
        assert result.error is None
        tokens = torch.tensor([[*result.prompt_ids, *result.generated_tokens]])
        with torch.no_grad():
            want, rounded = (x(tokens).logits[0, -STEPS - 1 : -1].double() for x in (exact, eager))
        # A token is the largest of logits that are off by up to twice what eager's are.
        chosen = want[torch.arange(STEPS), tokens[0, -STEPS:]]
        assert (want.amax(-1) - chosen <= 4 * (want - rounded).abs().max()).all()
