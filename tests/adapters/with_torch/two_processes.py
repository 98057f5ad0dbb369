# SPDX-License-Identifier: MIT OR Apache-2.0
"""Work of two processes that share a process group of torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.multiprocessing

Work = Callable[[int, Path], None]


def run_in_two(work: Work, folder: Path) -> None:
    """Calls `work(rank, folder)` in two new processes, in one group. Both leave their results in `folder`."""
    torch.multiprocessing.spawn(_run, (work, folder), nprocs=2)


def _run(rank: int, work: Work, folder: Path) -> None:
    store = torch.distributed.FileStore(str(folder / "store"), 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    work(rank, folder)
    torch.distributed.destroy_process_group()
    # Threads of Gloo outlive their group. One that frees a tensor as the interpreter ends aborts the process
    # (pytorch/pytorch#179291). So the interpreter does not end.
    os._exit(0)
