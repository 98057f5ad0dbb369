# SPDX-License-Identifier: MIT OR Apache-2.0
"""Small models train with attn_implementation="pyfa_rocm", and with flash-attn's through the drop-in.

Each is trained three times from the same weights: eagerly in float32, and under autocast eagerly and with
ours. Losses of tokens, gradients of parameters and the parameters after some steps may be as far from
float32's as twice eager's error under autocast (root mean squares): flash-attention's own criterion. Both
round alike outside of the attention; inside, eager rounds scores, probabilities and output, the kernels only
the last two.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from adapters.with_transformers import transformers_cases

import pyfa_rocm.transformers
from pyfa_rocm import flash_attn

VOCABULARY, STEPS = 61, 3
COMMON: dict[str, Any] = transformers_cases.COMMON | {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 128,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "Gemma2ForCausalLM": {"sliding_window": 16, "query_pre_attn_scalar": 64, "attn_logit_softcapping": 5.0},
}


def made(kind: str, **settings: Any) -> Any:
    """A float32 model of random weights, the same ones each time, in training mode."""
    torch.manual_seed(3)
    cls = getattr(transformers, kind)
    return cls(cls.config_class(**COMMON | SETTINGS[kind] | settings)).train()


def padded() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    mask = (torch.arange(40) >= torch.tensor([[0], [31], [13]])).long()  # padding is at the left
    return {"input_ids": torch.randint(2, VOCABULARY, (3, 40), generator=random), "attention_mask": mask}


def packed() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    positions = torch.cat([torch.arange(n) for n in (25, 1, 30, 8)])[None]
    return {"input_ids": torch.randint(2, VOCABULARY, (1, 64), generator=random), "position_ids": positions}


FORMS: dict[str, dict[str, torch.Tensor]] = {"padded": padded(), "packed": packed()}


def token_losses(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Cross entropy of each token after another of its sequence, (tokens)."""
    ids = inputs["input_ids"]
    counts = inputs["attention_mask"].bool() if "attention_mask" in inputs else torch.ones_like(ids).bool()
    counts = counts[:, 1:] & counts[:, :-1]
    if "position_ids" in inputs:
        counts &= inputs["position_ids"][:, 1:] > 0
    logits = model(**inputs, use_cache=False).logits[:, :-1].float()
    return torch.nn.functional.cross_entropy(logits[counts], ids[:, 1:][counts], reduction="none")


class Run:
    """Some steps of training.

    Attributes
    ----------
    losses : list
        The tokens' losses in each step.
    gradients, parameters : dict
        By name: gradients of the first step, and parameters after the last.
    """

    def __init__(
        self,
        model: Any,
        inputs: dict[str, torch.Tensor],
        implementation: str,
        dtype: torch.dtype | None,
        steps: int = STEPS,
    ) -> None:
        model = copy.deepcopy(model)
        model.set_attn_implementation(implementation)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        self.losses: list[torch.Tensor] = []
        self.gradients: dict[str, torch.Tensor] = {}
        for _ in range(steps):
            with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                losses = token_losses(model, inputs)
            optimizer.zero_grad()
            losses.mean().backward()
            if not self.gradients:
                self.gradients = {name: x.grad.clone() for name, x in model.named_parameters()}
            optimizer.step()
            self.losses.append(losses.detach())
        self.parameters = {name: x.detach() for name, x in model.named_parameters()}


def off(a: Any, b: Any) -> float:
    """Root mean square of the difference."""
    return float((a.double() - b.double()).square().mean().sqrt())


def compare(exact: Run, eager: Run, ours: Run) -> None:
    for step, losses in enumerate(zip(exact.losses, eager.losses, ours.losses, strict=True)):
        assert off(losses[2], losses[0]) <= 2 * off(losses[1], losses[0]), f"losses of step {step}"
    for what in ("gradients", "parameters"):
        a, b, c = (getattr(run, what) for run in (exact, eager, ours))
        for name in a:
            assert off(c[name], a[name]) <= 2 * off(b[name], a[name]), f"{what}: {name}"
    assert ours.losses[-1].mean() < ours.losses[0].mean()


@pytest.fixture(autouse=True)
def registered() -> None:
    pyfa_rocm.transformers.register()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "Gemma2ForCausalLM"])
def test_trains_as_eager(kind: str, form: str) -> None:
    model, inputs = made(kind), FORMS[form]
    exact = Run(model, inputs, "eager", None)
    eager = Run(model, inputs, "eager", torch.bfloat16)
    compare(exact, eager, Run(model, inputs, "pyfa_rocm", torch.bfloat16))


def test_gemma_without_softcap() -> None:
    """Windows in each second layer, and another scale."""
    model, inputs = made("Gemma2ForCausalLM", attn_logit_softcapping=None), FORMS["padded"]
    exact = Run(model, inputs, "eager", None)
    eager = Run(model, inputs, "eager", torch.bfloat16)
    compare(exact, eager, Run(model, inputs, "pyfa_rocm", torch.bfloat16))


@pytest.fixture(params=["flash_attention_2", "flash_attention_3"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """transformers' own use of flash-attn, which it finds in the drop-in; it would want a card, too."""
    utils = importlib.import_module("transformers.utils.import_utils")
    monkeypatch.setattr(utils, "is_torch_cuda_available", lambda: True)
    monkeypatch.setattr(transformers.PreTrainedModel, "_flash_attn_can_dispatch", lambda *_, **__: True)
    flash_attn.install(flash_attn_3=request.param == "flash_attention_3")
    yield request.param
    flash_attn.uninstall()


@pytest.mark.parametrize("form", FORMS)
def test_flash_attention(implementation: str, form: str) -> None:
    model, inputs = made("LlamaForCausalLM"), FORMS[form]
    exact = Run(model, inputs, "eager", None, 1)
    eager = Run(model, inputs, "eager", torch.bfloat16, 1)
    ours = Run(model, inputs, implementation, torch.bfloat16, 1)
    for name in exact.gradients:
        allowed = 2 * off(eager.gradients[name], exact.gradients[name])
        assert off(ours.gradients[name], exact.gradients[name]) <= allowed, name


def checkpoint(model: Any, reentrant: bool) -> None:
    """Make a model compute its layers again in backward; transformers 6 has another name for it."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": reentrant})


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant: bool) -> None:
    """The same gradients, of attention computed twice."""
    model, inputs = made("LlamaForCausalLM"), FORMS["padded"]
    want = Run(model, inputs, "pyfa_rocm", torch.bfloat16, 1)
    checkpoint(model, reentrant)
    got = Run(model, inputs, "pyfa_rocm", torch.bfloat16, 1)
    assert torch.equal(got.losses[0], want.losses[0])
    for name, x in want.gradients.items():
        torch.testing.assert_close(got.gradients[name], x, rtol=2**-7, atol=2**-7 * float(x.abs().max()))


def test_dropout_in_training() -> None:
    """As torch's generator has it, also when attention is computed again; none in eval()."""
    # The kernel set `ci` has dropout for these, forward and backward.
    settings = {"head_dim": 128, "num_attention_heads": 2, "num_key_value_heads": 1}
    model, inputs = made("LlamaForCausalLM", attention_dropout=0.25, **settings), FORMS["packed"]

    def run(seed: int, changed: Any = model) -> Run:
        torch.manual_seed(seed)
        return Run(changed, inputs, "pyfa_rocm", torch.float16, 1)

    first = run(1)
    assert torch.equal(run(1).losses[0], first.losses[0])
    assert not torch.equal(run(2).losses[0], first.losses[0])
    again = copy.deepcopy(model)
    checkpoint(again, False)
    recomputed = run(1, again)
    assert torch.equal(recomputed.losses[0], first.losses[0])
    for name, x in first.gradients.items():
        torch.testing.assert_close(
            recomputed.gradients[name], x, rtol=2**-9, atol=2**-9 * float(x.abs().max())
        )
    model.eval()
    assert torch.equal(run(1).losses[0], run(2).losses[0])
