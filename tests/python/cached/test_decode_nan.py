# SPDX-License-Identifier: MIT OR Apache-2.0
"""A NaN does not vanish from attention over a cache: what it is in is NaN, O and LSE, and so are its parts.

A part whose LSE is -inf is none to a merge, which would give attention over the other keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyfa_rocm
from pyfa_rocm import DeviceArray

TOKENS, HEADS, BAD = 300, 18, 5  # the bad row


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "hdim", "hdim_v"), [("float16", 64, 64), ("float16", 576, 512), ("bfloat16", 576, 512)]
)
@pytest.mark.parametrize("what", ["q", "q inf", "last key", "all keys", "sink", "sink 3e38"])
def test_nan(what: str, dtype: str, hdim: int, hdim_v: int, splits: int) -> None:
    rng = np.random.default_rng(3)
    host = pyfa_rocm.array.dtype_of(dtype)
    q, k = (
        rng.standard_normal(shape, np.float32).astype(host)
        for shape in ((1, 1, HEADS, hdim), (1, TOKENS, 1, hdim))
    )
    sinks = rng.standard_normal(HEADS, np.float32)
    if what.startswith("sink"):
        sinks[BAD] = float(what.removeprefix("sink") or "nan")
    elif what.startswith("q"):
        q[..., BAD, 0] = float(what.removeprefix("q") or "nan")
    else:
        k[:, TOKENS - 1 if what == "last key" else 0 :, :, 0] = np.nan
    keys = DeviceArray.from_numpy(k)
    out, lse = pyfa_rocm.flash_attn_with_kvcache(
        DeviceArray.from_numpy(q), keys, keys[:, :, :, :hdim_v], return_softmax_lse=True, num_splits=splits,
        sinks=DeviceArray.from_numpy(sinks),
    )  # fmt: skip
    rows: Any = slice(None) if "key" in what else [BAD]
    bad = np.zeros(HEADS, bool)
    bad[rows] = True
    np.testing.assert_array_equal(np.isnan(lse.to_numpy()[0, :, 0]), bad)
    found = np.isnan(out.to_numpy()[0, 0].astype(np.float32))
    np.testing.assert_array_equal(found, np.broadcast_to(bad[:, None], found.shape))
