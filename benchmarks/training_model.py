# SPDX-License-Identifier: MIT OR Apache-2.0
"""The transformer that training_step.py trains, and the ways in which it can attend.

Parameters are float32; with a 16-bit type the matrix products and attention run under autocast. Tokens follow
a rule that can be learnt, with some noise, so that the loss falls.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.training_config import Config

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
NOISE = 0.1  # share of tokens that follow no rule


class NotInstalledError(Exception):
    """A backend's package is missing."""


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention as it is written down; (batch, seqlen, heads, hdim)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return (torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v).transpose(1, 2)


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """torch's own; (batch, seqlen, heads, hdim)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _flash_attn() -> Any:
    """The real package's function: one that stands in for it is not what was asked for."""
    try:
        importlib.metadata.version("flash-attn")
        return importlib.import_module("flash_attn").flash_attn_func
    except (ImportError, importlib.metadata.PackageNotFoundError) as error:
        raise NotInstalledError(
            f"backend flash_attn needs the package flash-attn, which is not there ({error}); the others are "
            "pyfa_rocm, sdpa and eager"
        ) from error


def backend(name: str) -> tuple[Attend, str]:
    """Return a way to attend, importing only what it needs, and the name of the function that it calls."""
    if name == "eager":
        return eager, "training_model.eager"
    if name == "sdpa":
        return sdpa, "torch.nn.functional.scaled_dot_product_attention"
    if name == "flash_attn":
        function = _flash_attn()
    else:
        function = importlib.import_module("pyfa_rocm.torch").flash_attn_func

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return function(q, k, v, causal=True)

    return attend, f"{name}.torch.flash_attn_func" if name == "pyfa_rocm" else f"{name}.flash_attn_func"


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm and added to its input."""

    def __init__(self, config: Config, attend: Attend) -> None:
        super().__init__()
        width = config.d_model
        self.heads, self.attend = config.heads, attend
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seqlen, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, seqlen, 3, self.heads, width // self.heads)
        attended = self.attend(*qkv.unbind(2)).reshape(batch, seqlen, width)
        x = x + self.out(attended)
        return x + self.mlp(self.norm_mlp(x))


class Transformer(nn.Module):
    """Tokens to the logits of the next token."""

    def __init__(self, config: Config, attend: Attend) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.d_model)
        self.positions = nn.Embedding(config.seqlen, config.d_model)
        self.blocks = nn.ModuleList(Block(config, attend) for _ in range(config.layers))
        self.norm, self.head = nn.LayerNorm(config.d_model), nn.Linear(config.d_model, config.vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def tokens(config: Config, device: str) -> Iterator[torch.Tensor]:
    """Yield batches (batch, seqlen + 1), by the seed: most tokens follow from the one before."""
    generator = torch.Generator().manual_seed(config.seed)
    shape = (config.batch, config.seqlen + 1)
    while True:
        random = torch.randint(config.vocab, shape, generator=generator)
        noise = torch.rand(shape, generator=generator) < NOISE
        for i in range(1, shape[1]):
            random[:, i] = torch.where(noise[:, i], random[:, i], (5 * random[:, i - 1] + 3) % config.vocab)
        yield random.to(device)


class Training:
    """A model, its optimizer and its batches."""

    def __init__(self, config: Config, attend: Attend) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.device == "cpu":
            torch.set_num_threads(1)  # small matrices; on busy cores several threads take 100 times as long
        torch.manual_seed(config.seed)
        self.config = config
        self.model = Transformer(config, attend).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.learning_rate)
        self._batches = tokens(config, self.device)

    def step(self) -> float:
        """Forward, backward, optimizer step; returns the loss, so it is done when it returns."""
        batch = next(self._batches)
        dtype = getattr(torch, self.config.dtype)
        with torch.autocast(self.device, dtype=dtype, enabled=dtype != torch.float32):
            logits = self.model(batch[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def peak_bytes(self) -> int:
        """Return the peak of what torch had on the card; without one, of what this process had in memory."""
        if self.device == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def losses(config: Config, name: str) -> list[float]:
    """Train without timing: the loss of each of config.steps steps."""
    training = Training(config, backend(name)[0])
    return [training.step() for _ in range(config.steps)]


def _kernels(training: Training) -> list[str]:
    """Return our kernels that a step runs, as the software device tells; [] on a card, which does not."""
    emulator = importlib.import_module("pyfa_rocm.emulator")
    if not importlib.import_module("pyfa_rocm").runtime().emulated:
        training.step()
        return []
    with emulator.profile() as profile:
        training.step()
    return sorted({launch.kernel for launch in profile.launches})


def measure(config: Config, name: str) -> dict[str, Any]:
    """Time steps of one backend."""
    attend, symbol = backend(name)
    training = Training(config, attend)
    kernels = _kernels(training) if name == "pyfa_rocm" else []
    for _ in range(config.warmup):
        training.step()
    taken, loss = [], float("nan")
    for _ in range(config.steps):
        begin = time.perf_counter()
        loss = training.step()
        taken.append(time.perf_counter() - begin)
    step = statistics.median(taken)
    return {
        "backend": name,
        "symbol": symbol,
        "kernels": kernels,
        "device": torch.cuda.get_device_name() if training.device == "cuda" else "cpu",
        "median_step_seconds": step,
        "steps_per_second": 1 / step,
        "tokens_per_second": config.batch * config.seqlen / step,
        "peak_bytes": training.peak_bytes(),
        "loss": loss,
    }
