# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sequences packed in a row, and each way in which transformers says so: none attends to another.

A packed row is judged by its sequences alone, one model call each, in float64.
"""

from __future__ import annotations

import importlib
from itertools import accumulate
from typing import Any

import pytest
import torch
import transformers
from adapters.with_transformers.transformers_cases import SLACK, Models, ids, register
from transformers import DataCollatorWithFlattening, StaticCache

import pyfa_rocm.transformers as adapter
from pyfa_rocm import InvalidArgumentError, UnsupportedError, flash_attn

LENGTHS = (25, 1, 30, 8)
TOTAL = sum(LENGTHS)
KINDS = [("LlamaForCausalLM", torch.float16), ("Gemma2ForCausalLM", torch.bfloat16)]


def positions(*lengths: int) -> torch.Tensor:
    return torch.cat([torch.arange(n) for n in lengths])[None]


def starts(*lengths: int) -> torch.Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


def varlen(*lengths: int) -> dict[str, Any]:
    """transformers' arguments for sequences of these lengths."""
    at, longest = starts(*lengths), max(lengths)
    return {"cu_seq_lens_q": at, "cu_seq_lens_k": at, "max_length_q": longest, "max_length_k": longest}


NUMBERS = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))[None].int()
FORMS: dict[str, dict[str, Any]] = {
    "lengths": varlen(*LENGTHS) | {"use_cache": False},
    "lengths, by default with a cache": varlen(*LENGTHS) | {"position_ids": positions(*LENGTHS)},
    "lengths of int64, and longest as tensors": {
        name: torch.as_tensor(x).long() for name, x in varlen(*LENGTHS).items()
    },
    "lengths without the longest": {n: x for n, x in varlen(*LENGTHS).items() if n.startswith("cu")},
    "lengths beside a mask of ones": varlen(*LENGTHS) | {"attention_mask": torch.ones(1, TOTAL).long()},
    "positions, by default with a cache": {"position_ids": positions(*LENGTHS)},
    "positions, beside a mask of ones": {
        "position_ids": positions(*LENGTHS),
        "attention_mask": torch.ones(1, TOTAL).long(),
    },
    "positions that begin at 2": {"position_ids": positions(*LENGTHS) + 2},
    "positions without a cache": {"position_ids": positions(*LENGTHS), "use_cache": False},
    "numbers": {"seq_idx": NUMBERS},
    "static cache": {"position_ids": positions(*LENGTHS), "static": True},
    "lengths, static cache": varlen(*LENGTHS) | {"position_ids": positions(*LENGTHS), "static": True},
}


def alone(model: Any, packed: torch.Tensor, shift: int = 0) -> torch.Tensor:
    """The logits of each sequence of a row by a call of its own."""
    parts = packed.split(LENGTHS, 1)
    return torch.cat(
        [model(x, position_ids=positions(x.shape[1]) + shift, use_cache=False).logits for x in parts], 1
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "dtype"), KINDS, ids=str)
def test_each_sequence_is_alone(kind: str, dtype: torch.dtype, form: str) -> None:
    register()
    given = dict(FORMS[form])
    models, packed = Models(kind, dtype, "pyfa_rocm"), ids(1, TOTAL)
    if given.pop("static", False):
        given["past_key_values"] = StaticCache(config=models.ours.config, max_cache_len=TOTAL + 9)
    # Without positions of their own tokens count on, which rotary embedding does not mind.
    shift = 2 if form.endswith("at 2") else 0
    with torch.no_grad():
        ours = models.ours(input_ids=packed, **given).logits
        exact, eager = (alone(m, packed, shift).double() for m in (models.exact, models.eager))
    judged(models, ours, exact, eager)


def judged(models: Models, ours: torch.Tensor, exact: torch.Tensor, eager: torch.Tensor) -> None:
    """Compares as `Models.compare` does."""
    error, allowed = ((x.double() - exact).square().mean().sqrt() for x in (ours, eager))
    assert error <= SLACK * allowed, (error, allowed)


@pytest.mark.parametrize("cache", [False, True])
def test_collator(cache: bool) -> None:
    """A batch from transformers' own collator, as its trainer hands it on, works."""
    register()
    rows = [{"input_ids": x.tolist()} for x in ids(1, TOTAL)[0].split(LENGTHS)]
    collator = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_tensors="pt")
    batch = dict(collator(rows))
    del batch["labels"]
    models = Models("LlamaForCausalLM", torch.bfloat16, "pyfa_rocm")
    with torch.no_grad():
        ours = models.ours(**batch, use_cache=cache).logits
        exact, eager = (alone(m, ids(1, TOTAL)).double() for m in (models.exact, models.eager))
    judged(models, ours, exact, eager)


def test_gradients_stay_in_their_sequence() -> None:
    register()
    model = Models("LlamaForCausalLM", torch.float16, "pyfa_rocm").ours
    embedded = model.get_input_embeddings()(ids(1, TOTAL)).detach().requires_grad_()
    logits = model(inputs_embeds=embedded, **varlen(*LENGTHS)).logits
    logits[:, 26:56].float().square().mean().backward()
    assert embedded.grad is not None
    of_row = embedded.grad[0].abs().sum(-1)
    assert (of_row[26:56] > 0).all()
    assert not of_row[:26].any()
    assert not of_row[56:].any()


def test_rows_of_a_batch_by_default_with_a_cache() -> None:
    """Two rows of several sequences, of which flash_attention_2 would see none."""
    register()
    lengths = ((10, 20, 5), (33, 2))
    given = torch.cat([positions(*row) for row in lengths])
    models, packed = Models("LlamaForCausalLM", torch.bfloat16, "pyfa_rocm"), ids(2, 35)
    with torch.no_grad():
        ours = models.ours(packed, position_ids=given).logits
        exact, eager = (
            m(packed, position_ids=given, use_cache=False).logits.double()
            for m in (models.exact, models.eager)
        )
    judged(models, ours, exact, eager)


def test_a_mask_of_every_pair() -> None:
    """A mask of the caller's own, in which sequences that are packed do not see each other besides."""
    q, k, v = torch.randn(3, 1, 2, 4, 64, generator=torch.Generator().manual_seed(2)).half()
    layer, mask, parts = Layer(), torch.zeros(1, 1, 4, 4), []
    for rows in (slice(0, 1), slice(1, 4)):
        one, key, value = (x[:, :, rows] for x in (q, k, v))
        parts.append(adapter.attention_forward(layer, one, key, value, mask[:, :, rows, rows])[0])
    out, _ = adapter.attention_forward(layer, q, k, v, mask, **varlen(1, 3))
    torch.testing.assert_close(out, torch.cat(parts, 1))
    out, _ = adapter.attention_forward(layer, q, k, v, mask == 0, seq_idx=torch.tensor([[0, 1, 1, 1]]))
    torch.testing.assert_close(out, torch.cat(parts, 1))


class Layer(torch.nn.Module):
    is_causal = True


def attend(length: int = 4, keys: int = 4, mask: Any = None, batch: int = 1, **kwargs: Any) -> Any:
    q, k = torch.ones(batch, 2, length, 64).half(), torch.ones(batch, 2, keys, 64).half()
    return adapter.attention_forward(Layer(), q, k, k, mask, **kwargs)[0]


LEFT = torch.tensor([[False, True, True, True]])
REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "only of queries": (
        {"cu_seq_lens_q": starts(1, 3)}, InvalidArgumentError, "cu_seq_lens_k: got NoneType, expected int32"
    ),
    "of another number": (
        varlen(1, 3) | {"cu_seq_lens_k": starts(1, 1, 2)}, InvalidArgumentError,
        r"cu_seq_lens_k: got shape \(4,\), expected \(3,\)",
    ),
    "of another type": (
        varlen(1, 3) | {"cu_seq_lens_q": starts(1, 3).float()}, InvalidArgumentError,
        r"cu_seq_lens_q: got torch.float32 \(3,\), expected int32",
    ),
    "beside padding": (
        varlen(1, 3) | {"mask": LEFT}, InvalidArgumentError, "attention_mask: got one with padding"
    ),
    "numbers of another size": (
        {"seq_idx": torch.tensor([[0, 1]])}, InvalidArgumentError,
        r"seq_idx: got shape \(1, 2\), expected \(1, 4\)",
    ),
    "numbers beside padding": (
        {"seq_idx": torch.tensor([[0, 0, 1, 1]]), "mask": LEFT}, InvalidArgumentError, "beside seq_idx"
    ),
    "numbers after a cache": (
        {"seq_idx": torch.tensor([[0, 0, 1, 1]]), "keys": 9}, UnsupportedError, "after those of a cache"
    ),
    "positions after a cache": (
        {"position_ids": positions(1, 3), "keys": 9}, UnsupportedError,
        "position_ids: got several sequences in 4 tokens after those of a cache",
    ),
    "a mask of every pair of two rows": (
        varlen(1, 3) | {"mask": torch.zeros(2, 1, 4, 4), "batch": 2}, UnsupportedError, "a single row"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_obeyed_is_refused(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        attend(**given)


def test_one_sequence_is_no_packing() -> None:
    """Chunks of a prompt after a cache, and numbers of one sequence."""
    later = torch.arange(5, 9)[None]
    for given in (
        {"position_ids": later},
        {"seq_idx": torch.zeros(1, 4).int()},
        {"position_ids": later[None]},
    ):
        assert torch.equal(attend(keys=9, **given), attend(keys=9))


def test_positions_that_were_written_since() -> None:
    """A buffer for positions, as steps that are captured have it: what it said before is forgotten."""
    v = torch.randn(1, 2, 4, 64, generator=torch.Generator().manual_seed(2)).half()
    where = positions(4).clone()

    def last() -> torch.Tensor:
        return adapter.attention_forward(Layer(), v, v, v, None, position_ids=where)[0][:, -1]

    whole = last()
    where[:, 3] = 0
    torch.testing.assert_close(last(), v[:, :, -1])
    assert not torch.equal(last(), whole)
    where[:, 3] = 3
    assert torch.equal(last(), whole)


@pytest.mark.parametrize("form", ["positions, by default with a cache", "lengths, by default with a cache"])
def test_as_flash_attention_2(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """transformers' own use of flash-attn, found in the drop-in, computes the same."""
    utils = importlib.import_module("transformers.utils.import_utils")
    monkeypatch.setattr(utils, "is_torch_cuda_available", lambda: True)
    monkeypatch.setattr(transformers.PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True)
    register()
    flash_attn.install()
    try:
        packed = ids(1, TOTAL)
        theirs, ours = (
            Models("LlamaForCausalLM", torch.bfloat16, name).ours
            for name in ("flash_attention_2", "pyfa_rocm")
        )
        with torch.no_grad():
            assert torch.equal(*(m(packed, **FORMS[form]).logits for m in (theirs, ours)))
    finally:
        flash_attn.uninstall()
