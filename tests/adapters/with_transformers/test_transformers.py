# SPDX-License-Identifier: MIT OR Apache-2.0
"""attn_implementation="pyfa_rocm" in models, without and with padding, packed sequences, and masks.

`transformers_cases` says what judges them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from adapters.with_transformers.transformers_cases import Checked, Models, ids, padding, register

from pyfa_rocm import flash_attn
from pyfa_rocm.flash_attn import flash_attn_3


@pytest.fixture
def registered() -> Checked:
    return register()


@pytest.fixture
def checked(registered: Checked) -> Iterator[Checked]:
    yield registered
    assert registered.calls


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
            # The tolerance is float32's: softmax is computed in it.
            expected = models.exact(input_ids=single, use_cache=False).logits
            torch.testing.assert_close(part.float(), expected.float())


def test_packed_rows(checked: Checked) -> None:
    """Several rows, each of several sequences."""
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in ((10, 20, 5), (33, 2))])
    tokens = torch.ones(2, 35, dtype=torch.bool)
    models = Models("LlamaForCausalLM", torch.bfloat16)
    models.check(tokens, input_ids=ids(2, 35), position_ids=positions, use_cache=False)


@pytest.mark.parametrize(("kind", "form"), [("Llama", "bool"), ("Llama", "float"), ("GptOss", "bool")])
def test_any_other_mask(registered: Checked, kind: str, form: str) -> None:
    """A mask of all queries and keys: a prefix that sees itself whole, then causal. The last has sinks."""
    visible = torch.ones(40, 40).tril().bool()
    visible[:11, :11] = True
    mask = visible.expand(2, 1, 40, 40)
    additive = torch.zeros(2, 1, 40, 40).masked_fill(~mask, torch.finfo(torch.float32).min)
    models = Models(f"{kind}ForCausalLM", torch.float16, "pyfa_rocm")
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


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("form", ["padded", "packed"])
def test_flash_attention(
    monkeypatch: pytest.MonkeyPatch, registered: Checked, form: str, version: int
) -> None:
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
    flash_attn.install(flash_attn_3=version == 3)
    try:
        models = Models("LlamaForCausalLM", torch.bfloat16, f"flash_attention_{version}")
        models.check(tokens, **inputs, use_cache=False)
        used = importlib.import_module("transformers.modeling_flash_attention_utils")._flash_varlen_fn
        assert used is (flash_attn_3 if version == 3 else flash_attn).flash_attn_varlen_func
    finally:
        flash_attn.uninstall()
