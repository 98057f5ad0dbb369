# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backward pass multiplies the tiles in which a query sees a key, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases_types import DTYPES
from reference import visible

import pyfa_rocm
from pyfa_rocm import DeviceArray, UnsupportedError, emulator

pytestmark = pytest.mark.skipif(
    "config.getoption('--device') == 'gpu'", reason="only the software device counts"
)

# Rows by keys of what is left out if nothing in it is seen, and the products of each: ours of float32 looks
# at a wave's tiles, and computes S and dP twice.
GRAIN = {("float16", 64): (32, 128, 5), ("float16", 128): (16, 128, 5), ("float32", 64): (16, 16, 7),
         ("float32", 128): (16, 16, 7)}  # fmt: skip
MASKS: list[dict[str, Any]] = [
    {}, {"causal": True}, {"window_size": (64, 0)}, {"window_size": (64, 0), "top_left": True},
    {"window_size": (100, 30)}, {"window_size": (50, -1)}, {"window_size": (0, 0), "causal": True},
]  # fmt: skip


@pytest.mark.parametrize("lengths", [(512, 512), (380, 512), (512, 250)], ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(("dtype", "hdim"), GRAIN)
def test_tiles_that_nobody_sees(
    dtype: str, hdim: int, mask: dict[str, Any], lengths: tuple[int, int]
) -> None:
    seqlen_q, seqlen_k = lengths
    rng = np.random.default_rng(0)
    q, k, v, out, dout = (
        DeviceArray.from_numpy(rng.standard_normal((1, n, 2, hdim), np.float32).astype(DTYPES[dtype]))
        for n in (seqlen_q, seqlen_k, seqlen_k, seqlen_q, seqlen_q)
    )
    lse = DeviceArray.from_numpy(np.zeros((1, 2, seqlen_q), np.float32))
    with emulator.profile() as profile:
        try:
            pyfa_rocm.flash_attn_bwd(dout, q, k, v, out, lse, **mask)
        except UnsupportedError:
            pytest.skip("this build has no backward kernel of this type")
    (flops,) = (x.counted.flops for x in profile.launches if x.counted.flops)

    rows, keys, products = GRAIN[dtype, hdim]
    seen = np.zeros((-(-seqlen_q // rows) * rows, -(-seqlen_k // keys) * keys), bool)
    seen[:seqlen_q, :seqlen_k] = visible(seqlen_q, seqlen_k, **mask)
    tiles = seen.reshape(len(seen) // rows, rows, -1, keys).any((1, 3)).sum()
    assert flops == 2 * (2 * products * rows * keys * hdim) * tiles
