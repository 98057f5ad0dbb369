# SPDX-License-Identifier: MIT OR Apache-2.0
"""attn_implementation="pyfa_rocm" in a whole compiled graph: masks are recognised, none is of every pair."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from adapters.with_transformers.transformers_cases import Models, ids, padding, register
from transformers import masking_utils

from pyfa_rocm import UnsupportedError
from pyfa_rocm.transformers import _attention, _compiled, _mask
from pyfa_rocm.transformers._decode import Scores

LENGTHS = (13, 1, 16)
POSITIONS = torch.cat([torch.arange(n) for n in LENGTHS])[None]
AT = torch.tensor([0, 13, 14, 30], dtype=torch.int32)
VARLEN = {"cu_seq_lens_q": AT, "cu_seq_lens_k": AT, "max_length_q": 16, "max_length_k": 16}
ONES = torch.ones(1, 30).long()
FORMS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "without a cache": {"use_cache": False},
    "a mask of ones": {"attention_mask": ONES, "use_cache": False},
    "a mask of ones, with a cache": {"attention_mask": ONES},
    "padding at the left": {"attention_mask": padding((30, 9), 30, "left"), "use_cache": False},
    "padding at the right": {"attention_mask": padding((7, 30), 30, "right"), "use_cache": False},
    "packed": {"position_ids": POSITIONS, "use_cache": False},
    "packed, with a cache": {"position_ids": POSITIONS},
    "packed by lengths": VARLEN | {"position_ids": POSITIONS, "use_cache": False},
}


@pytest.fixture(autouse=True)
def no_bias(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a mask of every pair of tokens is made or added."""
    register()
    torch._dynamo.reset()

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a mask of every query and key")

    monkeypatch.setattr(_attention, "_with_bias", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(masking_utils, "eager_mask", refuse)
        yield
    torch._dynamo.reset()


def given(form: str) -> tuple[dict[str, Any], torch.Tensor]:
    """A call's arguments, and which tokens count."""
    arguments = dict(FORMS[form])
    mask = arguments.get("attention_mask", ONES)
    return arguments | {"input_ids": ids(len(mask), 30)}, mask.bool()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "Gemma3ForCausalLM"])
def test_as_eager_mode(kind: str, form: str) -> None:
    """The logits of the same kernels, and the gradients of all weights; Gemma 3 has a layer with a window."""
    arguments, tokens = given(form)
    model = Models(kind, torch.float16, "pyfa_rocm").ours
    results = []
    for compiled in (False, True):
        one = copy.deepcopy(model)
        call = torch.compile(one, fullgraph=True, backend="aot_eager") if compiled else one
        logits = call(**arguments).logits[tokens].float()
        logits.square().mean().backward()
        results.append((logits.detach(), [x.grad.float() for x in one.parameters() if x.grad is not None]))
    (want, want_grads), (got, grads) = results
    # Float16 rounds by half an ulp, some ten times on the way; sums of another order differ as much.
    u = 2.0**-11
    assert (got - want).square().mean() <= (10 * u) ** 2 * want.square().mean()
    assert len(grads) == len(want_grads)
    for a, b in zip(grads, want_grads, strict=True):
        assert (a - b).norm() <= 20 * u * b.norm() + 1e-6


def test_windows_with_padding_in_between() -> None:
    """Only the running graph can see it, and says so."""
    mask = ONES.clone()
    mask[:, 4:6] = 0
    model = torch.compile(Models("Gemma3ForCausalLM", torch.float16, "pyfa_rocm").ours, backend="aot_eager")
    with pytest.raises(UnsupportedError, match="attention_mask: got padding between tokens"), torch.no_grad():
        model(input_ids=ids(1, 30), attention_mask=mask, use_cache=False)


def test_patterns_in_a_graph() -> None:
    """Each that is recognised in eager mode is so while a graph is traced, and no other."""
    x = torch.zeros(1, 8).long()
    known = (
        lambda: masking_utils.causal_mask_function,
        lambda: masking_utils.bidirectional_mask_function,
        lambda: masking_utils.sliding_window_causal_mask_function(4),
        lambda: masking_utils.sliding_window_bidirectional_mask_function(4),
        lambda: masking_utils.packed_sequence_compatibility_function(
            masking_utils.causal_mask_function, x, x
        ),
        lambda: masking_utils.packed_sequence_compatibility_function(
            masking_utils.sliding_window_causal_mask_function(4), x, x
        ),
    )
    unknown = (
        lambda: masking_utils.and_masks(masking_utils.causal_mask_function, lambda b, h, q, k: k % 2 == 0),
        lambda: masking_utils.or_masks(
            masking_utils.causal_mask_function, masking_utils.causal_mask_function
        ),
        lambda: masking_utils.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.long)),
    )
    for makers, recognised in ((known, True), (unknown, False)):
        for make in makers:

            def traced(x: torch.Tensor, make: Any = make) -> torch.Tensor:
                pattern = _mask.pattern_of(make())
                if pattern is None:
                    return x
                return x + 1 + int(pattern.causal) + 10 * (1 + pattern.window_size[0])

            torch._dynamo.reset()
            got = torch.compile(traced, fullgraph=True, backend="eager")(x)
            assert torch.equal(got, traced(x))
            assert bool(got.any()) == recognised


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 30, 4, 64), (2, 30, 2, 64), (2, 30, 2, 64))
    return [torch.randn(shape, generator=generator).half().requires_grad_() for shape in shapes]


MASKS = {
    "padding": padding((30, 9), 30, "left").bool(),
    "all tokens": torch.ones(2, 30).bool(),
    "sequences": torch.cat([torch.zeros(2, 13), torch.ones(2, 17)], 1).long(),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("sinks", [None, (0.5, -1.0, 2.0, 0.0)], ids=["", "sinks"])
def test_the_operator(mask: torch.Tensor, sinks: tuple[float, ...] | None) -> None:
    """As what eager mode does by the same mask, gradients of all tensors and of sinks among them."""
    logits = None if sinks is None else torch.tensor(sinks, requires_grad=True)
    scores = Scores(0.125, True, sinks=logits)
    q, k, v = inputs = tensors()
    wanted = inputs if logits is None else [*inputs, logits]
    # Nobody reads the output of queries that are padding.
    dout = torch.randn(2, 30, 4, 64, generator=torch.Generator().manual_seed(4)).half()
    if mask.dtype == torch.bool:
        dout = dout.masked_fill(~mask[..., None, None], 0.0)
    want = _attention._by_rows(q, k, v, mask, _mask.Pattern(True), scores, 0.0)
    got = _compiled.attend_rows(q, k, v, mask, scores, 0.0)
    assert torch.equal(got, want)
    pairs = zip(torch.autograd.grad(got, wanted, dout), torch.autograd.grad(want, wanted, dout), strict=True)
    for a, b in pairs:
        # dQ is added up in any order: of each sum the last bits may differ.
        torch.testing.assert_close(a, b, rtol=2**-9, atol=2**-9)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_the_operator_is_traced_rightly(mask: torch.Tensor) -> None:
    arguments = (*tensors(), mask, True, -1, -1, 0.125, 0.0, 0.0, None, False)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.pyfa_rocm.fmha_rows.default, arguments, test_utils=tests)
