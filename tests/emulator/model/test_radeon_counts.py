# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our kernels for Radeon: instructions, bank conflicts of LDS and bytes of memory, counted; their clock.

docs/kernels/wmma.md has these numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from ..support.kernels import built_for
from ..support.toolchain import ROOT

ROWS, LENGTHS, ELEMENT = 128, (1024, 2048), 2
# Vector instructions of the loop at head dim 128 for 64 WMMA: what the kernels were asked to keep to. 16 rows
# by 64 keys have 32 exponentials a lane.
MOST_VECTOR, EXPONENTIALS = 300, 32
# Bytes of each of 32 lanes and from one to the next; cycles without conflicts, and cycles of conflicts.
ACCESSES = ((4, 4), (4, 128), (8, 8), (8, 16), (16, 16), (16, 256), (16, 144))
CYCLES = ((1, 0), (1, 31), (2, 0), (2, 2), (4, 0), (4, 28), (4, 0))
# TFLOPS of dense 16-bit products.
PEAKS = {"gfx1100": ("rx7900xtx", 122.9), "gfx1201": ("rx9070xt", 194.7)}
pytestmark = pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="plays each Radeon itself")

PROGRAM = f"""
import json
import numpy as np
import pyfa_rocm as fa
from pyfa_rocm import emulator
from pyfa_rocm.array import dtype_of

rng = np.random.default_rng(1)

def normal(rows, heads, hdim, dtype):
    x = rng.standard_normal((1, rows, heads, hdim)).astype(dtype_of(dtype))
    return fa.DeviceArray.from_numpy(x)

def told(launches):
    return [
        dict(kernel=l.kernel, instructions=l.counted.instructions, lds=vars(l.counted.lds),
             cycles=l.modelled.lds_cycles, conflicts=l.modelled.lds_conflict_cycles,
             read=l.modelled.caches.hbm_read_bytes, written=l.modelled.caches.hbm_write_bytes)
        for l in launches
    ]

out = dict(forward={{}}, backward={{}})
for dtype in ("float16", "bfloat16"):
    for hdim in (64, 128):
        for keys in {LENGTHS}:
            q, k, v = (normal(n, 2, hdim, dtype) for n in ({ROWS}, keys, keys))
            with emulator.profile() as profile:
                fa.flash_attn_func(q, k, v)
            out["forward"][f"{{dtype}} {{hdim}} {{keys}}"] = told(profile.launches)
for hdim in (64, 128):
    q, k, v, dout = (normal(512, 2, hdim, "float16") for _ in range(4))
    o, lse = fa.flash_attn_func(q, k, v, causal=True, return_lse=True)
    with emulator.profile() as profile:
        fa.flash_attn_bwd(dout, q, k, v, o, lse, causal=True)
    out["backward"][str(hdim)] = told(profile.launches)
q, k, v = (fa.DeviceArray.empty((4, 4096, 16, 128), "float16") for _ in range(3))
with emulator.profile(timing=True, sample=2, events=100) as profile:
    fa.flash_attn_func(q, k, v)
(launch,) = profile.launches
time = launch.time
out["time"] = dict(card=time.card, low=time.seconds.low, high=time.seconds.high, binds=time.binds,
                   slot=time.events["slot_cycles"], workgroups_per_cu=time.workgroups_per_cu)

from tests.emulator.model.test_profile_model import READ, WRITE, _lds

wave = (1 << 32) - 1
out["lds"] = [
    _lds([stride * lane for lane in range(64)], nbytes, access, wave)
    for access in (READ, WRITE)
    for nbytes, stride in {ACCESSES}
]
print(json.dumps(out))
"""


@cache
def counts(arch: str) -> Any:
    """Return the counts of a process that plays the arch."""
    if not built_for(arch):
        pytest.skip(f"the library was built without kernels for {arch}")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"FMHA_EMU_ARCH": arch, "FMHA_EMU_CHECKS": "none", "PYFA_ROCM_DEVICE": "emulator"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


archs = pytest.mark.parametrize("arch", PEAKS)


@archs
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_instructions_of_the_loop(arch: str, dtype: str) -> None:
    """The same rows with twice the keys, less once the keys, so that only the loop is left."""
    short, long = (counts(arch)["forward"][f"{dtype} 128 {keys}"][0]["instructions"] for keys in LENGTHS)
    more = {name: (long[name] - short[name]) for name in long}
    per_64 = 64 / more["mfma"]
    assert more["transcendental"] * per_64 == EXPONENTIALS
    assert (more["valu"] + more["transcendental"]) * per_64 <= MOST_VECTOR


@archs
def test_bank_conflicts_are_found(arch: str) -> None:
    """Lanes in a row are served 128 bytes at a time, by 32 banks."""
    assert [tuple(found) for found in counts(arch)["lds"]] == [*CYCLES, *CYCLES]


@archs
def test_no_bank_conflicts(arch: str) -> None:
    """No kernel has any; LDS moves what it can, 128 bytes a cycle."""
    found = counts(arch)
    for launches in [*found["forward"].values(), *found["backward"].values()]:
        for launch in launches:
            assert launch["conflicts"] == 0, launch["kernel"]
            assert launch["cycles"] * 128 == sum(launch["lds"].values())


@archs
def test_bytes_of_memory(arch: str) -> None:
    """Each of Q, K, V and O once, and less than two lines of arguments for a workgroup."""
    for name, (launch,) in counts(arch)["forward"].items():
        _, hdim, keys = name.split()
        row = 2 * int(hdim) * ELEMENT
        arrays = (ROWS + 2 * int(keys)) * row
        assert arrays <= launch["read"] <= arrays + 4 * 128
        assert launch["written"] == ROWS * row


@archs
def test_clock(arch: str) -> None:
    """Whole range below the peak, a slot a cycle, and matrix instructions the busiest."""
    card, peak = PEAKS[arch]
    time = counts(arch)["time"]
    flops = 4 * 4 * 16 * 4096**2 * 128
    assert (time["card"], time["slot"]) == (card, 1)
    assert 0.3 * peak < flops / time["high"] / 1e12 < flops / time["low"] / 1e12 < peak
    assert time["binds"]["matrix"] == max(time["binds"].values())


@archs
def test_bench(arch: str) -> None:
    """The command models ours, which is all there is, and has nothing published to set it against."""
    if not built_for(arch):
        pytest.skip(f"the library was built without kernels for {arch}")
    card, peak = PEAKS[arch]

    def bench(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pyfa_rocm", "bench", "--model", card, "--json", *options],
            env=os.environ | {"FMHA_EMU_ARCH": arch, "PYFA_ROCM_DEVICE": "emulator"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    done = bench("--seqlens", "512", "--hdims", "64", "--direction", "forward")
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout)
    assert result["card"] == card
    assert {row["implementation"] for row in result["rows"]} == {"pyfa_rocm"}
    assert all(0 < row["tflops"]["low"] < row["tflops"]["high"] < peak for row in result["rows"])
    refused = bench("--against")
    assert refused.returncode != 0
    assert "expected a card with published points: mi300x, mi355x" in refused.stderr
