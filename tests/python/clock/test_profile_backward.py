# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backward pass multiplies the tiles in which a query sees a key, and no others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cases_types import DTYPES
from reference import visible

import pyfa_rocm
from pyfa_rocm import DeviceArray, UnsupportedError, emulator

pytestmark = pytest.mark.skipif(
    "config.getoption('--device') == 'gpu'", reason="only the software device counts"
)

Bools = npt.NDArray[np.bool_]


def _tiles(seen: Bools, rows: int, keys: int) -> int:
    """How many tiles of so many rows and keys have a key that a row sees."""
    whole = np.zeros([-(-n // of) * of for n, of in zip(seen.shape, (rows, keys), strict=True)], bool)
    whole[: seen.shape[0], : seen.shape[1]] = seen
    return int(whole.reshape(len(whole) // rows, rows, -1, keys).any((1, 3)).sum())


def _at_once(rows: int, keys: int, products: int) -> Callable[[Bools, int], int]:
    """Products of each tile that is not left out."""
    return lambda seen, hdim: products * rows * keys * hdim * _tiles(seen, rows, keys)


def _pingpong(seen: Bools, hdim: int) -> int:
    """Four products for 256 keys, two with eight columns more, of LSE and D; and three for 256 rows."""
    of_keys, of_rows = _tiles(seen, 32, 256), _tiles(seen, 256, 32)
    return 32 * 256 * ((4 * hdim + 2 * 8) * of_keys + 3 * hdim * of_rows)


# Multiplications by dtype, head dim and kernel. Ours of float32 looks at a wave's tiles, and computes S and
# dP twice, as pingpong does.
GRAIN = {
    ("float16", 64, "pingpong"): _pingpong, ("float16", 128, "pingpong"): _pingpong,
    ("float16", 64, "d64"): _at_once(32, 128, 5), ("float16", 128, "d128"): _at_once(16, 128, 5),
    ("float32", 64, "d64"): _at_once(16, 16, 7), ("float32", 128, "d128"): _at_once(16, 16, 7),
}  # fmt: skip
MASKS: list[dict[str, Any]] = [
    {}, {"causal": True}, {"window_size": (64, 0)}, {"window_size": (64, 0), "top_left": True},
    {"window_size": (100, 30)}, {"window_size": (50, -1)}, {"window_size": (0, 0), "causal": True},
]  # fmt: skip


@pytest.mark.parametrize("lengths", [(512, 512), (380, 512), (512, 250)], ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize(("dtype", "hdim", "kernel"), GRAIN)
def test_tiles_that_nobody_sees(
    dtype: str, hdim: int, kernel: str, mask: dict[str, Any], lengths: tuple[int, int]
) -> None:
    seqlen_q, seqlen_k = lengths
    rng = np.random.default_rng(0)
    q, k, v, out, dout = (
        DeviceArray.from_numpy(rng.standard_normal((1, n, 2, hdim), np.float32).astype(DTYPES[dtype]))
        for n in (seqlen_q, seqlen_k, seqlen_k, seqlen_q, seqlen_q)
    )
    lse = DeviceArray.from_numpy(np.zeros((1, 2, seqlen_q), np.float32))
    for number in itertools.count(1):
        with emulator.profile() as profile:
            try:
                pyfa_rocm.flash_attn_bwd(dout, q, k, v, out, lse, **mask, kernel=number)
            except UnsupportedError:
                pytest.skip("this build has no such kernel")
        (main,) = (x for x in profile.launches if x.counted.flops)
        if main.kernel.endswith(kernel):
            break
    seen = visible(seqlen_q, seqlen_k, **mask)
    assert main.counted.flops == 2 * 2 * GRAIN[dtype, hdim, kernel](seen, hdim)  # of two heads
