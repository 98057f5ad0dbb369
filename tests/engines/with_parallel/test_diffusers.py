# SPDX-License-Identifier: MIT OR Apache-2.0
"""A model of diffusers, unmodified, whose ContextParallelConfig shares tokens among ranks, on the drop-in.

The judge is that of `test_others`: at most twice the error of diffusers' own attention on one rank, which
computes in the same precision, and one more rounding of each rank's part. It judges what the model returns,
and in training the gradients of its inputs and its matrices.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engines.with_parallel.ranks import Ranks, record
from torch import distributed

import pyfa_rocm.flash_attn
from pyfa_rocm import emulator

RANKS = 2
TEXT, IMAGE, CHANNELS, WIDTH = 16, 48, 8, 32  # tokens, which each rank has a part of, and their elements
SIZES: dict[str, Any] = {
    "patch_size": 1, "in_channels": CHANNELS, "num_layers": 1, "num_single_layers": 1,
    "attention_head_dim": 64, "num_attention_heads": 2, "joint_attention_dim": WIDTH,
    "pooled_projection_dim": WIDTH, "axes_dims_rope": (16, 24, 24),
}  # fmt: skip
# Each of two layers attends once with Ulysses, and with the ring once to each rank's keys.
# diffusers shares no tokens with `_flash_3`, and has no gradients of it: each rank runs the whole model.
LAUNCHES = {"ring": 2 * RANKS, "ulysses": 2, "_flash_3": 2}
Tensors = dict[str, torch.Tensor]


def _model(dtype: torch.dtype, **sizes: Any) -> Any:
    """Flux with random weights, the same float16 numbers in any type."""
    torch.manual_seed(0)
    model = importlib.import_module("diffusers.models.transformers.transformer_flux")
    return model.FluxTransformer2DModel(**SIZES | sizes).half().to(dtype)


def _inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    """Image, text, pooled text, and the gradient of what the model returns."""
    generator = torch.Generator().manual_seed(1)
    shapes = (1, IMAGE, CHANNELS), (1, TEXT, WIDTH), (1, WIDTH), (1, IMAGE, CHANNELS)
    return [torch.randn(x, generator=generator).half().to(dtype) for x in shapes]


def _sample(model: Any, image: torch.Tensor, text: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    places = torch.arange(IMAGE)
    sample: torch.Tensor
    (sample,) = model(
        image, text, pooled, torch.tensor([0.5]).to(image.dtype), txt_ids=torch.zeros(TEXT, 3),
        img_ids=torch.stack([0 * places, places // 8, places % 8], 1), return_dict=False,
    )  # fmt: skip
    return sample


def _train(model: Any, dtype: torch.dtype) -> Tensors:
    """Return the sample of the model, and the gradients of this rank's tokens."""
    image, text, pooled, wanted = _inputs(dtype)
    leaves = {"image": image.requires_grad_(), "text": text.requires_grad_()}
    leaves |= {name: x for name, x in model.named_parameters() if x.ndim > 1}
    sample = _sample(model, image, text, pooled)
    gradients = torch.autograd.grad(sample, list(leaves.values()), wanted)
    found = {"sample": sample.detach(), **dict(zip(leaves, gradients, strict=True))}
    return {name: x.double() for name, x in found.items()}


def _shared(how: str, options: dict[str, Any] | None = None, **sizes: Any) -> Any:
    """The model, whose attention is ours, set up as a user does; options are of its ContextParallelConfig."""
    pyfa_rocm.flash_attn.install(flash_attn_3=True)
    # diffusers numbers accelerators, of which torch for CPUs has none.
    torch.accelerator.device_count = lambda: 1
    model = _model(torch.float16, **sizes)
    if how == "_flash_3":
        # diffusers makes this an operator of torch that only cards have; its body does for all.
        operator = importlib.import_module("diffusers.models.attention_dispatch")._wrapped_flash_attn_3
        operator.register_kernel("cpu")(operator._init_fn)
        model.set_attention_backend(how)
        return model
    model.set_attention_backend("flash")
    config = importlib.import_module("diffusers").ContextParallelConfig
    model.enable_parallelism(config=config(**{f"{how}_degree": RANKS} | (options or {})))
    return model


def _share(how: str) -> tuple[Tensors, list[str]]:
    """Return what a rank has of the whole, and the kernels that it launched."""
    model = _shared(how)
    with emulator.profile() as profile:
        if how == "_flash_3":
            with torch.no_grad():
                found = {"sample": _sample(model, *_inputs(torch.float16)[:3]).double()}
        else:
            found = _train(model, torch.float16)
            for name, x in found.items():  # a rank has the gradients of its own tokens
                if name != "sample":
                    distributed.all_reduce(x)
    return found, [launch.kernel for launch in profile.launches]


@pytest.fixture(scope="module")
def whole() -> tuple[Tensors, Tensors]:
    """The same on one rank by diffusers' own attention, in float64 and in float16."""
    exact, low = (_train(_model(x), x) for x in (torch.float64, torch.float16))
    return exact, low


@pytest.mark.parametrize("how", LAUNCHES)
def test_diffusers(ranks: Callable[[int], Ranks], whole: tuple[Tensors, Tensors], how: str) -> None:
    exact, low = whole
    parts: dict[str, float] = {}
    for found, kernels in ranks(RANKS).all(_share, how):
        trained = LAUNCHES[how] if len(found) > 1 else 0
        assert sum("_fwd_" in x for x in kernels) == LAUNCHES[how]
        assert sum("_bwd_dot_" in x for x in kernels) == trained
        for name, x in found.items():
            rounding = torch.finfo(torch.float16).eps * exact[name].abs().max()
            allowed = 2 * (low[name] - exact[name]).abs().max() + RANKS * rounding
            error = (x - exact[name]).abs().max()
            assert error <= allowed, name
            parts[name] = max(parts.get(name, 0.0), float(error / allowed))
    record("diffusers", f"Flux, {how}, {RANKS} ranks", max(parts.values()), set(kernels))


def _refused(how: str, options: dict[str, Any], sizes: dict[str, Any]) -> None:
    _train(_shared(how, options, **sizes), torch.float16)


def _flash_3_in_parallel() -> None:
    model = _shared("_flash_3")
    model.enable_parallelism(
        config=importlib.import_module("diffusers").ContextParallelConfig(ring_degree=RANKS)
    )


def _together() -> float:
    """Return what all ranks add up to, if they still hear each other."""
    ones = torch.ones(())
    distributed.all_reduce(ones)
    return float(ones)


WIDE = {"attention_head_dim": 520, "axes_dims_rope": (8, 256, 256)}
REFUSALS: dict[str, tuple[Any, ...]] = {
    # Those of kernels, in the middle of a step: each rank has the others' keys by then, and none waits.
    "hdim, ring": ("hdim_q = 520", _refused, "ring", {}, WIDE),
    "hdim, ulysses": ("hdim_q = 520", _refused, "ulysses", {}, WIDE),
    # diffusers' own, of which the page speaks.
    "rotate_method": ("rotate_method='allgather'", _refused, "ring", {"rotate_method": "alltoall"}, {}),
    "ring_anything": ("Ring Anything Attention", _refused, "ring", {"ring_anything": True}, {}),
    "_flash_3": ("backend '_flash_3' which does not support", _flash_3_in_parallel),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(ranks: Callable[[int], Ranks], case: str) -> None:
    """An option that nothing does is an error that names it, on all ranks, and the group goes on."""
    message, *work = REFUSALS[case]
    for error in ranks(RANKS).run(*work):
        assert isinstance(error, RuntimeError), error
        assert message in str(error)
    assert ranks(RANKS).all(_together) == [RANKS] * RANKS
