# SPDX-License-Identifier: MIT OR Apache-2.0
"""Errors of this build beside those of FlashAttention-2 and cuDNN on the same problems (data/accuracy.csv).

Theirs are recorded; ours are computed here. Inputs are normal numbers, or normal numbers of which one in a
thousand is ten times larger. Other numbers were drawn then; with outliers few of them decide the RMS.
"""

from __future__ import annotations

import csv
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.params import CATALOGUE_TYPES
from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.attention import flash_attn_func
from pyfa_rocm.backward import flash_attn_bwd
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle.gradients import gradients
from pyfa_rocm.oracle.reference import attention
from pyfa_rocm.oracle.rounding import numerics_of

DATA = Path(__file__).parent / "data" / "accuracy.csv"
HEADS, SEQLEN = 4, 512
RESULTS = ("o", "dq", "dk", "dv")
_DTYPES = {name: dtype for dtype, name in CATALOGUE_TYPES.items()}
Array = npt.NDArray[Any]


def _inputs(dtype: str, hdim: int, kind: str) -> list[Array]:
    """q, k, v and dO."""
    rng = np.random.default_rng(7 + hdim + SEQLEN)
    found = []
    for name in ("q", "k", "v", "dout"):
        x = rng.standard_normal((1, SEQLEN, HEADS, hdim))
        if kind == "outlier" and name != "dout":
            x[rng.random(x.shape) < 1e-3] *= 10
        found.append(x.astype(dtype_of(dtype)))
    return found


def _rms(got: Array, want: Array) -> float:
    """RMS error relative to the RMS of what is right."""
    error = got.astype(np.float64) - want
    return float(np.sqrt((error**2).mean() / (want**2).mean()))


def ours(dtype: str, hdim: int, causal: bool, kind: str) -> dict[str, float]:
    """Errors of this build: of O, and of gradients, which start from its own O and LSE."""
    q, k, v, dout = _inputs(dtype, hdim, kind)
    tensors: list[Any] = [DeviceArray.from_numpy(x) for x in (q, k, v)]
    forward: Any = flash_attn_func
    backward: Any = flash_attn_bwd
    out, lse = forward(*tensors, causal=causal, return_lse=True)
    found = backward(DeviceArray.from_numpy(dout), *tensors, out, lse, causal=causal)
    numerics = numerics_of(dtype)
    want = attention(q, k, v, causal=causal, numerics=numerics)
    exact = gradients(q, k, v, want.o, want.lse, dout, causal=causal, numerics=numerics)
    values = {"o": _rms(out.to_numpy(), want.o)}
    for name, x in zip(("dq", "dk", "dv"), found, strict=True):
        values[name] = _rms(x.to_numpy(), exact[name].value)
    return values


def collect() -> list[dict[str, Any]]:
    """Return a row for each problem: errors by result and kernel; ours are None without a kernel for it."""
    # Checks cost time and change no result. The tests of each kernel run under them.
    os.environ["FMHA_EMU_CHECKS"] = "none"
    try:
        return _rows()
    finally:
        del os.environ["FMHA_EMU_CHECKS"]


def _rows() -> list[dict[str, Any]]:
    lines = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]
    rows = []
    for record in csv.DictReader(lines):
        dtype, hdim, causal = _DTYPES[record["dtype"]], int(record["hdim"]), record["causal"] == "1"
        now: dict[str, float | None] = dict.fromkeys(RESULTS)
        with suppress(UnsupportedError):
            now |= ours(dtype, hdim, causal, record["inputs"])
        errors = {
            name: {"now": now[name]} | {of: float(record[f"{name}_{of}"]) for of in ("ours", "fa2", "cudnn")}
            for name in RESULTS
        }
        rows.append(
            {
                "dtype": record["dtype"],
                "hdim": hdim,
                "causal": causal,
                "inputs": record["inputs"],
                "errors": errors,
            }
        )
    return rows
