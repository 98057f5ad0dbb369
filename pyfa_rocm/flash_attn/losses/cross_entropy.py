# SPDX-License-Identifier: MIT OR Apache-2.0
"""`CrossEntropyLoss` as in ``flash_attn.losses.cross_entropy``. Plain torch, any device."""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.flash_attn.ops.triton.cross_entropy import cross_entropy_loss

__all__ = ["CrossEntropyLoss"]


class CrossEntropyLoss(torch.nn.Module):
    """Cross entropy as a module.

    Parameters
    ----------
    ignore_index, label_smoothing, logit_scale, lse_square_scale, inplace_backward, process_group
        As in `pyfa_rocm.flash_attn.ops.triton.cross_entropy.cross_entropy_loss`.
    reduction : {"mean", "sum", "none"}
        Over rows; the mean is of those whose label is not `ignore_index`.
    return_z_loss : bool
        Whether to return the z-losses too, reduced alike; they have no gradient.

    Raises
    ------
    InvalidArgumentError
        Another `reduction`.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.flash_attn.losses.cross_entropy import CrossEntropyLoss
    >>> CrossEntropyLoss()(torch.zeros(2, 8), torch.tensor([3, -100]))
    tensor(2.0794)
    """

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        process_group: Any = None,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise InvalidArgumentError(f"reduction: got {reduction!r}, expected 'mean', 'sum' or 'none'")
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.logit_scale = logit_scale
        self.lse_square_scale = lse_square_scale
        self.inplace_backward = inplace_backward
        self.process_group = process_group
        self.return_z_loss = return_z_loss

    def forward(
        self, input: torch.Tensor, target: torch.Tensor, precomputed_lse: torch.Tensor | None = None  # noqa: A002
    ) -> Any:
        """Return the loss of logits, (batch, classes), and labels, (batch); see the class."""
        losses, z_losses = cross_entropy_loss(
            input, target, precomputed_lse, self.label_smoothing, self.logit_scale, self.lse_square_scale,
            self.ignore_index, self.inplace_backward, self.process_group,
        )  # fmt: skip
        loss = self._reduced(losses, target)
        return (loss, self._reduced(z_losses, target)) if self.return_z_loss else loss

    def _reduced(self, losses: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.reduction == "none":
            return losses
        total = losses.sum()
        return total if self.reduction == "sum" else total / (target != self.ignore_index).sum()
