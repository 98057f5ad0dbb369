# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that import flash-attn, under `pyfa-rocm flash-attn`, and the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyfa_rocm

PACKAGE = Path(pyfa_rocm.__file__).resolve().parent

# Prints whose function it has, and whether that computes.
ATTEND = """
import os
import torch
from flash_attn import flash_attn_func
from flash_attn.bert_padding import unpad_input

def attend(who):
    x = torch.ones(1, 4, 2, 64, dtype=torch.float16)
    line = f"{who} {flash_attn_func.__module__} {flash_attn_func(x, x, x, causal=True).sum().item()}"
    os.write(1, (line + os.linesep).encode())  # in one piece, as processes share the pipe
"""
# A program whose own process, a spawned one and another Python attend.
PROGRAM = """
import multiprocessing
import subprocess
import sys
from attend import attend

if __name__ == "__main__":
    attend("self")
    worker = multiprocessing.get_context("spawn").Process(target=attend, args=("spawned",))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    subprocess.run([sys.executable, "-c", "from attend import attend; attend('child')"], check=True)
"""
RANK = """
import torch.distributed as dist
from attend import attend

dist.init_process_group("gloo")
attend(f"rank {dist.get_rank()}")
dist.destroy_process_group()
"""


def run(folder: Path, *arguments: str) -> list[str]:
    """Run a program of the files here; return the lines that it printed."""
    for name, text in (("attend", ATTEND), ("program", PROGRAM), ("rank", RANK)):
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", "flash-attn", *arguments],
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def expected(*processes: str) -> list[str]:
    return [f"{who} pyfa_rocm.flash_attn.flash_attn_interface 512.0" for who in processes]


def test_a_module_and_the_processes_it_starts(tmp_path: Path) -> None:
    assert run(tmp_path, "--", sys.executable, "-m", "program") == expected("self", "spawned", "child")


def test_torchrun(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    lines = run(tmp_path, "--", *torchrun, "rank.py")
    assert sorted(lines) == expected("rank 0", "rank 1")


def test_flash_attention_3(tmp_path: Path) -> None:
    """Its names, with --fa3; and another flash-attn, which --replace hides."""
    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn" / "__init__.py").write_text("")
    code = (
        "import flash_attn, flash_attn_interface, flash_attn_3.flash_attn_interface as f; "
        "print(flash_attn.__version__, f is flash_attn_interface, f.__name__, f.__version__)"
    )
    lines = run(tmp_path, "--fa3", "--replace", "--", sys.executable, "-c", code)
    assert lines == ["2.8.3 True pyfa_rocm.flash_attn.flash_attn_3 3.0.0"]
