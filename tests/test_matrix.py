# SPDX-License-Identifier: MIT OR Apache-2.0
"""All features together: an orthogonal array over them, each row run if a kernel can do it, else refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from cases import Bias, Case, Dropout, Layout, Varlen, run_or_refused
from catalogue import candidates
from matrix import cover

SEED = 5
BSHD, BHSD, SBHD = Layout((0, 1, 2)), Layout((0, 2, 1)), Layout((1, 0, 2))
GAPS = Layout((0, 1, 2), (1, 2, 1, 64), 208)
# (q, k), v and the tile is up to the library: multiples of 8 that fill a tile, and that do not.
HDIMS = [
    (32, 32), (64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (8, 8), (40, 72),
    (104, 56), (136, 128), (160, 160), (200, 248),
]  # fmt: skip
FACTORS: dict[str, Sequence[Any]] = {
    "dtype": [
        ("float16", ""), ("bfloat16", ""), ("float32", ""), ("float8_e4m3fnuz", "bfloat16"),
        ("float8_e4m3fnuz", "float16"), ("float8_e4m3fnuz", "float32"),
    ],
    "hdim": HDIMS,
    "mask": [
        {}, {"causal": True}, {"causal": True, "top_left": True}, {"window": (37, 20)},
        {"window": (0, 0), "top_left": True}, {"window": (-1, 300)}, {"window": (70, -1), "causal": True},
    ],
    "variant": [
        {}, {"bias": Bias()}, {"bias": Bias((False, True, True), Layout((2, 0, 1), (0, 1, 2, 5)), True)},
        {"bias": Bias((True, False, False))}, {"alibi": 1}, {"alibi": 2}, {"softcap": 3.0},
    ],
    "dropout": [
        None, None, Dropout(0.2, 2**63 + 5, 77, randval=True), Dropout(0.7, 12, 2**40, on_device=True),
    ],
    "packing": ["batch", "batch", "varlen", "used_q", "used_k", "used_both"],
    "lengths": [(1, 1), (128, 256), (64, 300), (127, 131), (251, 17), (200, 64), (1, 257), (33, 0)],
    "heads": [(1, 1), (2, 1), (1, 3), (2, 2)],
    "layout": [(BSHD,) * 4, (BHSD,) * 4, (SBHD, GAPS, BHSD, GAPS), (GAPS, BSHD, GAPS, SBHD)],
    "lse": [True, True, False],
    "broadcast_kv": [(False, False), (False, False), (True, False), (False, True)],
}  # fmt: skip


def _case(row: dict[str, Any], seed: int) -> Case:
    dtype, o_dtype = row["dtype"]
    (hdim, hdim_v), (seqlen_q, seqlen_k), (nhead_k, ratio) = row["hdim"], row["lengths"], row["heads"]
    case = Case(
        batch=2, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_k=nhead_k, ratio=ratio, hdim=hdim,
        hdim_v=hdim_v, dtype=dtype, o_dtype=o_dtype, lse=row["lse"], dropout=row["dropout"],
        layouts=row["layout"], broadcast_kv=row["broadcast_kv"], seed=seed, **row["mask"], **row["variant"],
    )  # fmt: skip
    if dtype.startswith("float8"):
        case = replace(case, descale=(0.5, 1.5, 2.0))
    if row["packing"] == "batch":
        return case
    broadcast = (False, row["broadcast_kv"][1])
    return replace(
        case, batch=4, broadcast_kv=broadcast, varlen=_varlen(row["packing"], seqlen_q, seqlen_k, seed)
    )


def _varlen(packing: str, seqlen_q: int, seqlen_k: int, seed: int) -> Varlen:
    """Four sequences: as long as may be, empty on either side, and anything."""
    rng = random.Random(seed)
    slack_q, slack_k = (tuple(rng.randrange(40) for _ in range(4)) for _ in range(2))
    return Varlen(
        (seqlen_q, 0, seqlen_q // 2, rng.randint(0, seqlen_q)),
        (rng.randint(0, seqlen_k), seqlen_k, 0, seqlen_k // 2),
        slack_q if packing in ("used_q", "used_both") else None,
        slack_k if packing in ("used_k", "used_both") else None,
    )


ROWS = cover(FACTORS, 2, SEED)


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_row(number: int) -> None:
    """Run or refused, as the catalogue says."""
    print(f"seed {SEED}, row {number} of {len(ROWS)}: {ROWS[number]}")
    run_or_refused(_case(ROWS[number], number))


def test_both_outcomes_occur() -> None:
    done = [bool(candidates(_case(row, i))) for i, row in enumerate(ROWS)]
    assert any(done), "no row of the matrix has a kernel"
    assert not all(done), "no row of the matrix is refused"
