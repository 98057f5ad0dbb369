# SPDX-License-Identifier: MIT OR Apache-2.0
"""Small models of random weights by attn_implementation="pyfa_rocm", and what judges them.

Two comparisons. Each call of a layer is judged by the reference and its derived tolerance, with the keys each
query sees from transformers' own mask of all of them. And logits are compared with those of the model in
float64: their error may not be above that of the model computed eagerly in the same type. Outside of the
attention both round alike; inside, eager rounds scores, probabilities and output to the type, the kernels
only the probabilities and the output. So the expected error is at most eager's, and what two samples of it
may differ by is the spread of a root mean square over the independent errors of one hidden state:
1 / sqrt(2 * hidden_size) of it, three times, for each of the two.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import reference
import torch
import transformers
from cases_judge import judge
from cases_types import Array
from transformers import masking_utils

import pyfa_rocm.transformers

HIDDEN, HEADS, VOCABULARY, WINDOW = 256, 4, 97, 16
SLACK = 1 + 2 * 3 / (2 * HIDDEN) ** 0.5
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 256,
    # So large that attention is far from even, and a wrong mask far from right.
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}


SETTINGS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"sliding_window": WINDOW},
    "Gemma2ForCausalLM": {
        "sliding_window": WINDOW, "query_pre_attn_scalar": 64, "attn_logit_softcapping": 5.0,
    },
    "Gemma3ForCausalLM": {
        "sliding_window": WINDOW, "query_pre_attn_scalar": 64,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    # A layer with a window, and both with sinks. All experts are used: of few, rounding could choose others.
    "GptOssForCausalLM": {
        "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"],
        "num_local_experts": 2, "num_experts_per_tok": 2, "experts_implementation": "eager",
    },
    "BartForConditionalGeneration": {
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": HEADS, "init_std": 0.1,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256,
        "decoder_start_token_id": 2, "forced_eos_token_id": None,
    },
    "BertForMaskedLM": {},
    # Its layers in turns see all, and 8 tokens to each side.
    "ModernBertForMaskedLM": {
        "local_attention": 16, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2,
    },
}  # fmt: skip


# The seeds of weights whose greedy tokens lead by more than logits of bfloat16 may be off: by 0.2 in gpt-oss.
SEEDS = {"GptOssForCausalLM": 25}


class Checked:
    """The implementation under test, each call of it compared with the reference."""

    def __init__(self) -> None:
        self.calls = 0
        self.dense: dict[bool, torch.Tensor] = {}

    def mask(self, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        self.dense["local_size" in kwargs] = masking_utils.eager_mask(*args, **kwargs) == 0
        return pyfa_rocm.transformers.attention_mask(*args, **kwargs)

    def attention(self, module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
        out, weights = pyfa_rocm.transformers.attention_forward(module, query, key, value, mask, **kwargs)
        seen = self.dense[kwargs.get("sliding_window") is not None][:, 0, :, : key.shape[2]].numpy()
        q, k, v = (x.transpose(1, 2).float().numpy() for x in (query, key, value))
        in_use = int(np.flatnonzero(seen.any((0, 1)))[-1]) + 1
        for b, row in np.ndindex(*seen.shape[:2]):
            keys = seen[b, row]
            # A query that does not see itself is padding.
            if not keys[in_use - seen.shape[1] + row]:
                continue
            given = q[b : b + 1, row : row + 1], k[b : b + 1, keys], v[b : b + 1, keys]
            want = expected(*given, kwargs, str(query.dtype).removeprefix("torch."))
            judge(want, out[b : b + 1, row : row + 1].float().numpy(), None)
        self.calls += 1
        return out, weights


def expected(q: Array, k: Array, v: Array, kwargs: dict[str, Any], dtype: str) -> reference.Expected:
    """The oracle's answer to a query that sees all keys given.

    A sink is to it a key of value 0, which an additional dimension of the queries is there for: the scores of
    the other keys have none of it.
    """
    numerics = reference.numerics_of(dtype, arch="gfx942")
    scale, sinks = kwargs["scaling"], kwargs.get("s_aux")
    options = {"softmax_scale": scale, "softcap": kwargs.get("softcap") or 0.0, "numerics": numerics}
    if sinks is None:
        return reference.attention(q, k, v, **options)
    # Each query head has a key of its own, so that it can have its sink's.
    group = q.shape[2] // k.shape[2]
    k, v = (np.pad(x.repeat(group, axis=2), ((0, 0), (0, 1), (0, 0), (0, 0))) for x in (k, v))
    q, k = np.pad(q, ((0, 0),) * 3 + ((0, 8),)), np.pad(k, ((0, 0),) * 3 + ((0, 8),))
    q[..., -1], k[:, -1, :, -1] = 1, sinks.float().numpy() / scale
    want = reference.attention(q, k, v, **options)
    # The forward kernels' outputs are rounded before the sinks' share is taken off, and after.
    half_ulp = torch.finfo(getattr(torch, dtype)).eps / 2
    return replace(want, o_tolerance=want.o_tolerance + half_ulp * np.abs(want.o))


def exact_attention(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The model's own eager attention."""
    return sys.modules[type(module).__module__].eager_attention_forward(module, *args, **kwargs)


def exact_mask(*args: Any, dtype: torch.dtype, **kwargs: Any) -> Any:
    """transformers' eager mask, in float32: eager attention adds it in float64, but its softmax is float32's,
    where the least float64 is -inf and padding, which sees nothing, would get NaN.
    """
    return masking_utils.eager_mask(*args, dtype=torch.float32, **kwargs)


def register() -> Checked:
    """Make known to transformers what is tested, the same with each call judged, and eager in float64."""
    check = Checked()
    pyfa_rocm.transformers.register()
    transformers.AttentionInterface.register("exact", exact_attention)
    transformers.AttentionMaskInterface.register("exact", exact_mask)
    transformers.AttentionInterface.register("checked", check.attention)
    transformers.AttentionMaskInterface.register("checked", check.mask)
    return check


class Models:
    """A model in float64, and in a small type by two implementations, all of the same weights."""

    def __init__(self, kind: str, dtype: torch.dtype, implementation: str = "checked") -> None:
        torch.manual_seed(SEEDS.get(kind, 3))
        cls = getattr(transformers, kind)
        config = cls.config_class(**COMMON | SETTINGS[kind])
        model = cls(config)
        state = model.to(dtype).state_dict()

        def made(dtype: torch.dtype, implementation: str) -> Any:
            result = cls(copy.deepcopy(config)).eval()
            result.load_state_dict(state)
            result.set_attn_implementation(implementation)
            return result.to(dtype)

        self.exact = made(torch.float64, "exact")
        self.eager = made(dtype, "eager")
        self.ours = made(dtype, implementation)

    def compare(self, ours: torch.Tensor, tokens: torch.Tensor, **inputs: Any) -> None:
        """Judge logits, those of `tokens`, by the float64 model's and the error of the eager one's."""
        with torch.no_grad():
            exact, eager = (m(**inputs).logits.double()[tokens] for m in (self.exact, self.eager))
        error, allowed = ((x.double() - exact).square().mean().sqrt() for x in (ours, eager))
        assert error <= SLACK * allowed, (error, allowed)

    def check(self, tokens: torch.Tensor, **inputs: Any) -> None:
        with torch.no_grad():
            self.compare(self.ours(**inputs).logits[tokens], tokens, **inputs)


def ids(batch: int, seqlen: int) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (batch, seqlen), generator=torch.Generator().manual_seed(1))


def padding(lengths: tuple[int, ...], seqlen: int, side: str) -> torch.Tensor:
    """1 for tokens: `lengths` of them at the right, at the left, or in the middle."""
    result = torch.zeros(len(lengths), seqlen, dtype=torch.long)
    for row, length in zip(result, lengths, strict=True):
        begin = {"left": seqlen - length, "right": 0, "both": (seqlen - length) // 2}[side]
        row[begin : begin + length] = 1
    return result
