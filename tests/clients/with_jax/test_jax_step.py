# SPDX-License-Identifier: MIT OR Apache-2.0
"""A jitted step of XLA's own kernels and ours on the software device, one by one and in HIP graphs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from clients.with_jax import jax_step

from pyfa_rocm import emulator

HERE = Path(__file__).resolve().parent


def test_step() -> None:
    """Right at each stage, with matrix instructions in XLA's kernels and in ours."""
    given = jax_step.inputs(0)
    jax_step.check(given, jax_step.step(**given))
    with emulator.profile() as profile:
        jax_step.check(given, jax_step.step(**given))
    flops = {True: 0, False: 0}
    for launch in profile.launches:
        flops[launch.kernel.startswith("fmha_fwd_fp16")] += launch.counted.flops
    assert flops[False] >= 2 * jax_step.PRODUCTS
    # Under the causal mask at least half of the scores are wanted, and half of the sums over them.
    pairs = jax_step.BATCH * jax_step.HEADS * jax_step.ROWS**2 // 2
    assert flops[True] >= 2 * 2 * pairs * jax_step.HDIM


@pytest.mark.parametrize("ours", [1, 2], ids=["forward", "gradients"])
def test_command_buffer(tmp_path: Path, ours: int) -> None:
    """XLA captures our calls into a graph of its kernels, launches that, and updates it for new arrays.

    There is a call for each pass: XLA makes one of the step's own forward pass and that of the gradients.
    """
    library = tmp_path / "libhip_calls.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, HERE / "hip_calls.c"], check=True)
    done = subprocess.run(
        [sys.executable, HERE / "jax_step.py", *(["gradients"] if ours > 1 else [])],
        env=os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second, *_, last = json.loads(done.stdout)
    assert not any(first.values())  # the first run makes no graph
    assert second["hipStreamBeginCapture"] == second["hipGraphAddChildGraphNode"] == ours
    kernels = second["hipGraphAddKernelNode"]  # of XLA, before our calls and after them
    assert kernels >= 2
    assert second["hipGraphLaunch"] == 1
    assert last == {
        "hipStreamBeginCapture": (jax_step.RUNS - 1) * ours,
        "hipGraphAddKernelNode": kernels,
        "hipGraphAddChildGraphNode": ours,
        "hipGraphExecKernelNodeSetParams": (jax_step.RUNS - 2) * kernels,
        "hipGraphExecChildGraphNodeSetParams": (jax_step.RUNS - 2) * ours,
        "hipGraphLaunch": jax_step.RUNS - 1,
    }
