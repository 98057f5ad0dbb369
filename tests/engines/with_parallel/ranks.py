# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes that share a process group of torch over Gloo, and stay for one piece of work after another.

They are forked from a process that has imported torch, which takes seconds, and has done nothing else.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from engines import recorded

_NEVER = 600.0  # seconds: no test takes that long, on whatever machine
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "pyfa_rocm.torch.context_parallel"])


class Ranks:
    """So many processes, ranks of one group, whose messages may take so many seconds.

    A rank waits for others that compute, so the default is a guard against tests that never end.
    """

    def __init__(self, size: int, timeout: float = _NEVER) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory()
        self._pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = _context.Pipe()
            store = str(Path(self._folder.name) / "store")
            process = _context.Process(target=_serve, args=(theirs, rank, size, store, timeout), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def run(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what `work(*arguments)` gives on each rank, or the exception that it raises."""
        self.start(work, *arguments)
        return [self.result(rank) for rank in range(self.size)]

    def start(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Let each rank do `work(*arguments)`."""
        for pipe in self._pipes:
            pipe.send((work, arguments))

    def all(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Like `run`, but raise if any rank did."""
        results = self.run(work, *arguments)
        for rank, result in enumerate(results):
            if isinstance(result, BaseException):
                raise AssertionError(f"rank {rank} of {self.size}") from result
        return results

    def result(self, rank: int) -> Any:
        """Return what a rank's work gives, or the exception that it raises."""
        try:
            return self._pipes[rank].recv()
        except EOFError as error:
            return error

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self.processes:
            process.join()
        self._folder.cleanup()


def record(package: str, case: str, part: float, kernels: set[str]) -> None:
    """Have a row of the page's table say what part of the bound the largest error was, and what ran."""
    version = metadata.version(package).partition("+")[0]
    ran = ", ".join(f"`{x}`" for x in sorted(kernels))
    recorded.row("context-parallel.md", f"{package} {version}: {case}", f"{part:.2f}", ran)


def _serve(pipe: Any, rank: int, size: int, store: str, timeout: float) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    meeting = distributed.FileStore(store, size)
    # A group's timeout also counts from the first rank's start: it may be short, so all start before.
    meeting.set(f"started {rank}", "")
    meeting.wait([f"started {i}" for i in range(size)], datetime.timedelta(seconds=_NEVER))
    distributed.init_process_group(
        "gloo", store=meeting, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=timeout)
    )
    while True:
        try:
            work, arguments = pipe.recv()
        except EOFError:
            # Without the interpreter's end, see tests/adapters/with_torch/two_processes.py.
            os._exit(0)
        try:
            result = work(*arguments)
        except Exception as error:
            result = RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        pipe.send(result)
