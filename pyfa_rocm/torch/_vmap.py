# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators under torch.vmap: a mapped dimension becomes part of the batch, or is looped over.

The first needs strides that allow it, since nothing but a mapped last dimension is copied; sequences that are
not packed, since lengths are of one batch; and no dropout, whose random numbers depend on the place in the
batch: the result is what a loop gives.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["register"]

# The tensors whose first dimension is the batch.
_BATCHED = ("dout", "q", "k", "v", "out", "lse", "dq", "dk", "dv")


def register(library: torch.library.Library, operator: Any) -> None:
    """Make the rule of an operator known to torch.vmap."""
    names = [x.name for x in operator._schema.arguments]
    written = [x.name for x in operator._schema.arguments if x.alias_info and x.alias_info.is_write]

    def rule(info: Any, in_dims: tuple[int | None, ...], *values: Any) -> Any:
        arguments = dict(zip(names, values, strict=False))
        mapped = {name for name, dim in zip(names, in_dims, strict=False) if dim is not None}
        for name in written:
            if arguments.get(name) is not None and name not in mapped:
                raise InvalidArgumentError(
                    f"{name}: got a tensor that torch.vmap does not map, expected one for each mapped element"
                )
        for name, dim in zip(names, in_dims, strict=False):
            if dim is not None:
                arguments[name] = _to_front(arguments[name], dim, name in written)
        merged = _merged(arguments, mapped, info.batch_size)
        if merged is None:
            return _looped(operator, arguments, mapped, info.batch_size)
        results = operator(*merged.values())
        batch = arguments["q"].shape[1 if "q" in mapped else 0]
        return _each(results, lambda x: x.unflatten(0, (info.batch_size, batch)) if x.dim() > 1 else x)

    torch.library.register_vmap(operator._name, rule, lib=library)


def _to_front(x: torch.Tensor, dim: int, is_written: bool) -> torch.Tensor:
    """Return a tensor with its mapped dimension first; copied if that was the last, unless it is written."""
    x = x.movedim(dim, 0)
    return x if is_written or dim < x.dim() - 1 else x.contiguous()


def _merged(arguments: dict[str, Any], mapped: set[str], size: int) -> dict[str, Any] | None:
    """Return the arguments of one call for all elements; None: they need a call each."""
    if "cu_seqlens_q" in arguments or arguments.get("dropout_p"):
        return None
    if "k" not in arguments or "k_cache" in arguments:
        return None  # a cache, or what is merged, has dimensions of its own
    if "sinks" in mapped:
        return None  # they are of all batches
    if arguments.get("bias_grad") or arguments.get("dbias") is not None:
        return None  # a sum over the batch is of one element's
    batch = arguments["q"].shape[1 if "q" in mapped else 0]
    merged = dict(arguments)
    for name in (*_BATCHED, "bias", "alibi_slopes"):
        x = arguments.get(name)
        if x is None:
            continue
        if name not in mapped:
            if (name == "alibi_slopes" and x.dim() == 1) or (name == "bias" and x.shape[0] == 1):
                continue  # of every batch
            x = x.expand(size, *x.shape)
        elif name == "alibi_slopes" and x.dim() == 2:
            x = x[:, None].expand(size, batch, x.shape[1])
        if name == "bias" and x.dim() > 1 and x.shape[1] == 1:
            x = x.expand(size, batch, *x.shape[2:])
        if not _is_one_dimension(x):
            return None
        merged[name] = x.flatten(0, 1)
    return merged


def _is_one_dimension(x: torch.Tensor) -> bool:
    """Tell whether the first two dimensions can be viewed as one."""
    if x.dim() < 2:
        return False
    return x.numel() == 0 or 1 in x.shape[:2] or x.stride(0) == x.shape[1] * x.stride(1)


def _looped(operator: Any, arguments: dict[str, Any], mapped: set[str], size: int) -> Any:
    def call(take: Any) -> Any:
        return operator(*(take(x) if name in mapped else x for name, x in arguments.items()))

    if not size:  # what an element would give says types and sizes
        return _each(call(lambda x: x.new_zeros(x.shape[1:])), lambda x: x.new_empty(0, *x.shape))
    results = [call(lambda x, i=i: x[i]) for i in range(size)]
    if results[0] is None:
        return None, None
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(x) for x in zip(*results, strict=True)), (0,) * len(results[0])


def _each(results: Any, change: Any) -> Any:
    """Return changed results, and where their mapped dimension is: nowhere if there is but one."""
    if results is None:
        return None, None
    if isinstance(results, torch.Tensor):
        result = change(results)
        return result, None if result.dim() == 1 else 0
    changed = tuple(map(change, results))
    return changed, tuple(None if x.dim() == 1 else 0 for x in changed)
