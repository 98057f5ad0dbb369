# SPDX-License-Identifier: MIT OR Apache-2.0
"""DeepSpeed's ALST, unmodified: a model of transformers whose sequences two ranks share, on these kernels.

The judge is that of `test_others`: at most twice the error of the same model on one rank with transformers'
own attention, which computes in the same precision, and one more rounding of each rank's part.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engines.with_parallel.ranks import Ranks, record
from torch import distributed
from torch.utils.data import DataLoader

import pyfa_rocm.flash_attn
import pyfa_rocm.transformers
from pyfa_rocm import emulator

RANKS, TOKENS, LAYERS, VOCABULARY = 2, 80, 2, 64
SIZES: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "head_dim": 64, "vocab_size": VOCABULARY, "max_position_embeddings": TOKENS, "initializer_range": 0.1,
}  # fmt: skip
# Attention of transformers, heads of k, the lengths of the sequences in a row, and ZeRO's stage.
CASES: dict[str, tuple[Any, ...]] = {
    "flash_attention_2": ("flash_attention_2", 2, (TOKENS,)),
    "flash_attention_2, packed": ("flash_attention_2", 2, (50, 30)),
    "one key head": ("flash_attention_2", 1, (TOKENS,)),
    "flash_attention_2, ZeRO 1": ("flash_attention_2", 2, (TOKENS,), 1),
    "flash_attention_2, ZeRO 3": ("flash_attention_2", 2, (TOKENS,), 3),
    "pyfa_rocm": ("pyfa_rocm", 2, (TOKENS,)),
    "pyfa_rocm, packed": ("pyfa_rocm", 2, (50, 30)),
}
Tensors = dict[str, torch.Tensor]


def _model(attention: str, nhead_k: int, dtype: torch.dtype) -> Any:
    """Llama with random weights, the same float16 numbers in any type."""
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=nhead_k, attn_implementation=attention)
    return transformers.LlamaForCausalLM(config).half().to(dtype).train()


def _batches(lengths: tuple[int, ...]) -> list[dict[str, torch.Tensor]]:
    """A batch for each rank: DeepSpeed gives all ranks parts of one after the other."""
    generator = torch.Generator().manual_seed(1)
    positions = torch.cat([torch.arange(x) for x in lengths])
    found = []
    for _ in range(RANKS):
        ids = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
        found.append({"input_ids": ids, "position_ids": positions, "labels": ids})
    return found


def _losses(logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).double(), batch["shift_labels"].flatten(), ignore_index=-100, reduction="sum"
    )


def _train(model: Any, batch: dict[str, torch.Tensor]) -> Tensors:
    """The logits, and the gradients of the sum of losses, of these tokens."""
    logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    losses = _losses(logits, batch)
    names, leaves = zip(*((name, x) for name, x in model.named_parameters() if x.ndim > 1), strict=True)
    gradients = torch.autograd.grad(losses, leaves)
    found = {"logits": logits.detach(), **dict(zip(names, gradients, strict=True))}
    return {name: x.double() for name, x in found.items()}


def _find_flash_attn() -> None:
    """Let transformers find the drop-in; it would want a card, too."""
    pyfa_rocm.flash_attn.install()
    transformers = importlib.import_module("transformers")
    utils = importlib.import_module("transformers.utils.import_utils")
    utils.is_torch_cuda_available = lambda: True  # type: ignore[attr-defined]
    transformers.PreTrainedModel._flash_attn_can_dispatch = lambda *_, **__: True


def _train_by_zero(stage: int, model: Any, mpu: Any, batch: dict[str, torch.Tensor]) -> Tensors:
    """The same, by DeepSpeed's engine, which cuts what the optimizer needs among ranks."""
    config = {
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage},
        "fp16": {"enabled": True, "loss_scale": 1.0}, "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    os.environ["LOCAL_RANK"] = str(distributed.get_rank())  # a launcher would say it
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    deepspeed = importlib.import_module("deepspeed")
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, mpu=mpu)
    logits = engine(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    engine.backward(_losses(logits, batch))
    whole = importlib.import_module("deepspeed.utils").safe_get_full_grad
    # The third stage takes the mean over ranks, of which each has a part of the tokens; the others their sum.
    scale = RANKS if stage == 3 else 1
    weights = {
        name: x for name, x in engine.module.named_parameters() if len(getattr(x, "ds_shape", x.shape)) > 1
    }
    found = {name: whole(x) * scale for name, x in weights.items()}
    return {name: x.detach().double() for name, x in {"logits": logits, **found}.items()}


def _share(
    attention: str, nhead_k: int, lengths: tuple[int, ...], stage: int = 0
) -> tuple[Tensors, list[str]]:
    """Return what a rank has of the first batch, and the kernels that it launched."""
    _find_flash_attn()
    pyfa_rocm.transformers.register()
    # Without a card DeepSpeed would compile C++ of its own for collectives, for minutes.
    importlib.import_module("deepspeed.ops").__compatible_ops__ = {}  # type: ignore[attr-defined]
    comm = importlib.import_module("deepspeed.comm")
    alst = importlib.import_module("deepspeed.runtime.sequence_parallel.ulysses_sp")
    groups = importlib.import_module("deepspeed.runtime.sequence_parallel.parallel_state_sp")
    functions = importlib.import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS
    comm.init_distributed("gloo")
    model = _model(attention, nhead_k, torch.float16)
    try:
        mpu = alst.UlyssesSPAttentionHF.register_with_transformers(
            model_name_or_path=model, core_attn_implementation=attention, sequence_parallel_size=RANKS,
            micro_batch_size=1, seq_length_is_variable=True,
        )  # fmt: skip
        loader = alst.UlyssesSPDataLoaderAdapter(
            DataLoader(_batches(lengths)[distributed.get_rank() :], batch_size=1),
            sp_rank=mpu.get_sequence_parallel_rank(), sp_group=mpu.get_sequence_parallel_group(),
            sp_world_size=RANKS, device=torch.device("cpu"),
        )  # fmt: skip
        with emulator.profile() as profile:
            batch = next(iter(loader))
            found = _train_by_zero(stage, model, mpu, batch) if stage else _train(model, batch)
    finally:  # for the next case, in the same process
        functions.pop(attention, None)
        groups._release_sequence_parallel_groups()
    for name, x in found.items():  # a rank has the gradients of its own tokens
        if name != "logits" and not stage:
            distributed.all_reduce(x)
    return found, sorted({launch.kernel for launch in profile.launches})


def _whole(nhead_k: int, lengths: tuple[int, ...], dtype: torch.dtype) -> Tensors:
    """The same on one rank, by transformers' own attention."""
    batch = {name: x[None] for name, x in _batches(lengths)[0].items()}
    labels = torch.nn.functional.pad(batch["labels"], (0, 1), value=-100)
    batch["shift_labels"] = labels[..., 1:].contiguous()
    return _train(_model("eager", nhead_k, dtype), batch)


@pytest.mark.parametrize("case", CASES)
def test_deepspeed(ranks: Callable[[int], Ranks], case: str) -> None:
    attention, nhead_k, lengths, *stage = CASES[case]
    exact, low = (_whole(nhead_k, lengths, x) for x in (torch.float64, torch.float16))
    results = ranks(RANKS).all(_share, attention, nhead_k, lengths, *stage)
    got = results[0][0] | {"logits": torch.cat([x["logits"] for x, _ in results], 1)}
    parts = {}
    for name, x in got.items():
        rounding = torch.finfo(torch.float16).eps * exact[name].abs().max()
        allowed = 2 * (low[name] - exact[name]).abs().max() + RANKS * rounding
        error = (x - exact[name]).abs().max()
        assert error <= allowed, name
        parts[name] = float(error / allowed)
    kernels = {x for _, names in results for x in names}
    assert any("_bwd_" in x for x in kernels)
    record("deepspeed", f"ALST, {case}, {RANKS} ranks", max(parts.values()), kernels)
