# SPDX-License-Identifier: MIT OR Apache-2.0
"""flash-attn's cross entropy against its formula in float64, and against itself over several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from adapters.with_torch.two_processes import run_in_two

from pyfa_rocm import InvalidArgumentError
from pyfa_rocm.flash_attn.losses.cross_entropy import CrossEntropyLoss
from pyfa_rocm.flash_attn.ops.triton.cross_entropy import cross_entropy_loss

ROWS, CLASSES = 13, 40
OPTIONS: list[dict[str, Any]] = [
    {},
    {"label_smoothing": 0.1},
    {"logit_scale": 0.3, "lse_square_scale": 1e-2},
    {"label_smoothing": 0.2, "logit_scale": 2.0, "lse_square_scale": 1e-3, "ignore_index": 7},
]


def draw(dtype: torch.dtype = torch.float64, ignored: int = -100) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(ROWS, CLASSES, generator=random, dtype=torch.float64)
    labels = torch.randint(CLASSES, (ROWS,), generator=random)
    labels[[2, 9]] = ignored
    return logits.to(dtype), labels


def formula(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    ignore_index: int = -100,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's loss and z-loss in float64, by torch's own cross entropy."""
    z = logits.double() * logit_scale
    z_losses = torch.where(labels == ignore_index, 0, lse_square_scale * z.logsumexp(1) ** 2)
    losses = torch.nn.functional.cross_entropy(
        z, labels, reduction="none", label_smoothing=label_smoothing, ignore_index=ignore_index
    )
    return losses + z_losses, z_losses


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_losses_and_gradients(dtype: torch.dtype, options: dict[str, Any]) -> None:
    logits, labels = draw(dtype, options.get("ignore_index", -100))
    exact = logits.double().clone().requires_grad_()
    want, want_z = formula(exact, labels, **options)
    factor = torch.linspace(-1, 1, ROWS, dtype=torch.float64)
    (want * factor).sum().backward()
    leaf = logits.clone().requires_grad_()
    got, got_z = cross_entropy_loss(leaf, labels, **options)
    assert got.dtype == got_z.dtype == torch.promote_types(dtype, torch.float32)
    assert not got_z.requires_grad
    # Sums over the classes of numbers up to 20, and for the gradient what it is stored in.
    unit = torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), want, rtol=0, atol=CLASSES * 20 * unit)
    torch.testing.assert_close(got_z.double(), want_z, rtol=0, atol=CLASSES * 20 * unit)
    (got * factor).sum().backward()
    stored = torch.finfo(dtype).eps
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=stored, atol=CLASSES * 4 * unit)
    assert not leaf.grad[[2, 9]].any()


def test_gradient_is_the_derivative() -> None:
    logits, labels = draw()
    options = OPTIONS[2]
    assert torch.autograd.gradcheck(
        lambda x: cross_entropy_loss(x, labels, **options)[0], logits.requires_grad_()
    )


def test_in_place_and_given_lse() -> None:
    logits, labels = draw()
    plain, written = (logits.clone().requires_grad_() for _ in range(2))
    given = logits.logsumexp(1)
    cross_entropy_loss(plain, labels)[0].sum().backward()
    base = written * 1
    losses, _ = cross_entropy_loss(base, labels, precomputed_lse=given, inplace_backward=True)
    losses.sum().backward()
    assert torch.equal(written.grad, plain.grad)
    assert torch.equal(base, plain.grad)  # the logits' memory holds their gradient


def test_ignored_rows_may_hold_anything() -> None:
    logits, labels = draw()
    logits[2] = torch.nan
    leaf = logits.requires_grad_()
    losses, _ = cross_entropy_loss(leaf, labels)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_module(reduction: str) -> None:
    logits, labels = draw()
    want, want_z = formula(logits, labels, **OPTIONS[2])
    if reduction != "none":
        count = ROWS - 2 if reduction == "mean" else 1
        want, want_z = want.sum() / count, want_z.sum() / count
    module = CrossEntropyLoss(reduction=reduction, return_z_loss=True, **OPTIONS[2])
    for got, exact in zip(module(logits, labels), (want, want_z), strict=True):
        torch.testing.assert_close(got, exact)
    torch.testing.assert_close(CrossEntropyLoss(reduction=reduction, **OPTIONS[2])(logits, labels), want)


def _part(rank: int, folder: Path) -> None:
    """One of two processes, each with half of the classes."""
    group = torch.distributed.group.WORLD
    for i, options in enumerate(OPTIONS):
        logits, labels = draw(ignored=options.get("ignore_index", -100))
        leaf = logits.chunk(2, dim=1)[rank].clone().requires_grad_()
        losses, z_losses = cross_entropy_loss(leaf, labels, process_group=group, **options)
        losses.sum().backward()
        torch.save((losses.detach(), z_losses, leaf.grad), folder / f"{i}.{rank}")


def test_classes_in_several_processes(tmp_path: Path) -> None:
    run_in_two(_part, tmp_path)
    for i, options in enumerate(OPTIONS):
        logits, labels = draw(ignored=options.get("ignore_index", -100))
        leaf = logits.requires_grad_()
        want, want_z = formula(leaf, labels, **options)
        want.sum().backward()
        parts = [torch.load(tmp_path / f"{i}.{rank}") for rank in range(2)]
        for losses, z_losses, _ in parts:
            torch.testing.assert_close(losses, want.detach())
            torch.testing.assert_close(z_losses, want_z.detach())
        torch.testing.assert_close(torch.cat([part[2] for part in parts], 1), leaf.grad)


def test_bad_arguments() -> None:
    logits, labels = draw()
    with pytest.raises(InvalidArgumentError, match=r"logits: got shape \(1, 13, 40\), expected \(batch, cla"):
        cross_entropy_loss(logits[None], labels)
    with pytest.raises(InvalidArgumentError, match=r"labels: got shape \(12,\), expected \(13,\)"):
        cross_entropy_loss(logits, labels[1:])
    with pytest.raises(
        InvalidArgumentError, match=r"precomputed_lse: got shape \(13, 40\), expected \(13,\)"
    ):
        cross_entropy_loss(logits, labels, precomputed_lse=logits)
    with pytest.raises(InvalidArgumentError, match=r"logit_scale: got 0\.0, expected above 0"):
        cross_entropy_loss(logits, labels, logit_scale=0.0)
    with pytest.raises(InvalidArgumentError, match="reduction: got 'max', expected 'mean', 'sum' or 'none'"):
        CrossEntropyLoss(reduction="max")
