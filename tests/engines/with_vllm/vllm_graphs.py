# SPDX-License-Identifier: MIT OR Apache-2.0
"""Graphs in vLLM for CPUs: its own compiler, runner, dispatcher and wrapper, on a stand-in for torch.cuda's.

vLLM for CPUs says that it has no graphs, and leaves out its capture. Here it says that it has them. Then vLLM
cuts the model at attention, warms steps up, captures them, pads and dispatches as on a card.

A graph stands for what torch.cuda.graph would have recorded: a call, with the tensors and the description of
the step that it had in its capture. A replay does that call again, whatever step it is by now, and writes its
results where the capture had them. So a captured step that needs anything but the contents of those tensors
gives other tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from vllm import forward_context
from vllm.compilation import cuda_graph
from vllm.config import CUDAGraphMode
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

Wrapper: Any = cuda_graph.CUDAGraphWrapper


class Graph:
    """torch.cuda.CUDAGraph: the call of a wrapper, as it was in its capture."""

    counts: ClassVar[Counter[str]] = Counter()
    wrapped: ClassVar[tuple[str, Callable[[], Any]]]

    def __init__(self) -> None:
        self.mode, self.call = Graph.wrapped
        self.context = forward_context.get_forward_context()
        self.results: list[torch.Tensor] = []
        Graph.counts[f"{self.mode} captured"] += 1

    def replay(self) -> None:
        with forward_context.override_forward_context(self.context):
            found = tensors(self.call())
        for to, x in zip(self.results, found, strict=True):
            to.copy_(x)
        Graph.counts[f"{self.mode} replayed"] += 1


def tensors(x: Any) -> list[torch.Tensor]:
    """The tensors that a call returns."""
    if isinstance(x, torch.Tensor):
        return [x]
    return [y for part in x for y in tensors(part)] if isinstance(x, list | tuple) else []


def called(call: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a wrapper; a graph that it captures has this call, and its results."""
    before = set(self.concrete_cudagraph_entries)
    Graph.wrapped = self.runtime_mode.name, partial(self.runnable, *args, **kwargs)
    result = call(self, *args, **kwargs)
    for new in self.concrete_cudagraph_entries.keys() - before:
        graph: Any = self.concrete_cudagraph_entries[new].cudagraph
        graph.results = tensors(result)
    return result


@contextmanager
def graphs_on_the_cpu() -> Iterator[Counter[str]]:
    """Let vLLM for CPUs capture what its configuration asks for; gives how often it captured and replayed."""
    check, load, warm = (
        CpuPlatform.check_and_update_config, CPUModelRunner.load_model, CPUWorker.compile_or_warm_up_model
    )  # fmt: skip
    call, name_of_wrapper = Wrapper.__call__, f"{Wrapper.__module__}.{Wrapper.__name__}"

    def checked(config: Any) -> None:
        held = config.compilation_config
        kept = {name: getattr(held, name) for name in ("mode", "backend", "cudagraph_capture_sizes")}
        check(config)
        for name, value in kept.items():
            setattr(held, name, value)

    def loaded(self: Any, *args: Any, **kwargs: Any) -> None:
        load(self, *args, **kwargs)
        if self.compilation_config.cudagraph_mode.has_full_cudagraphs():
            self.model = Wrapper(self.model, self.vllm_config, CUDAGraphMode.FULL)

    def warmed(self: Any) -> Any:
        result = warm(self)
        self.model_runner.capture_model()
        return result

    Graph.counts.clear()
    patches: tuple[tuple[Any, str, Any], ...] = (
        (CpuPlatform, "support_static_graph_mode", staticmethod(lambda: True)),
        (CpuPlatform, "get_static_graph_wrapper_cls", staticmethod(lambda: name_of_wrapper)),
        (CpuPlatform, "get_global_graph_pool", lambda _: (0, 0)),
        (CpuPlatform, "check_and_update_config", staticmethod(checked)),
        (CPUModelRunner, "load_model", loaded),
        (CPUWorker, "compile_or_warm_up_model", warmed),
        (Wrapper, "__call__", lambda self, *args, **kwargs: called(call, self, *args, **kwargs)),
        (cuda_graph, "current_stream", lambda: None),
        (cuda_graph, "weak_ref_tensors", lambda x: x),
        (gpu_model_runner, "graph_capture", lambda **_: nullcontext()),
        (gpu_model_runner, "lock_workspace", lambda: None),
        (torch.cuda, "CUDAGraph", Graph),
        (torch.cuda, "graph", lambda *_, **__: nullcontext()),
        (torch.accelerator, "get_memory_info", lambda: (0, 0)),
    )  # fmt: skip
    with ExitStack() as stack:
        for where, name, value in patches:
            stack.enter_context(patch.object(where, name, value))
        yield Graph.counts
