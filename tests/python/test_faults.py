# SPDX-License-Identifier: MIT OR Apache-2.0
"""What raw pointers can do wrong beyond what can be checked: the software device catches it."""

from __future__ import annotations

import subprocess

import pytest
from test_runtime import run

# k is said to have 700 rows, its memory holds 70.
OUT_OF_BOUNDS = """
import numpy as np
import pyfa_rocm as p
arrays = [p.DeviceArray.from_numpy(np.ones((1, n, 1, 128), np.float16)) for n in (700, 70, 700, 700)]
q, k, v, o = (p.Strided(x.data, *x.strides[:3]) for x in arrays)
try:
    p.fmha_fwd(p.FwdParams("float16", 1, 700, 700, 1, 1, 128, 128, 0.1, q, k, v, o))
    p.synchronize()
except p.HipError as error:
    print(k.data, error)
"""


def _run() -> subprocess.CompletedProcess[str]:
    return run(OUT_OF_BOUNDS, PYFA_ROCM_DEVICE="emulator")


def test_out_of_bounds(device_kind: str) -> None:
    """A read past an allocation ends the launch, naming kernel, pc, lane, address and what is nearest."""
    if device_kind == "gpu":
        pytest.skip("hardware reads what lies there")
    done = _run()
    assert done.returncode == 0, done.stderr
    address, message = done.stdout.split(" ", 1)
    assert "hip" in message
    for word in ("fmha_fwd_fp16_d128", "pc 0x", "lane", f"{int(address):#x}"):
        assert word in done.stderr, done.stderr
