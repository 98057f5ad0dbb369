# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cross entropy of logits, as in ``flash_attn.ops.triton.cross_entropy``. Plain torch, any device."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["CrossEntropyLoss", "cross_entropy_loss"]


class _Options(NamedTuple):
    """The numbers of a loss, as `cross_entropy_loss` has them, and which classes these logits are of."""

    label_smoothing: float
    logit_scale: float
    lse_square_scale: float
    ignore_index: int
    first_class: int
    total_classes: int


class CrossEntropyLoss(torch.autograd.Function):
    """`cross_entropy_loss`, whose gradient is made from logits and log-sum-exp; probabilities are not kept."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        labels: torch.Tensor,
        precomputed_lse: torch.Tensor | None = None,
        smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        ignore_index: int = -100,
        inplace_backward: bool = False,
        process_group: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return losses and z-losses; arguments are as in `cross_entropy_loss`."""
        _require(logits, labels, precomputed_lse, logit_scale)
        ranks, rank = 1, 0
        if process_group is not None:
            ranks, rank = process_group.size(), process_group.rank()
        classes = logits.shape[1]
        options = _Options(
            smoothing, logit_scale, lse_square_scale, ignore_index, rank * classes, ranks * classes
        )
        if precomputed_lse is None or logit_scale != 1.0 or smoothing != 0.0:
            precomputed_lse = _scaled(logits, options).logsumexp(dim=1)
        lse, subtracted = precomputed_lse, _subtracted(logits, labels, options)
        if ranks > 1:
            lse = _gathered_lse(lse, ranks, process_group)
            torch.distributed.all_reduce(subtracted, group=process_group)
        ignored = labels == ignore_index
        z_losses = (lse_square_scale * lse.square()).masked_fill(ignored, 0.0)
        losses = (lse - subtracted).masked_fill(ignored, 0.0) + z_losses
        ctx.save_for_backward(logits, lse, labels)
        ctx.options, ctx.inplace_backward = options, inplace_backward
        ctx.mark_non_differentiable(z_losses)
        return losses, z_losses

    @staticmethod
    def backward(ctx: Any, dlosses: torch.Tensor, _dz_losses: Any) -> tuple[Any, ...]:
        """Return the gradient of the logits; with `inplace_backward`, in their memory."""
        logits, lse, labels = ctx.saved_tensors
        o = ctx.options
        factor = torch.where(labels == o.ignore_index, 0.0, dlosses * o.logit_scale)[:, None]
        probabilities = torch.exp(_scaled(logits, o) - lse[:, None])
        gradient = probabilities * (1 + 2 * o.lse_square_scale * lse[:, None])
        if o.label_smoothing:
            gradient = gradient - o.label_smoothing / o.total_classes
        is_here, at = _places(labels, logits.shape[1], o)
        gradient.scatter_add_(1, at[:, None], torch.where(is_here, o.label_smoothing - 1.0, 0.0)[:, None])
        # A row that does not count may hold anything.
        gradient = torch.where(factor == 0, 0.0, gradient * factor)
        gradient = logits.detach().copy_(gradient) if ctx.inplace_backward else gradient.to(logits.dtype)
        return gradient, None, None, None, None, None, None, None, None


def cross_entropy_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    precomputed_lse: torch.Tensor | None = None,
    label_smoothing: float = 0.0,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    ignore_index: int = -100,
    inplace_backward: bool = False,
    process_group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross entropy of each row.

    With z the logits times `logit_scale`, s the smoothing, and lse the log-sum-exp of z:
    ``lse - (1 - s) * z[label] - s * mean(z) + lse_square_scale * lse ** 2``.

    Parameters
    ----------
    logits : torch.Tensor, (batch, classes)
        Any floating type; computed in float32 at least.
    labels : torch.Tensor, int (batch)
        Of the right classes.
    precomputed_lse : torch.Tensor, optional, float32 (batch)
        Of these logits; used if there is neither scale nor smoothing.
    label_smoothing, logit_scale, lse_square_scale : float
        As above. The last one's part is also called z-loss.
    ignore_index : int
        Label of rows whose loss is 0.
    inplace_backward : bool
        Whether the gradient is written to the logits' memory.
    process_group : torch.distributed.ProcessGroup, optional
        Its processes have equal parts of the classes, in the order of their ranks, and the same labels.

    Returns
    -------
    losses : torch.Tensor, float32 (batch)
        With their z-losses.
    z_losses : torch.Tensor, float32 (batch)
        To look at: they have no gradient.

    Raises
    ------
    InvalidArgumentError
        Shapes do not fit, or `logit_scale` is not above 0.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.flash_attn.ops.triton.cross_entropy import cross_entropy_loss
    >>> losses, _ = cross_entropy_loss(torch.zeros(2, 8), torch.tensor([3, -100]))
    >>> losses
    tensor([2.0794, 0.0000])
    """
    losses, z_losses = CrossEntropyLoss.apply(
        logits, labels, precomputed_lse, label_smoothing, logit_scale, lse_square_scale, ignore_index,
        inplace_backward, process_group,
    )  # fmt: skip
    return losses, z_losses


def _require(
    logits: torch.Tensor, labels: torch.Tensor, precomputed_lse: torch.Tensor | None, logit_scale: float
) -> None:
    """Raise unless shapes fit."""
    if logits.dim() != 2:
        raise InvalidArgumentError(f"logits: got shape {tuple(logits.shape)}, expected (batch, classes)")
    rows = logits.shape[:1]
    for name, x in (("labels", labels), ("precomputed_lse", precomputed_lse)):
        if x is not None and x.shape != rows:
            raise InvalidArgumentError(
                f"{name}: got shape {tuple(x.shape)}, expected {tuple(rows)} as the rows of logits"
            )
    if not logit_scale > 0:
        raise InvalidArgumentError(f"logit_scale: got {logit_scale}, expected above 0")


def _scaled(logits: torch.Tensor, options: _Options) -> torch.Tensor:
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return z if options.logit_scale == 1.0 else z * options.logit_scale


def _places(labels: torch.Tensor, classes: int, options: _Options) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which labels are of classes that are here, and their columns; 0 for the others."""
    at = labels.long() - options.first_class
    is_here = (at >= 0) & (at < classes)
    return is_here, torch.where(is_here, at, 0)


def _subtracted(logits: torch.Tensor, labels: torch.Tensor, options: _Options) -> torch.Tensor:
    """Return what a loss has subtracted from the log-sum-exp, as far as these classes have a part in it."""
    z = _scaled(logits, options)
    is_here, at = _places(labels, z.shape[1], options)
    own = torch.where(is_here, z.gather(1, at[:, None])[:, 0], 0.0)
    if not options.label_smoothing:
        return own
    smoothed = options.label_smoothing / options.total_classes * z.sum(dim=1)
    return (1 - options.label_smoothing) * own + smoothed


def _gathered_lse(lse: torch.Tensor, ranks: int, process_group: Any) -> torch.Tensor:
    """Return the log-sum-exp of all processes' classes."""
    parts = [torch.empty_like(lse) for _ in range(ranks)]
    torch.distributed.all_gather(parts, lse.contiguous(), group=process_group)
    return torch.stack(parts).logsumexp(dim=0)
