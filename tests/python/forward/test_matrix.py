# SPDX-License-Identifier: MIT OR Apache-2.0
"""All features together, by orthogonal arrays.

The first goes over everything that can be asked for, three factors at a time: each row is run if a kernel can
do it, else refused. Few of its rows have a kernel, so the second goes over each kernel of the library: what
one kernel can be asked, two factors at a time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import Any

import pytest
from built import DTYPE_OF, Row, can_do, candidates, fp8, rows, this_arch
from cases import Bias, Case, Dropout, Layout, Varlen, forced, run_or_refused, run_raw
from matrix import cover

SEED = 5
PARTS = 16
BSHD, BHSD, SBHD = Layout((0, 1, 2)), Layout((0, 2, 1)), Layout((1, 0, 2))
GAPS = Layout((0, 1, 2), (1, 2, 1, 64), 208)
BIASES = [
    Bias(),
    Bias((False, True, True), Layout((2, 0, 1), (0, 1, 2, 5)), infinities=True),
    Bias((True, False, False), Layout(start=65)),
]
DROPOUTS = [Dropout(0.2, 2**63 + 5, 77, randval=True), Dropout(0.7, 12, 2**40, on_device=True), Dropout(0.5)]
# Values that a case may have with any kernel.
ANY: dict[str, Sequence[Any]] = {
    "lengths": [(1, 1), (128, 256), (64, 300), (127, 131), (251, 17), (200, 64), (1, 257), (33, 0)],
    "heads": [(1, 1), (2, 1), (1, 3), (2, 2)],
    "layout": [(BSHD,) * 4, (BHSD,) * 4, (SBHD, GAPS, BHSD, GAPS), (GAPS, BSHD, GAPS, SBHD)],
    "lse": [True, False],
    "broadcast_kv": [(False, False), (True, False), (False, True)],
    "sinks": [False, True],
}
MASKS: list[dict[str, Any]] = [
    {}, {"causal": True}, {"causal": True, "top_left": True}, {"window": (37, 20)},
    {"window": (0, 0), "top_left": True}, {"window": (-1, 300)}, {"window": (70, -1), "causal": True},
]  # fmt: skip
SLACKS = ["varlen", "used_q", "used_k", "used_both"]
EVERYTHING: dict[str, Sequence[Any]] = {
    "dtype": [
        ("float16", ""), ("bfloat16", ""), ("float32", ""), (fp8(), "bfloat16"),
        (fp8(), "float16"), (fp8(), "float32"),
    ],
    # Head dims of q and k, and of v: the tiles', and multiples of 8 that fill a part of one.
    "hdim": [
        (32, 32), (64, 64), (96, 96), (128, 128), (192, 192), (192, 128), (256, 256), (8, 8), (40, 72),
        (104, 56), (136, 128), (160, 160), (200, 248),
    ],
    "mask": MASKS,
    "variant": [{}, *({"bias": bias} for bias in BIASES), {"alibi": 1}, {"alibi": 2}, {"softcap": 3.0}],
    "dropout": [None, *DROPOUTS],
    "packing": ["batch", *SLACKS],
    **ANY,
}  # fmt: skip


def _case(values: dict[str, Any], seed: int) -> Case:
    (dtype, o_dtype), (hdim, hdim_v) = values["dtype"], values["hdim"]
    (seqlen_q, seqlen_k), (nhead_k, ratio) = values["lengths"], values["heads"]
    case = Case(
        batch=2, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_k=nhead_k, ratio=ratio, hdim=hdim,
        hdim_v=hdim_v, dtype=dtype, o_dtype=o_dtype, lse=values["lse"], dropout=values["dropout"],
        layouts=values["layout"], broadcast_kv=values["broadcast_kv"], seed=seed,
        sinks=values["sinks"], **values["mask"],
        **values["variant"],
    )  # fmt: skip
    if dtype.startswith("float8"):
        case = replace(case, descale=(0.5, 1.5, 2.0))
    if values["packing"] == "batch":
        return case
    varlen = _varlen(values["packing"], seqlen_q, seqlen_k, seed)
    return replace(case, batch=4, broadcast_kv=(False, values["broadcast_kv"][1]), varlen=varlen)


def _varlen(packing: str, seqlen_q: int, seqlen_k: int, seed: int) -> Varlen:
    """Four sequences: as long as may be, empty on either side, and anything."""
    rng = random.Random(seed)
    slack_q, slack_k = (tuple(rng.randrange(40) for _ in range(4)) for _ in range(2))
    some = 0 if seqlen_k == 0 else 1  # no rows at all need an upper bound of 0
    return Varlen(
        (seqlen_q, 0, seqlen_q // 2, rng.randint(0, seqlen_q)),
        (rng.randint(some, seqlen_k), seqlen_k, 0, seqlen_k // 2),
        slack_q if packing in ("used_q", "used_both") else None,
        slack_k if packing in ("used_k", "used_both") and some else None,
    )


@cache
def _everything() -> list[Case]:
    return [_case(values, i) for i, values in enumerate(cover(EVERYTHING, 3, SEED))]


@pytest.mark.parametrize("part", range(PARTS))
def test_everything(part: int) -> None:
    """Run or refused, as the catalogue says."""
    for number, case in list(enumerate(_everything()))[part::PARTS]:
        print(f"seed {SEED}, row {number} of {len(_everything())}: {case}")
        run_or_refused(case)


def test_both_outcomes_occur() -> None:
    assert {bool(candidates(case)) for case in _everything()} == {False, True}


def _factors(row: Row) -> dict[str, Sequence[Any]]:
    """Return the values that a case may have with a kernel."""
    q, v, step = row["hdim_q"], row["hdim_v"], row["hdim_step"]
    dtype = DTYPE_OF[row["dtype"]]
    variants: dict[str, list[dict[str, Any]]] = {
        "none": [{}],
        "elementwise": [{"bias": bias} for bias in BIASES],
        "alibi": [{"alibi": 1}, {"alibi": 2}],
    }
    return ANY | {
        "dtype": [(dtype, DTYPE_OF[row["o_dtype"]] if row["o_dtype"] != row["dtype"] else "")],
        "hdim": [(q, v), (q - step, v), (q, v - step), (q // 2 + step, v // 2 + step)] if step else [(q, v)],
        "mask": MASKS if row["mask"] else [{}],
        "variant": [{"softcap": 0.7}, {"softcap": 20.0}] if row["softcap"] else variants[row["bias"]],
        "dropout": DROPOUTS if row["dropout"] else [None],
        "packing": SLACKS if row["group"] else ["batch"],
        "lse": [True, False],
        "lengths": ANY["lengths"] if row["pad"] else [(77, row["tile_n"]), (200, 3 * row["tile_n"])],
    }


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['arch']}-{row['name']}")
def test_kernel(row: Row) -> None:
    """All that one kernel can be asked, pairwise."""
    if row["arch"] != this_arch():
        pytest.skip("for another arch: its own kernels are run by test_every_kernel")
    array = cover(_factors(row), 2, SEED)
    for number, values in enumerate(array):
        case = _case(values, number)
        print(f"seed {SEED}, row {number} of {len(array)}: {case}")
        if not can_do(row, case):
            continue  # an unpadded kernel with a bias that lies badly, or one without sinks
        assert run_raw(forced(case, row["name"])) == row["name"]


def test_array_is_complete() -> None:
    """Every combination of three values occurs."""
    factors = {"a": "xyz", "b": range(4), "c": [None, 1], "d": range(3)}
    array = cover(factors, 3, SEED)
    for names in combinations(factors, 3):
        held = {tuple(row[name] for name in names) for row in array}
        assert held == set(product(*(factors[name] for name in names)))
    assert len(array) < 4 * 3 * 3 * 2
