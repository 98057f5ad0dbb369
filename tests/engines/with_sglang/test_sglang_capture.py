# SPDX-License-Identifier: MIT OR Apache-2.0
"""A step of the backend in a graph, as SGLang captures it: nothing is allocated or awaited, or HIP refuses.

There is no card here. The backend fills its buffers on the CPU, outside the graph, and they are copied to the
software device, where a second backend's captured step reads them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from adapters import torch_card
from capture import Graph, upload
from engines.on_card import OnCard, on_card, to_numpy
from engines.with_sglang import sglang_batches as sg
from engines.with_sglang.sglang_batches import (
    HDIM,
    HEADS,
    KEYS,
    RANK,
    ROW,
    attend,
    batch,
    latent_layer,
    layer,
    place,
    random,
    runner,
)
from sglang.srt.model_executor.forward_batch_info import ForwardMode

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.sglang._backend import Backend
from pyfa_rocm.sglang._latent import LatentBackend
from pyfa_rocm.sglang._step import Pages, Step
from pyfa_rocm.torch._serving import of_heads

card = torch_card.card
EMPTY, ZEROS = torch.empty, torch.zeros
# The last sequence pads the batch, as SGLang does it: one token of request 0.
LENGTHS = ((33, 20, 50, 1), (1, 100, 17, 1), (128, 31, 32, 1))


def buffers(step: Step) -> dict[str, torch.Tensor]:
    """The tensors that a captured step reads, by name."""
    held = {"query_start_loc": step.query_start_loc, "seq_lens": step.seq_lens}
    for name in ("whole", "window"):
        pages = getattr(step, name)
        held |= {f"{name} table": pages.table, f"{name} slots": pages.slots}
    return held


def stepped(like: Step, held: dict[str, Any]) -> Step:
    """The same step, with its buffers elsewhere."""
    pages = {name: Pages(held[f"{name} table"], held[f"{name} slots"]) for name in ("whole", "window")}
    rest = {"query_start_loc": held["query_start_loc"], "seq_lens": held["seq_lens"]}
    return Step(max_query_len=1, max_seq_len=like.max_seq_len, begins=False, **rest, **pages)


@pytest.fixture
def torch_on_card(
    card: torch_card.CurrentStream, monkeypatch: pytest.MonkeyPatch
) -> torch_card.CurrentStream:
    """As `card`, for tensors of which the backend makes views; the rest of SGLang has the CPU's torch."""
    given = torch.empty

    def empty(*shape: Any, **options: Any) -> torch.Tensor:
        if torch.device(options.get("device", "cpu")).type != "cuda":
            return EMPTY(*shape, **options)
        made: Any = given(*shape, **options)
        return OnCard(made.array, EMPTY(made.shape, dtype=made.dtype, device="meta"))

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch, "zeros", ZEROS)
    return card


class Twins:
    """A backend on the CPU, and one whose pool is a copy of the first one's in the device's memory."""

    def __init__(self, case: str, kind: torch.dtype, page_size: int) -> None:
        windows, latent = case == "windows", case == "latent"
        pools = [
            sg.latent_pool(page_size, kind) if latent else sg.pool(page_size, kind, windows) for _ in range(2)
        ]
        self.model, other = (runner(x, latent) for x in pools)
        self.plain, self.captured = ((LatentBackend if latent else Backend)(x) for x in (self.model, other))
        self.layer = latent_layer(HEADS, 1) if latent else layer(1, sliding_window_size=20 if windows else -1)
        if kind.itemsize == 1:
            scales = {"k_scale": torch.tensor(0.5), "v_scale": torch.tensor(2.0)}
            self.layer.k_scale, self.layer.v_scale = scales.values()
            heads = 1 if latent else KEYS
            self.captured.held_scales[1] = {name: on_card(of_heads(x, heads)) for name, x in scales.items()}
        self.caches = []
        for name in ("kv_buffer",) if latent else ("k_buffer", "v_buffer"):
            here, there = (getattr(x.swa_kv_pool if windows else x, name) for x in pools)
            number = 0 if windows else 1
            old = random(*here[number].shape).to(kind)
            here[number].copy_(old.view(here[number].dtype))
            there[number] = on_card(here[number])
            self.caches.append((here[number], there[number]))
        self.plain.init_cuda_graph_state(8, 8)

    def step(self, lengths: tuple[int, ...], in_capture: bool) -> tuple[Any, dict[str, torch.Tensor]]:
        """A batch of the last of these, and what a captured step of it reads."""
        place(self.model, lengths[:3], seed=sum(lengths))
        step = batch(self.model, lengths)
        self.plain.init_forward_metadata_out_graph(step, in_capture=in_capture)
        assert self.plain.forward_metadata is not None
        return step, buffers(self.plain.forward_metadata)


@pytest.mark.parametrize("case", ["pool", "windows", "latent"])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fnuz"])
def test_captured_step(torch_on_card: torch_card.CurrentStream, kind: str, page_size: int, case: str) -> None:
    """Captured once, it serves sequences of other lengths, with the bits of a plain step."""
    twins = Twins(case, getattr(torch, kind), page_size)
    first, held = twins.step(LENGTHS[0], True)
    places = {name: x.data_ptr() for name, x in held.items()}
    inputs = {name: random(4, n, HDIM) for name, n in (("q", HEADS), ("k", KEYS), ("v", KEYS))}
    if case == "latent":  # the value is the beginning of the row
        inputs = {"q": random(4, HEADS, ROW), "k": random(4, 1, ROW)}
    device = {name: on_card(x.contiguous()) for name, x in (held | inputs).items()}

    def operands(x: dict[str, Any]) -> tuple[Any, Any, Any]:
        return x["q"], x["k"], x["v"] if "v" in x else x["k"][..., :RANK]

    assert twins.plain.forward_metadata is not None
    twins.captured.forward_metadata = stepped(twins.plain.forward_metadata, device)
    results: list[Any] = []

    def enqueue(_: object) -> None:
        results.append(twins.captured.forward_decode(*operands(device), twins.layer, first))

    with Graph(enqueue, torch_on_card.stream) as graph:
        for number, lengths in enumerate(LENGTHS):
            step, held = twins.step(lengths, False)
            assert places == {name: x.data_ptr() for name, x in held.items()}
            now = {name: x + number for name, x in inputs.items()}
            for name, x in (held | now).items():
                upload(device[name].array, to_numpy(x.contiguous()))
            graph.replay()
            want = attend(twins.plain, twins.layer, *operands(now), step)
            got = results[-1].array.to_numpy().reshape(want.shape)
            np.testing.assert_array_equal(got, to_numpy(want))
            for here, there in twins.caches:
                np.testing.assert_array_equal(there.array.to_numpy(), to_numpy(here))


@pytest.mark.parametrize("latent", [False, True], ids=["pool", "latent"])
def test_only_single_tokens_are_captured(latent: bool) -> None:
    model = runner(sg.latent_pool() if latent else sg.pool(), latent)
    backend = (LatentBackend if latent else Backend)(model)
    place(model, (20,))
    assert backend.get_cuda_graph_seq_len_fill_value() == 1
    backend.init_cuda_graph_state(8, 8)
    with pytest.raises(UnsupportedError, match="a graph of EXTEND: only DECODE is captured"):
        backend.init_forward_metadata_out_graph(batch(model, (20,), (20,), ForwardMode.EXTEND))
