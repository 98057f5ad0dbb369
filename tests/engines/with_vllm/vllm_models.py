# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random models of each kind of attention, with a tokenizer, as transformers stores them.

Weights of 0.1 make attention count: with those of vLLM's own dummies, 0.001, a wrong kernel would pass.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers as tr

VOCABULARY = 512
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 1024, "initializer_range": 0.1, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
# One expert too many, and rounding would choose another.
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2}
WINDOW = 48


def llama(**sizes: Any) -> Any:
    """Four query heads of 64 over two of keys."""
    config = {"num_key_value_heads": 2, "head_dim": 64} | sizes
    return tr.LlamaForCausalLM(tr.LlamaConfig(**SIZES, **config))


def qwen3() -> Any:
    """Heads of 128 over one of keys, normalised."""
    return tr.Qwen3ForCausalLM(tr.Qwen3Config(**SIZES, num_key_value_heads=1, head_dim=128))


def gemma2() -> Any:
    """Softcap, and windows in every other layer."""
    sizes = SIZES | {"num_hidden_layers": 4}
    return tr.Gemma2ForCausalLM(
        tr.Gemma2Config(
            **sizes, num_key_value_heads=2, head_dim=64, sliding_window=WINDOW,
            query_pre_attn_scalar=64, attn_logit_softcapping=5.0, final_logit_softcapping=30.0,
        )
    )  # fmt: skip


def gpt_oss() -> Any:
    """Sinks, and a window in one layer."""
    sizes = SIZES | {"intermediate_size": 128}
    model = tr.GptOssForCausalLM(
        tr.GptOssConfig(
            **sizes, **EXPERTS, num_key_value_heads=2, head_dim=64, sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention"],
        )
    )  # fmt: skip
    for layer in model.model.layers:
        layer.self_attn.sinks.data.normal_(0, 1)
    return model


def bloom() -> Any:
    """ALiBi."""
    return tr.BloomForCausalLM(
        tr.BloomConfig(
            vocab_size=VOCABULARY, hidden_size=256, n_layer=2, n_head=4, initializer_range=0.1,
            bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )
    )  # fmt: skip


def deepseek(nope: int = 128) -> Any:
    """Latent attention; `nope` are the elements of a head without rotation."""
    return tr.DeepseekV3ForCausalLM(
        tr.DeepseekV3Config(
            **SIZES, num_key_value_heads=4, moe_intermediate_size=64, n_routed_experts=2,
            n_shared_experts=1, num_experts_per_tok=2, rope_interleave=True, first_k_dense_replace=2,
            kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=nope, v_head_dim=128,
            n_group=1, topk_group=1,
        )
    )  # fmt: skip


def modernbert() -> Any:
    """An encoder, with a window in one layer of three."""
    sizes = SIZES | {"num_hidden_layers": 3, "num_attention_heads": 2}
    return tr.ModernBertModel(
        tr.ModernBertConfig(
            **sizes, local_attention=WINDOW, global_attn_every_n_layers=3, cls_token_id=1, sep_token_id=2
        )
    )


MODELS: dict[str, Callable[[], Any]] = {
    "llama": llama, "qwen3": qwen3, "gemma2": gemma2, "gpt_oss": gpt_oss, "bloom": bloom,
    "deepseek": deepseek, "deepseek_64": lambda: deepseek(nope=64), "modernbert": modernbert,
}  # fmt: skip


def save_tokenizer(folder: Path) -> None:
    """A word for each token: "t17" is 17."""
    words = {f"t{i}": i for i in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="t3"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tr.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="t1", eos_token="t2", pad_token="t0", unk_token="t3"
    ).save_pretrained(folder)


def save(name: str, folder: Path) -> Path:
    """Store a model in bfloat16, in a folder of its name."""
    torch.manual_seed(0)
    MODELS[name]().to(torch.bfloat16).save_pretrained(folder / name)
    save_tokenizer(folder / name)
    return folder / name
