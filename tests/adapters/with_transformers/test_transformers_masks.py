# SPDX-License-Identifier: MIT OR Apache-2.0
"""The adapter recognises some of transformers' masks, and never drops any other."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import torch
import transformers
from transformers import masking_utils as masks

import pyfa_rocm.transformers as adapter
from pyfa_rocm.transformers import _tables
from pyfa_rocm.transformers._mask import is_range, pattern_of, tagged_pattern, tokens_of

SEQLEN = 12
KNOWN = {
    "causal": masks.causal_mask_function,
    "bidirectional": masks.bidirectional_mask_function,
    **{f"window {n}": masks.sliding_window_causal_mask_function(n) for n in (1, 2, 5, 40)},
    **{f"both sides {n}": masks.sliding_window_bidirectional_mask_function(n) for n in (1, 5, 40)},
}
_PREFIX = torch.arange(SEQLEN) < 4
UNKNOWN = {
    "chunked": masks.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long)),
    "or": masks.or_masks(masks.causal_mask_function, lambda b, h, q, k: _PREFIX[q] & _PREFIX[k]),
    "and": masks.and_masks(masks.causal_mask_function, lambda b, h, q, k: k % 2 == 0),
    "blocks": masks.or_masks(
        masks.causal_mask_function, masks.blockwise_overlay(torch.arange(SEQLEN).expand(2, -1) // 3)
    ),
    "a window, and more": masks.and_masks(
        masks.sliding_window_causal_mask_function(5), masks.causal_mask_function
    ),
    "a function": lambda b, h, q, k: k <= q,
}


def dense(function: Any, **sizes: Any) -> np.ndarray:
    given = {"batch_size": 2, "q_length": SEQLEN, "kv_length": SEQLEN} | sizes
    mask = masks.sdpa_mask(**given, mask_function=function, allow_is_causal_skip=False)
    return np.asarray(mask.numpy())


@pytest.mark.parametrize("name", KNOWN)
def test_known_patterns(name: str) -> None:
    """A pattern is transformers' own mask, by the reference's account of causal and window_size."""
    pattern = pattern_of(KNOWN[name])
    assert pattern is not None
    seen = reference.visible(SEQLEN, SEQLEN, causal=pattern.causal, window_size=pattern.window_size)
    np.testing.assert_array_equal(dense(KNOWN[name]), np.broadcast_to(seen, (2, 1, SEQLEN, SEQLEN)))


@pytest.mark.parametrize("name", KNOWN)
def test_packed_patterns(name: str) -> None:
    numbers = torch.tensor([[0] * 5 + [1] + [2] * 6, [0] * 12])
    positions = torch.tensor([[*range(5), 0, *range(6)], [*range(12)]])
    if hasattr(masks, "packed_sequence_compatibility_function"):
        function = masks.packed_sequence_compatibility_function(KNOWN[name], positions, numbers)
    else:  # transformers up to 5.20
        function = masks.and_masks(KNOWN[name], masks.packed_sequence_mask_function(numbers))
    pattern, known = pattern_of(function), pattern_of(KNOWN[name])
    assert pattern is not None
    assert known is not None
    assert (pattern.causal, pattern.window_size) == (known.causal, known.window_size)
    assert pattern.sequences is numbers
    mask = adapter.attention_mask(2, SEQLEN, SEQLEN, mask_function=function)
    assert mask is not None
    assert torch.equal(mask, numbers)
    tagged = tagged_pattern(mask)
    assert tagged is not None
    assert (tagged.causal, tagged.window_size) == (pattern.causal, pattern.window_size)
    assert tagged.sequences is numbers


@pytest.mark.parametrize("name", UNKNOWN)
def test_all_others_are_made(name: str) -> None:
    """As eager attention's, element for element, padding and all."""
    assert pattern_of(UNKNOWN[name]) is None
    padding = torch.ones(2, SEQLEN, dtype=torch.bool)
    padding[1, :3] = False
    given = {"mask_function": UNKNOWN[name], "attention_mask": padding, "dtype": torch.float16}
    mask = adapter.attention_mask(2, SEQLEN, SEQLEN, **given)
    assert mask is not None
    assert torch.equal(mask, masks.eager_mask(2, SEQLEN, SEQLEN, **given))


def test_padding() -> None:
    """Nothing for a batch without; else which keys count, in the pattern that goes with it."""
    padding = torch.ones(2, SEQLEN, dtype=torch.bool)
    window = masks.sliding_window_causal_mask_function(5)
    assert adapter.attention_mask(2, SEQLEN, SEQLEN, attention_mask=padding) is None
    assert adapter.attention_mask(2, SEQLEN, SEQLEN) is None
    wide = masks.sliding_window_causal_mask_function(SEQLEN)
    assert adapter.attention_mask(2, SEQLEN, SEQLEN, mask_function=wide) is None
    full = adapter.attention_mask(2, SEQLEN, SEQLEN, mask_function=window)
    assert full is not None  # so that the window is not left to what the layer says
    assert full.all()
    padding[0, :4] = padding[1, 9:] = False
    for function in (masks.causal_mask_function, window):
        mask = adapter.attention_mask(2, SEQLEN, SEQLEN, mask_function=function, attention_mask=padding)
        assert mask is not None
        assert torch.equal(mask, padding)
        assert tagged_pattern(mask) == pattern_of(function)


def test_gaps() -> None:
    """Padding between tokens leaves a causal mask what it is, but moves what is in a window."""
    padding = torch.ones(1, SEQLEN, dtype=torch.bool)
    padding[0, 4:6] = False
    mask = adapter.attention_mask(1, SEQLEN, SEQLEN, attention_mask=padding)
    assert mask is not None
    assert torch.equal(mask, padding)
    given = {
        "mask_function": masks.sliding_window_causal_mask_function(5),
        "attention_mask": padding,
        "dtype": torch.float16,
    }
    mask = adapter.attention_mask(1, SEQLEN, SEQLEN, **given)
    assert mask is not None
    assert torch.equal(mask, masks.eager_mask(1, SEQLEN, SEQLEN, **given))


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(("q_length", "q_offset", "kv_length", "kv_offset"), [(1, 9, 16, 0), (3, 4, 7, 0)])
def test_caches(q_length: int, q_offset: int, kv_length: int, kv_offset: int, on_device: bool) -> None:
    """A mask names the used part of a cache of fixed size; a cache that grows is used whole."""
    seen = torch.tensor(q_offset) if on_device else q_offset
    mask = adapter.attention_mask(1, q_length, kv_length, seen, kv_offset)
    if kv_length == q_offset + q_length:
        assert mask is None
    else:
        assert mask is not None
        assert mask.tolist() == [[[[0]]], [[[q_offset + q_length]]]]


@pytest.mark.parametrize("name", ["causal", "bidirectional", "window 5"])
@pytest.mark.parametrize("pads", [(3, 0), (0, 0), (5, 8)])
def test_ranges_of_a_cache(name: str, pads: tuple[int, int]) -> None:
    """Where the keys of each sequence are, read as decode does, is transformers' own mask."""
    padding = torch.arange(SEQLEN) >= torch.tensor(pads)[:, None]
    sizes = {"q_length": 2, "kv_length": SEQLEN + 4, "q_offset": SEQLEN - 2, "attention_mask": padding}
    if name == "bidirectional":
        sizes |= {"kv_length": SEQLEN, "q_offset": 0}
    mask = adapter.attention_mask(2, mask_function=KNOWN[name], **sizes)
    if mask is None:
        assert name == "bidirectional"
        assert not any(pads)
        return
    pattern = tagged_pattern(mask)
    assert pattern is not None
    assert is_range(mask)
    want = dense(KNOWN[name], **sizes)
    for b, (begin, end) in enumerate(mask[:, 0, 0].T.tolist()):
        seen = np.zeros((2, sizes["kv_length"]), bool)
        seen[:, begin:end] = reference.visible(
            2, end - begin, causal=pattern.causal, window_size=pattern.window_size
        )
        np.testing.assert_array_equal(want[b, 0], seen)
    np.testing.assert_array_equal(tokens_of(mask)[:, :SEQLEN], padding)


def test_cache_with_gaps() -> None:
    """Padding in between, or at the end, where a causal query would take another key for its own."""
    for gap in (slice(4, 6), slice(SEQLEN - 1, None)):
        padding = torch.ones(2, SEQLEN, dtype=torch.bool)
        padding[0, gap] = False
        mask = adapter.attention_mask(2, 1, SEQLEN, SEQLEN - 1, attention_mask=padding)
        assert mask is not None
        assert torch.equal(mask, padding)


@pytest.mark.parametrize("name", ["position_bias", "cache"])
def test_what_no_kernel_does(name: str) -> None:
    x = torch.zeros(1, 2, 8, 64, dtype=torch.float16)
    with pytest.raises(NotImplementedError, match=f"{name}: got a Tensor, expected None"):
        adapter.attention_forward(torch.nn.Identity(), x, x, x, None, **{name: x})


def test_a_changed_range() -> None:
    x, mask = torch.zeros(3, 2, 8, 64, dtype=torch.float16), torch.zeros(2, 1, 1, 2, dtype=torch.int32)
    with pytest.raises(
        ValueError, match=r"attention_mask: got int32 \(2, 1, 1, 2\), expected \(2, 1, 1, 3\)"
    ):
        adapter.attention_forward(torch.nn.Identity(), x, x, x, mask)


def test_sinks_of_another_number() -> None:
    x = torch.zeros(1, 2, 8, 64, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"s_aux: got shape \(3,\), expected \(2,\)"):
        adapter.attention_forward(torch.nn.Identity(), x, x, x, None, s_aux=torch.zeros(3))


OTHERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "bloom": ("Bloom", {"n_layer": 1, "n_head": 2}, "BloomAttention.*'eager' works"),
    "mpt": ("Mpt", {"n_layers": 1, "n_heads": 2}, "MptAttention.*'eager' works"),
    "falcon": ("Falcon", {"num_hidden_layers": 1, "num_attention_heads": 2, "alibi": True}, "eager.*falcon"),
    "gptj": ("GPTJ", {"n_layer": 1, "n_head": 2, "rotary_dim": 8}, "'eager'.*gptj"),
    "gpt_neo": (
        "GPTNeo",
        {"num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]},
        "'eager'.*gpt_neo",
    ),
}


@pytest.mark.parametrize(("name", "sizes", "message"), OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("padded", [False, True])
def test_models_with_attention_of_their_own(
    name: str, sizes: dict[str, Any], message: str, padded: bool
) -> None:
    """They would misread the mask: without one, BLOOM would see keys to come."""
    adapter.register()
    mask = torch.ones(1, 8, dtype=torch.long)
    mask[:, : 3 * padded] = 0

    def run() -> None:
        config = getattr(transformers, f"{name}Config")(
            vocab_size=16,
            hidden_size=32,
            attn_implementation="pyfa_rocm",
            bos_token_id=1,
            eos_token_id=1,
            **sizes,
        )
        getattr(transformers, f"{name}Model")(config)(torch.arange(8)[None], attention_mask=mask)

    with pytest.raises(NotImplementedError, match=message), torch.no_grad():
        run()


def test_every_table_of_attention_classes_is_known() -> None:
    """A release of transformers with another table fails here."""
    models = Path(transformers.__file__).parent / "models"
    found = [p for p in models.glob("*/modeling_*.py") if f"{_tables.SUFFIX} = {{" in p.read_text("utf-8")]
    assert found
    assert {f"{p.parent.name}.{p.stem}" for p in found} <= set(_tables.MODULES)


def test_register_again() -> None:
    for _ in range(2):
        adapter.register()
    assert "pyfa_rocm" in transformers.AttentionInterface()
    assert "pyfa_rocm" in transformers.AttentionMaskInterface()


def test_transformers_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("transformers"), "__version__", "4.57.1")
    for name in [name for name in sys.modules if name.startswith("pyfa_rocm.transformers")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"needs transformers 5 or newer, got 4\.57\.1"):
        importlib.import_module("pyfa_rocm.transformers")
