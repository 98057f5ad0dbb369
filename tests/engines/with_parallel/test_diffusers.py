# SPDX-License-Identifier: MIT OR Apache-2.0
"""A model of diffusers, unmodified, whose ContextParallelConfig shares tokens among ranks, on the drop-in.

The judge is that of `test_others`: at most twice the error of diffusers' own attention on one rank, which
computes in the same precision, and one more rounding of a rank's part.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engines.with_parallel.ranks import Ranks, record

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
# diffusers shares no tokens with `_flash_3`: each rank runs the whole model.
LAUNCHES = {"ring": 2 * RANKS, "ulysses": 2, "_flash_3": 2}


def _model(dtype: torch.dtype) -> Any:
    """Flux with random weights, the same float16 numbers in any type."""
    torch.manual_seed(0)
    model = importlib.import_module("diffusers.models.transformers.transformer_flux")
    return model.FluxTransformer2DModel(**SIZES).half().to(dtype)


def _sample(model: Any, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    image, text, pooled = (
        torch.randn(x, generator=generator).half().to(dtype)
        for x in ((1, IMAGE, CHANNELS), (1, TEXT, WIDTH), (1, WIDTH))
    )
    places = torch.arange(IMAGE)
    with torch.no_grad():
        (sample,) = model(
            image, text, pooled, torch.tensor([0.5]).to(dtype), txt_ids=torch.zeros(TEXT, 3),
            img_ids=torch.stack([0 * places, places // 8, places % 8], 1), return_dict=False,
        )  # fmt: skip
    return sample.double()


def _share(how: str) -> tuple[torch.Tensor, list[str]]:
    """Return what a rank has of the whole, and the kernels that it launched."""
    pyfa_rocm.flash_attn.install(flash_attn_3=True)
    # diffusers numbers accelerators, of which torch for CPUs has none.
    torch.accelerator.device_count = lambda: 1
    model = _model(torch.float16)
    if how == "_flash_3":
        # diffusers makes this an operator of torch that only cards have; its body does for all.
        operator = importlib.import_module("diffusers.models.attention_dispatch")._wrapped_flash_attn_3
        operator.register_kernel("cpu")(operator._init_fn)
        model.set_attention_backend(how)
    else:
        model.set_attention_backend("flash")
        config = importlib.import_module("diffusers").ContextParallelConfig(**{f"{how}_degree": RANKS})
        model.enable_parallelism(config=config)
    with emulator.profile() as profile:
        sample = _sample(model, torch.float16)
    return sample, [launch.kernel for launch in profile.launches]


@pytest.mark.parametrize("how", LAUNCHES)
def test_diffusers(ranks: Callable[[int], Ranks], how: str) -> None:
    exact, low = (_sample(_model(x), x) for x in (torch.float64, torch.float16))
    rounding = torch.finfo(torch.float16).eps * exact.abs().max()
    allowed = 2 * (low - exact).abs().max() + rounding
    for sample, kernels in ranks(RANKS).all(_share, how):
        assert sum("_fwd_" in x for x in kernels) == LAUNCHES[how]
        part = float((sample - exact).abs().max() / allowed)
        assert part <= 1
    record("diffusers", f"Flux, {how}, {RANKS} ranks", part, set(kernels))
