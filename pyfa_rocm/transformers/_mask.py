# SPDX-License-Identifier: MIT OR Apache-2.0
"""Masks of transformers -> what the kernels need of them: a pattern, and which tokens belong together.

transformers describes a mask by a function of a query's and a key's index, put together from parts. Those
that the kernels know are recognised by their parts, and no mask is ever made of them. All others are made
into a mask of every query and key.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from transformers import masking_utils

from pyfa_rocm.transformers._look import has_gaps, without_gaps
from pyfa_rocm.transformers._pattern import UNLIMITED, Pattern
from pyfa_rocm.transformers._rows import keep_rows, numbers_of, rows_of_numbers, rows_of_tokens

__all__ = [
    "attention_mask",
    "is_range",
    "pattern_of",
    "remember_in_graphs",
    "tagged_pattern",
    "tokens_of",
]

_TAG = "_pyfa_rocm_pattern"


class Made:
    """A mask function in a graph, with what it was made of: a graph does not show what a function holds."""

    def __init__(self, function: Callable[..., Any], maker: str, parts: dict[str, Any]) -> None:
        self.function, self.maker, self.parts = function, maker, parts

    def __call__(self, batch_idx: Any, head_idx: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.function(batch_idx, head_idx, q_idx, kv_idx)


# transformers' functions that make mask functions, and by what name those hold the first argument, or all.
_MAKERS = {
    "and_masks": "mask_functions",
    "packed_sequence_mask_function": "packed_sequence_mask",
    "remap_positions_for_packed_sequence": "mask_function",
    "sliding_window_overlay": "sliding_window",
    "sliding_window_bidirectional_overlay": "sliding_window",
}
_REMEMBERS = "_pyfa_rocm_remembers"
# transformers' function that prepares what masks are made of, and the results of it that are used here.
_PREPARES = "_preprocess_mask_arguments"
_PREPARED = ("early_exit", "attention_mask", "sequences", "q_length", "kv_length", "q_offset", "kv_offset")


def remember_in_graphs(implementation: str) -> None:
    """Have transformers tell masks all they are made of while a graph is traced, and only then.

    Its makers of mask functions make `Made` ones. And masks of `implementation` are told of positions also if
    there is a cache: layers could ask only one by one which sequences those are of.
    """
    prepare = getattr(masking_utils, _PREPARES, None)
    if prepare is not None and not hasattr(prepare, _REMEMBERS):
        setattr(masking_utils, _PREPARES, _with_positions(prepare, implementation))
    for name, holds in _MAKERS.items():
        maker = getattr(masking_utils, name, None)
        if maker is not None and not hasattr(maker, _REMEMBERS):
            setattr(masking_utils, name, _remembering(maker, name, holds))


def _remembering(maker: Callable[..., Any], name: str, holds: str) -> Callable[..., Any]:
    @functools.wraps(maker)
    def make(*args: Any, **kwargs: Any) -> Any:
        function = maker(*args, **kwargs)
        if not torch.compiler.is_compiling():
            return function
        first, *_ = args or (kwargs[holds],)
        return Made(function, name, {holds: args if name == "and_masks" else first})

    setattr(make, _REMEMBERS, True)
    return make


def _with_positions(prepare: Callable[..., Any], implementation: str) -> Callable[..., Any]:
    names = list(inspect.signature(prepare).parameters)
    at = names.index("position_ids") if "position_ids" in names else len(names)

    @functools.wraps(prepare)
    def prepared(config: Any, *args: Any, **kwargs: Any) -> Any:
        results = prepare(config, *args, **kwargs)
        if not torch.compiler.is_compiling() or config._attn_implementation != implementation:
            return results
        positions = args[at - 1] if len(args) >= at else None
        if len(results) != len(_PREPARED) or results[0] or positions is None or positions.dim() != 2:
            return results
        early_exit, mask, sequences, q_length, kv_length, *rest = results
        if sequences is not None or q_length == 1:
            return results
        numbers = numbers_of(positions)
        if mask is None and q_length == kv_length:
            embeddings, *_ = args
            return early_exit, mask, numbers.expand(embeddings.shape[0], -1), q_length, kv_length, *rest
        one = (numbers[:, -1] == 1).all()
        torch._assert_async(
            one if mask is None else one | ~mask.all(),
            "position_ids: got several sequences after those of a cache, or beside an attention_mask without "
            "padding, in a compiled graph, expected one: call the model without torch.compile",
        )
        return results

    setattr(prepared, _REMEMBERS, True)
    return prepared


def _parts(function: Any, maker: Callable[..., Any]) -> dict[str, Any] | None:
    """Return what a mask function was made of by a function of transformers; None: not made by it."""
    if isinstance(function, Made):
        return function.parts if function.maker == maker.__name__ else None
    if torch.compiler.is_compiling():
        return None
    made_there = getattr(function, "__module__", None) == maker.__module__
    if not made_there or not function.__qualname__.startswith(f"{maker.__qualname__}.<locals>."):
        return None
    return dict(inspect.getclosurevars(function).nonlocals)


def _packed(packed: dict[str, Any], function: Callable[..., Any]) -> Pattern | None:
    """Return the pattern of a mask function within each of several packed sequences."""
    inner = pattern_of(function)
    if inner is None or inner.sequences is not None:
        return None
    return Pattern(inner.causal, inner.window_size, packed["packed_sequence_mask"])


def pattern_of(function: Callable[..., Any]) -> Pattern | None:
    """Return the pattern that a mask function describes; None: one that the kernels do not know."""
    if function is masking_utils.causal_mask_function:
        return Pattern(causal=True)
    if function is masking_utils.bidirectional_mask_function:
        return Pattern(causal=False)
    both = _parts(function, masking_utils.and_masks)
    if both is None or len(both["mask_functions"]) != 2:
        return None
    first, second = both["mask_functions"]
    if packed := _parts(first, masking_utils.packed_sequence_mask_function):
        remapped = _parts(second, masking_utils.remap_positions_for_packed_sequence)
        return None if remapped is None else _packed(packed, remapped["mask_function"])
    if packed := _parts(second, masking_utils.packed_sequence_mask_function):
        # So up to transformers 5.20: positions count on from sequence to sequence, which no pattern minds.
        return _packed(packed, first)
    if window := _parts(first, masking_utils.sliding_window_overlay):
        # Keys after index - window: that many with the query's own.
        size = int(window["sliding_window"]) - 1
        return Pattern(True, (size, 0)) if second is masking_utils.causal_mask_function else None
    if window := _parts(first, masking_utils.sliding_window_bidirectional_overlay):
        size = int(window["sliding_window"])
        return Pattern(False, (size, size)) if second is masking_utils.bidirectional_mask_function else None
    return None


def tagged_pattern(mask: torch.Tensor) -> Pattern | None:
    """Return the pattern that goes with a mask of `attention_mask`; None: with another, or a copy."""
    pattern: Pattern | None = getattr(mask, _TAG, None)
    return pattern


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    **kwargs: Any,
) -> torch.Tensor | None:
    """Make the mask of a forward pass for `attention_forward`: transformers' interface for masks.

    Parameters
    ----------
    batch_size, q_length, kv_length : int
        Sizes of the queries and of the keys, those in a cache among them.
    q_offset, kv_offset : int
        Positions of the first query and of the first key.
    mask_function : callable
        Returns whether a query sees a key, by batch, head and their positions.
    attention_mask : torch.Tensor, optional, bool (batch, positions)
        True for positions that are not padding; positions beyond are not in use.
    **kwargs
        What transformers needs to make a mask of every query and key, and the model's config.

    Returns
    -------
    torch.Tensor or None
        None: all keys count, in the pattern of the layer. int32 (2, 1, 1, batch): those of a cache from the
        first number up to the second; queries end where the keys do. bool (batch, keys in use): those that
        are True count. int64 (batch, keys in use): those of a query's own sequence, by number. All three
        carry their pattern, and in a graph their sequences. (batch, 1, q_length, kv_length): to be added to
        the scores.

    Raises
    ------
    NotImplementedError
        The model does not use transformers' attention interface, and would misread the mask.

    Notes
    -----
    Waits for the device if there is an attention_mask, or a cache of fixed size and several queries. In a
    graph it waits only to count packed sequences, and for the attention_mask of layers with a window.
    """
    _require_interface(kwargs.get("config"))
    pattern = pattern_of(mask_function)
    if pattern is not None:
        is_padded, is_traced = attention_mask is not None, torch.compiler.is_compiling()
        first: Any = q_offset - kv_offset
        # A cache of fixed size counts on the device, where the count may stay.
        stays = isinstance(q_offset, torch.Tensor) and (q_length == 1 or is_traced)
        if stays and not is_padded and pattern.sequences is None and (q_length == 1 or pattern.causal):
            return _tagged_range(pattern, first.new_zeros(batch_size), first + q_length)
        in_use = kv_length
        if pattern.causal and not (stays and is_traced):
            in_use = min(int(first) + q_length, kv_length)
        tokens = _tokens(attention_mask, batch_size, in_use, kv_offset, kwargs.get("device"))
        if _fits(pattern, tokens, q_length, is_padded):
            if is_traced:
                return _traced(pattern, tokens, first if stays else None, q_length, kv_length, is_padded)
            return _tagged(pattern, tokens, q_length, kv_length, is_padded)
    return masking_utils.eager_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **kwargs
    )


def _require_interface(config: Any) -> None:
    """Raise if a model of transformers has attention of its own, which knows nothing of our masks."""
    of_config = type(config).__module__
    name = of_config.replace(".configuration_", ".modeling_")
    module = sys.modules.get(name)
    if module is None or name == of_config or hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
        return
    for own, x in vars(module).items():
        if isinstance(x, type) and x.__module__ == name and "Attention" in own:
            raise NotImplementedError(
                f"attn_implementation: got 'pyfa_rocm' for a model with the attention {own}, expected one "
                "that uses transformers' attention interface; 'eager' works"
            )


def _tokens(padding: torch.Tensor | None, batch: int, in_use: int, offset: int, device: Any) -> torch.Tensor:
    """Return which keys are tokens, as transformers does: none that the mask is too short for."""
    if padding is None:
        return torch.ones(batch, in_use, dtype=torch.bool, device=device)
    padding = padding[:, offset : offset + in_use].bool()
    return torch.nn.functional.pad(padding, (0, in_use - padding.shape[1]))


def _fits(pattern: Pattern, tokens: torch.Tensor, q_length: int, is_padded: bool) -> bool:
    """Tell whether a pattern over all positions is the same one over only the tokens."""
    if pattern.sequences is not None:
        return bool(pattern.sequences.shape == tokens.shape and q_length == tokens.shape[1])
    if pattern.causal and q_length > tokens.shape[1]:
        return False
    if pattern.window_size == UNLIMITED:
        return True
    if not pattern.causal and q_length != tokens.shape[1]:
        return False
    if not is_padded:
        return True
    return torch.compiler.is_compiling() or not has_gaps(tokens)  # in a graph the operator looks


def _tagged(
    pattern: Pattern, tokens: torch.Tensor, q_length: int, kv_length: int, is_padded: bool
) -> torch.Tensor | None:
    """Return the mask of the tokens in a pattern, which some of them may not be in if `is_padded`."""
    in_use = tokens.shape[1]
    if pattern.sequences is not None:
        mask = pattern.sequences.clone()
    elif in_use == kv_length and _sees_all(pattern, kv_length) and not (is_padded and not tokens.all()):
        return None
    elif q_length < in_use and (found := _range(pattern, tokens, is_padded)) is not None:
        return found
    else:
        mask = tokens.clone()
    setattr(mask, _TAG, pattern)
    return mask


def _traced(
    pattern: Pattern,
    tokens: torch.Tensor,
    first: torch.Tensor | None,
    q_length: int,
    kv_length: int,
    is_padded: bool,
) -> torch.Tensor | None:
    """Return a mask in a graph, with the sequences of queries and keys, which layers take as they are.

    `first`, of a cache that counts on the device, is the first query's place among the keys.
    """
    in_use, rows = tokens.shape[1], None
    if pattern.sequences is not None:
        mask = pattern.sequences.clone()
        rows = rows_of_numbers(mask)
    elif is_padded:
        places = torch.arange(in_use, device=tokens.device)
        if first is not None and pattern.causal:
            tokens = tokens & (places < first + q_length)
        mask = tokens.clone() if pattern.window_size == UNLIMITED else without_gaps(tokens)
        at = places[:q_length] + (in_use - q_length if first is None else first)
        rows = rows_of_tokens(mask, lambda: mask[:, at], q_length, pattern)
    elif in_use == kv_length and _sees_all(pattern, kv_length):
        return None
    elif q_length < in_use:
        return _range(pattern, tokens, is_padded)
    else:
        mask = tokens.clone()
    setattr(mask, _TAG, replace(pattern, sequences=None, padded=is_padded))
    keep_rows(mask, rows)
    return mask


def _range(pattern: Pattern, tokens: torch.Tensor, is_padded: bool) -> torch.Tensor | None:
    """Return where the tokens of each row begin and end; None: there are gaps, or queries go with no end."""
    batch, in_use = tokens.shape
    if not is_padded:
        zeros = torch.zeros(batch, dtype=torch.int32, device=tokens.device)
        return _tagged_range(pattern, zeros, zeros + in_use)
    begins, counts = tokens.int().argmax(1), tokens.sum(1)
    ends = begins + counts
    positions = torch.arange(in_use, device=tokens.device)
    whole = (tokens == (positions >= begins[:, None]) & (positions < ends[:, None])).all()
    if pattern.causal:
        whole &= (ends == in_use).all()
    return _tagged_range(pattern, begins, ends) if whole else None


def _tagged_range(pattern: Pattern, begins: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    # transformers takes a mask of four dimensions for made; `generate` makes some before it calls the model.
    mask = torch.stack((begins, ends.expand_as(begins))).to(torch.int32)[:, None, None]
    setattr(mask, _TAG, pattern)
    return mask


def is_range(mask: torch.Tensor | None) -> bool:
    """Tell whether a mask of `attention_mask` says where keys begin and end."""
    return mask is not None and mask.dtype == torch.int32


def tokens_of(mask: torch.Tensor) -> torch.Tensor:
    """Return such a mask as bool (batch, keys in use); waits for the device."""
    begins, ends = mask[:, 0, 0, :, None]
    positions = torch.arange(int(ends.max()), device=mask.device)
    tokens = (positions >= begins) & (positions < ends)
    setattr(tokens, _TAG, tagged_pattern(mask))
    return tokens


def _sees_all(pattern: Pattern, kv_length: int) -> bool:
    """Tell whether a window is as wide as all keys, or there is none."""
    sides = pattern.window_size[:1] if pattern.causal else pattern.window_size
    return all(size < 0 or size >= kv_length - 1 for size in sides)
