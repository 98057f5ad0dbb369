# SPDX-License-Identifier: MIT OR Apache-2.0
"""attn_implementation="pyfa_rocm" in a whole compiled graph: masks are recognised, none is of every pair."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from adapters.with_transformers.transformers_cases import Models, ids, padding, register
from torch._dynamo.testing import CompileCounter
from transformers import DynamicCache, StaticCache, masking_utils

from pyfa_rocm import UnsupportedError
from pyfa_rocm.transformers import _attention, _mask, _rows
from pyfa_rocm.transformers._decode import Scores
from pyfa_rocm.transformers._pattern import Pattern

EAGER_MASK = masking_utils.eager_mask
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


def judge_as_eager_mode(kind: str, form: str, backend: str) -> None:
    """The logits of the same kernels, and the gradients of all weights."""
    arguments, tokens = given(form)
    model = Models(kind, torch.float16, "pyfa_rocm").ours
    results = []
    for compiled in (False, True):
        one = copy.deepcopy(model)
        call = torch.compile(one, fullgraph=True, backend=backend) if compiled else one
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "Gemma3ForCausalLM"])
def test_as_eager_mode(kind: str, form: str) -> None:
    """Gemma 3 has a layer with a window."""
    judge_as_eager_mode(kind, form, "aot_eager")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize("form", ["padding at the left", "packed"])
def test_inductor(form: str) -> None:
    """torch's default writes kernels of its own around ours, and fuses what makes the mask."""
    judge_as_eager_mode("LlamaForCausalLM", form, "inductor")


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


def reads_of(call: Callable[[], Any]) -> tuple[int, int]:
    """Return how often a call, compiled before, counts sequences, and looks at anything else on the host.

    torch's profiler says so. An assertion of a graph waits only on the CPU.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    names = Counter(event.name for event in profile.events())
    assert sum(n for name, n in names.items() if name.startswith("pyfa_rocm::fmha_")) >= 2, names
    looks = names["aten::_local_scalar_dense"] + names["aten::nonzero"] - names["aten::_assert_async"]
    return names["pyfa_rocm::fmha_starts"], looks


@pytest.mark.parametrize(
    ("kind", "form", "reads"),
    [
        ("LlamaForCausalLM", "nothing", (1, 0)),
        ("LlamaForCausalLM", "padding at the left", (0, 0)),
        ("LlamaForCausalLM", "packed by lengths", (0, 0)),
        # A mask for each kind of layer; windows have to know that there is no padding between tokens.
        ("Gemma3ForCausalLM", "packed", (2, 0)),
        ("Gemma3ForCausalLM", "padding at the right", (0, 1)),
    ],
)
def test_masks_are_looked_at_once(kind: str, form: str, reads: tuple[int, int]) -> None:
    """A mask, not each of its layers; Llama has two, and Gemma 3 one of each kind."""
    arguments, _ = given(form)
    model = Models(kind, torch.float16, "pyfa_rocm").ours
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        compiled(**arguments)
        assert reads_of(lambda: compiled(**arguments)) == reads


def compare(models: Models, ours: torch.Tensor, tokens: torch.Tensor, **inputs: Any) -> None:
    """Judge logits by models that may make masks of every pair."""
    with mock.patch.object(masking_utils, "eager_mask", EAGER_MASK):
        models.compare(ours, tokens, **inputs)


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("LlamaForCausalLM", torch.float16),
        ("MistralForCausalLM", torch.float16),
        ("Gemma2ForCausalLM", torch.bfloat16),
    ],
)
def test_static_cache_in_chunks(kind: str, dtype: torch.dtype, padded: bool) -> None:
    """Several queries go past the window, some in graphs of symbolic sizes; the cache is longer than all."""
    models, prompt = Models(kind, dtype, "pyfa_rocm"), ids(2, 30)
    cache = StaticCache(config=models.ours.config, max_cache_len=40)
    cache.early_initialization(2, 2, 64, dtype, torch.device("cpu"))
    mask = padding((30, 23), 30, "left") if padded else torch.ones(2, 30).long()
    compiled = torch.compile(models.ours, fullgraph=True, backend="aot_eager")
    parts, done = [], 0
    with torch.no_grad():
        for x in prompt.split((13, 6, 1, 10), 1):
            done += x.shape[1]
            arguments = {"attention_mask": mask[:, :done]} if padded else {}
            parts.append(compiled(x, past_key_values=cache, **arguments).logits)
    tokens = mask.bool()
    inputs = {"input_ids": prompt, "attention_mask": mask, "use_cache": False}
    compare(models, torch.cat(parts, 1)[tokens], tokens, **inputs)


def test_static_cache_waits_for_nothing() -> None:
    model = Models("LlamaForCausalLM", torch.float16, "pyfa_rocm").ours
    cache = StaticCache(config=model.config, max_cache_len=64)
    cache.early_initialization(1, 2, 64, torch.float16, torch.device("cpu"))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        compiled(ids(1, 7), past_key_values=cache)
        assert reads_of(lambda: compiled(ids(1, 7), past_key_values=cache)) == (0, 0)


def test_positions_that_start_again_after_a_cache() -> None:
    model = Models("LlamaForCausalLM", torch.float16, "pyfa_rocm").ours
    cache = StaticCache(config=model.config, max_cache_len=64)
    cache.early_initialization(1, 2, 64, torch.float16, torch.device("cpu"))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad(), pytest.raises(RuntimeError, match="position_ids: got several sequences after"):
        compiled(ids(1, 30), position_ids=POSITIONS, past_key_values=cache)


def test_lengths_that_change() -> None:
    """Batches of three lengths, padded at the left."""
    models = Models("LlamaForCausalLM", torch.float16, "pyfa_rocm")
    compiled = torch.compile(models.ours, fullgraph=True, backend="aot_eager")
    for length in (30, 17, 23):
        mask = padding((length, 9), length, "left")
        arguments = {"input_ids": ids(2, length), "attention_mask": mask, "use_cache": False}
        with torch.no_grad():
            logits = compiled(**arguments).logits[mask.bool()]
        compare(models, logits, mask.bool(), **arguments)


def graphs_of(model: torch.nn.Module, form: str) -> int:
    """How many graphs are compiled for batches of several lengths, or for the steps of `generate`."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    cache = None
    if form == "a growing cache":
        cache = DynamicCache(config=model.config)
    elif form == "a static cache, padded":
        cache = StaticCache(config=model.config, max_cache_len=40)
        cache.early_initialization(2, 2, 64, torch.float16, torch.device("cpu"))
    done = 0
    for length in (10, 11, 17, 33) if cache is None else (9, 12, 1, 1, 1, 7):
        done = length if cache is None else done + length
        if form == "packed":
            arguments = {"position_ids": torch.cat((torch.arange(4), torch.arange(length - 4)))[None]}
        elif form == "a growing cache":
            arguments = {}
        else:
            arguments = {"attention_mask": padding((done, done - 5), done, "left")}
        with torch.no_grad():
            compiled(ids(2, length), past_key_values=cache, use_cache=cache is not None, **arguments)
    graphs: int = counter.frame_count
    return graphs


@pytest.mark.parametrize("form", ["padded", "packed", "a growing cache", "a static cache, padded"])
def test_as_many_graphs_as_sdpa(form: str) -> None:
    """A length that is a constant of the graph would end in torch's limit of graphs."""
    model = Models("MistralForCausalLM", torch.float16, "pyfa_rocm").ours
    ours = graphs_of(model, form)
    model.config._attn_implementation = "sdpa"
    with mock.patch.object(masking_utils, "eager_mask", EAGER_MASK):
        assert ours == graphs_of(model, form)


def tensors() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 30, 4, 64), (2, 30, 2, 64), (2, 30, 2, 64))
    return [torch.randn(shape, generator=generator).half().requires_grad_() for shape in shapes]


MASKS = {
    "padding": padding((30, 9), 30, "left").bool(),
    "all tokens": torch.ones(2, 30).bool(),
    "sequences": torch.cat([torch.zeros(2, 13), torch.ones(2, 17)], 1).long(),
}


def rows_in_graph(mask: torch.Tensor) -> tuple[_rows.Rows, _rows.Rows]:
    if mask.dtype == torch.int64:
        return _rows.rows_of_numbers(mask)
    return _rows.rows_of_tokens(mask, lambda: mask, mask.shape[1], Pattern(True))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("sinks", [None, (0.5, -1.0, 2.0, 0.0)], ids=["", "sinks"])
def test_rows_in_a_graph(mask: torch.Tensor, sinks: tuple[float, ...] | None) -> None:
    """As what eager mode does by the same mask, gradients of all tensors and of sinks among them."""
    logits = None if sinks is None else torch.tensor(sinks, requires_grad=True)
    scores = Scores(0.125, True, sinks=logits)
    q, k, v = inputs = tensors()
    wanted = inputs if logits is None else [*inputs, logits]
    # Nobody reads the output of queries that are padding.
    dout = torch.randn(2, 30, 4, 64, generator=torch.Generator().manual_seed(4)).half()
    if mask.dtype == torch.bool:
        dout = dout.masked_fill(~mask[..., None, None], 0.0)
    rows = _rows.sequences(mask) if mask.dtype == torch.int64 else _rows._tokens_alone(mask)
    want = _attention._packed(q, k, v, (rows, rows), scores, 0.0)
    got = _attention._packed(q, k, v, rows_in_graph(mask), scores, 0.0)
    assert torch.equal(got, want)
    pairs = zip(torch.autograd.grad(got, wanted, dout), torch.autograd.grad(want, wanted, dout), strict=True)
    for a, b in pairs:
        # dQ is added up in any order: of each sum the last bits may differ.
        torch.testing.assert_close(a, b, rtol=2**-9, atol=2**-9)


def test_the_operators_are_traced_rightly() -> None:
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    ops, numbers = torch.ops.pyfa_rocm, MASKS["sequences"]
    q, k, v = (x.detach().flatten(0, 1).requires_grad_() for x in tensors())
    counted = (q, k, v, *ops.fmha_starts(numbers), True, -1, -1, 0.125, 0.0, 0.0, None, False)
    torch.library.opcheck(ops.fmha_counted.default, counted, test_utils=tests)
    order = torch.tensor([2, 0, 1])
    permuted = torch.randn(3, 2, requires_grad=True), order, order.argsort()
    torch.library.opcheck(ops.fmha_permuted.default, permuted)
    torch.library.opcheck(ops.fmha_starts.default, (numbers,), test_utils=tests)
    torch.library.opcheck(ops.fmha_without_gaps.default, (MASKS["padding"],), test_utils=tests)
