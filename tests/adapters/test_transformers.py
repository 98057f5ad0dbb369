# SPDX-License-Identifier: MIT OR Apache-2.0
"""attn_implementation="pyfa_rocm": small models of random weights, against the same in float64, eager.

Two comparisons. Each call of a layer is judged by the reference and its derived tolerance, with the keys each
query sees from transformers' own mask of all of them. And logits are compared with those of the model in
float64: their error may not be above that of the model computed eagerly in the same type. Outside of the
attention both round alike; inside, eager rounds scores, probabilities and output to the type, the kernels
only the probabilities and the output. So the expected error is at most eager's, and what two samples of it
may differ by is the spread of a root mean square over the independent errors of one hidden state:
1 / sqrt(2 * hidden_size) of it, three times, for each of the two.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import reference
import torch
import transformers
from cases_judge import judge
from transformers import masking_utils

import pyfa_rocm.transformers
from pyfa_rocm import flash_attn

HIDDEN, HEADS, VOCABULARY, WINDOW = 256, 4, 97, 16
SLACK = 1 + 2 * 3 / (2 * HIDDEN) ** 0.5
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 256,
    # So large that attention is far from even, and a wrong mask far from right.
    "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip


SETTINGS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "Gemma2ForCausalLM": {
        "sliding_window": WINDOW, "query_pre_attn_scalar": 64, "attn_logit_softcapping": 5.0,
    },
    "BertForMaskedLM": {},
    # Its layers in turns see all, and 8 tokens to each side.
    "ModernBertForMaskedLM": {
        "local_attention": 16, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2,
    },
}  # fmt: skip


class Checked:
    """The implementation under test, each call of it compared with the reference."""

    def __init__(self) -> None:
        self.calls = 0
        self.dense: dict[bool, torch.Tensor] = {}

    def mask(self, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        self.dense["local_size" in kwargs] = masking_utils.eager_mask(*args, **kwargs) == 0
        return pyfa_rocm.transformers.attention_mask(*args, **kwargs)

    def attention(self, module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
        out, weights = pyfa_rocm.transformers.attention_forward(module, query, key, value, mask, **kwargs)
        seen = self.dense[kwargs.get("sliding_window") is not None][:, 0, :, : key.shape[2]].numpy()
        numerics = reference.numerics_of(str(query.dtype).removeprefix("torch."), arch="gfx942")
        q, k, v = (x.transpose(1, 2).float().numpy() for x in (query, key, value))
        for b, row in np.ndindex(*seen.shape[:2]):
            keys = seen[b, row]
            if not keys.any() or not self.is_token(b, row, seen):
                continue
            want = reference.attention(
                q[b : b + 1, row : row + 1], k[b : b + 1, keys], v[b : b + 1, keys], numerics=numerics,
                softmax_scale=kwargs["scaling"], softcap=kwargs.get("softcap") or 0.0,
            )  # fmt: skip
            judge(want, out[b : b + 1, row : row + 1].float().numpy(), None)
        self.calls += 1
        return out, weights

    @staticmethod
    def is_token(b: int, row: int, seen: np.ndarray) -> bool:
        """Whether a query sees itself: padding does not."""
        return bool(seen[b, row, seen.shape[2] - seen.shape[1] + row])


def exact_attention(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The model's own eager attention."""
    return sys.modules[type(module).__module__].eager_attention_forward(module, *args, **kwargs)


def exact_mask(*args: Any, dtype: torch.dtype, **kwargs: Any) -> Any:
    """transformers' eager mask, in float32: eager attention adds it in float64, but its softmax is float32's,
    where the least float64 is -inf and padding, which sees nothing, would get NaN.
    """
    return masking_utils.eager_mask(*args, dtype=torch.float32, **kwargs)


@pytest.fixture
def registered() -> Checked:
    check = Checked()
    pyfa_rocm.transformers.register()
    transformers.AttentionInterface.register("exact", exact_attention)
    transformers.AttentionMaskInterface.register("exact", exact_mask)
    transformers.AttentionInterface.register("checked", check.attention)
    transformers.AttentionMaskInterface.register("checked", check.mask)
    return check


@pytest.fixture
def checked(registered: Checked) -> Iterator[Checked]:
    yield registered
    assert registered.calls


class Models:
    """A model in float64, and in a small type by two implementations, all of the same weights."""

    def __init__(self, kind: str, dtype: torch.dtype, implementation: str = "checked") -> None:
        torch.manual_seed(3)
        cls = getattr(transformers, kind)
        config = cls.config_class(**COMMON | SETTINGS[kind])
        model = cls(config)
        state = model.to(dtype).state_dict()

        def made(dtype: torch.dtype, implementation: str) -> Any:
            result = cls(copy.deepcopy(config)).eval()
            result.load_state_dict(state)
            result.set_attn_implementation(implementation)
            return result.to(dtype)

        self.exact = made(torch.float64, "exact")
        self.eager = made(dtype, "eager")
        self.ours = made(dtype, implementation)

    def compare(self, ours: torch.Tensor, tokens: torch.Tensor, **inputs: Any) -> None:
        """Judge logits, those of `tokens`, by the float64 model's and the error of the eager one's."""
        with torch.no_grad():
            exact, eager = (m(**inputs).logits.double()[tokens] for m in (self.exact, self.eager))
        error, allowed = ((x.double() - exact).square().mean().sqrt() for x in (ours, eager))
        assert error <= SLACK * allowed, (error, allowed)

    def check(self, tokens: torch.Tensor, **inputs: Any) -> None:
        with torch.no_grad():
            self.compare(self.ours(**inputs).logits[tokens], tokens, **inputs)


def ids(batch: int, seqlen: int) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (batch, seqlen), generator=torch.Generator().manual_seed(1))


def padding(lengths: tuple[int, ...], seqlen: int, side: str) -> torch.Tensor:
    """1 for tokens: `lengths` of them at the right, at the left, or in the middle."""
    result = torch.zeros(len(lengths), seqlen, dtype=torch.long)
    for row, length in zip(result, lengths, strict=True):
        begin = {"left": seqlen - length, "right": 0, "both": (seqlen - length) // 2}[side]
        row[begin : begin + length] = 1
    return result


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_llama(checked: Checked, dtype: torch.dtype) -> None:
    tokens = torch.ones(2, 40, dtype=torch.bool)
    Models("LlamaForCausalLM", dtype).check(tokens, input_ids=ids(2, 40), use_cache=False)


# The kernel set `ci` has softcap for packed sequences only in bfloat16.
PADDED = [("LlamaForCausalLM", torch.float16), ("Gemma2ForCausalLM", torch.bfloat16)]


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize(("kind", "dtype"), PADDED, ids=str)
def test_padded(checked: Checked, kind: str, dtype: torch.dtype, side: str) -> None:
    mask = padding((40, 9, 27), 40, side)
    Models(kind, dtype).check(mask.bool(), input_ids=ids(3, 40), attention_mask=mask, use_cache=False)


@pytest.mark.parametrize(("kind", "dtype"), PADDED, ids=str)
def test_packed_sequences(checked: Checked, kind: str, dtype: torch.dtype) -> None:
    """Positions that start again: as in a batch of their own, each sequence."""
    lengths = (25, 1, 30, 8)
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    models, packed = Models(kind, dtype), ids(1, sum(lengths))
    tokens = torch.ones(1, sum(lengths), dtype=torch.bool)
    models.check(tokens, input_ids=packed, position_ids=positions, use_cache=False)
    with torch.no_grad():
        whole = models.exact(input_ids=packed, position_ids=positions, use_cache=False).logits
        for part, single in zip(whole.split(lengths, 1), packed.split(lengths, 1), strict=True):
            # In float32's tolerance: softmax is computed in it.
            expected = models.exact(input_ids=single, use_cache=False).logits
            torch.testing.assert_close(part.float(), expected.float())


def test_packed_rows(checked: Checked) -> None:
    """Several rows, each of several sequences."""
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in ((10, 20, 5), (33, 2))])
    tokens = torch.ones(2, 35, dtype=torch.bool)
    models = Models("LlamaForCausalLM", torch.bfloat16)
    models.check(tokens, input_ids=ids(2, 35), position_ids=positions, use_cache=False)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("kind", "dtype"), PADDED, ids=str)
def test_generation(checked: Checked, kind: str, dtype: torch.dtype, cache: str) -> None:
    """A prompt padded at the left, then token after token from the cache, past the window.

    So much padding that each window has some: without it there would be no kernel with softcap in `ci`.
    """
    mask, steps = padding((20, 6), 20, "left"), 6
    models, prompt = Models(kind, dtype), ids(2, 20) * mask
    result = models.ours.generate(
        prompt, attention_mask=mask, max_new_tokens=steps, do_sample=False, output_logits=True,
        return_dict_in_generate=True, cache_implementation=cache, disable_compile=True,
    )  # fmt: skip
    assert checked.calls == 2 * steps
    whole = torch.cat((mask, torch.ones(2, steps, dtype=torch.long)), 1)
    after = torch.zeros_like(whole, dtype=torch.bool)
    after[:, 19:-1] = True
    logits = torch.stack(result.logits, 1).flatten(0, 1)
    positions = (whole.cumsum(1) - 1).clamp(min=0)
    models.compare(
        logits, after, input_ids=result.sequences, attention_mask=whole, position_ids=positions,
        use_cache=False,
    )  # fmt: skip


def test_generation_without_padding(checked: Checked) -> None:
    """Also by chunks of the prompt, so that several queries meet a cache."""
    models, prompt = Models("LlamaForCausalLM", torch.bfloat16), ids(1, 40)
    cache = transformers.DynamicCache(config=models.ours.config)
    with torch.no_grad():
        parts = [models.ours(part, past_key_values=cache).logits for part in prompt.split((25, 10, 1, 4), 1)]
    tokens = torch.ones(1, 40, dtype=torch.bool)
    models.compare(torch.cat(parts, 1)[tokens], tokens, input_ids=prompt, use_cache=False)


@pytest.mark.parametrize("form", ["bool", "float"])
def test_any_other_mask(registered: Checked, form: str) -> None:
    """A mask of all queries and keys: a prefix that sees itself whole, then causal."""
    visible = torch.ones(40, 40).tril().bool()
    visible[:11, :11] = True
    mask = visible.expand(2, 1, 40, 40)
    additive = torch.zeros(2, 1, 40, 40).masked_fill(~mask, torch.finfo(torch.float32).min)
    models = Models("LlamaForCausalLM", torch.float16, "pyfa_rocm")
    given = mask if form == "bool" else additive
    tokens = torch.ones(2, 40, dtype=torch.bool)
    with torch.no_grad():
        ours = models.ours(input_ids=ids(2, 40), attention_mask=given, use_cache=False).logits[tokens]
    least = torch.finfo(torch.float16).min
    models.compare(
        ours, tokens, input_ids=ids(2, 40), attention_mask=additive.clamp(min=least), use_cache=False
    )


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["BertForMaskedLM", "ModernBertForMaskedLM"])
def test_encoders(checked: Checked, kind: str, side: str) -> None:
    """Attention to both sides, windows among it."""
    mask = padding((40, 9, 27), 40, side)
    models = Models(kind, torch.float16)
    models.check(mask.bool(), input_ids=ids(3, 40), attention_mask=mask)


@pytest.mark.parametrize("form", ["padded", "packed"])
def test_flash_attention_2(monkeypatch: pytest.MonkeyPatch, registered: Checked, form: str) -> None:
    """transformers' own use of flash-attn, which it finds in the drop-in; it would want a card, too."""
    utils = importlib.import_module("transformers.utils.import_utils")
    monkeypatch.setattr(utils, "is_torch_cuda_available", lambda: True)
    monkeypatch.setattr(transformers.PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True)
    if form == "padded":
        mask = padding((40, 9, 27), 40, "left")
        inputs: dict[str, Any] = {"input_ids": ids(3, 40), "attention_mask": mask}
    else:
        positions = torch.cat([torch.arange(n) for n in (25, 1, 14)])[None]
        inputs = {"input_ids": ids(1, 40), "position_ids": positions}
    tokens = inputs.get("attention_mask", torch.ones(1, 40)).bool()
    flash_attn.install()
    try:
        Models("LlamaForCausalLM", torch.bfloat16, "flash_attention_2").check(
            tokens, **inputs, use_cache=False
        )
    finally:
        flash_attn.uninstall()
