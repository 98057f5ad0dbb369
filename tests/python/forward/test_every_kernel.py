# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every kernel of the library, by forcing the choice: on full and on ragged tiles, against the oracle."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from built import DTYPE_OF, MORE_CHECKS, Row, can_do, drawn, every_of, rows, this_arch
from cases import Bias, Case, Dropout, Layout, Varlen, forced, run_raw
from inner import file_of_tests, run_as

# That have tests of the mark every_kernel
FILES = ("every_kernel", "backward", "decode", "decode_caches", "merge", "kv_append", "quantize")
GAPS = Layout((0, 1, 2), (1, 2, 1, 16), 64)


def _case(row: Row, seqlen_q: int, seqlen_k: int) -> Case:
    """A case with all of a kernel's features."""
    dtype = DTYPE_OF[row["dtype"]]
    o_dtype = "" if row["dtype"] == row["o_dtype"] else DTYPE_OF[row["o_dtype"]]
    case = Case(
        batch=2, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_k=1, ratio=2, hdim=row["hdim_q"],
        hdim_v=row["hdim_v"], dtype=dtype, o_dtype=o_dtype, lse=True, seed=5, layouts=(GAPS,) * 4,
        bias=Bias(infinities=True) if row["bias"] == "elementwise" else None,
        alibi=2 if row["bias"] == "alibi" else 0, softcap=4.0 if row["softcap"] else 0.0,
        dropout=Dropout(0.3, 12345, 6, randval=True) if row["dropout"] else None,
        descale=(0.5, 1.5, 2.0) if dtype.startswith("float8") else (1.0, 1.0, 1.0),
        sinks=row["origin"] in ("hip", "wmma"),
    )  # fmt: skip
    if row["group"]:
        half = (seqlen_q // 2 + 1, seqlen_k // 2 + 1)
        case = replace(case, varlen=Varlen((seqlen_q, half[0]), (half[1], seqlen_k), (0, 5), (3, 0)))
    return case


def _run(case: Case, row: Row) -> None:
    """Run a case on this very kernel, whichever candidate it is."""
    assert can_do(row, case), f"{row['name']} should do {case}"
    assert run_raw(forced(case, row["name"])) == row["name"]


# Kernels that come prebuilt are tested by test_prebuilt.py: each does only a few problems.
COMPILED = [row for row in rows() if row["origin"] != "aiter"]


@every_of(COMPILED)
@pytest.mark.parametrize("lengths", ["full", "drawn", "part of the head dim"])
def test_kernel(row: Row, lengths: str) -> None:
    """All of its features at once; then, if it masks, with masks; then with smaller head dims if it may."""
    m, n, step = row["tile_m"], row["tile_n"], row["hdim_step"]
    if lengths == "full":
        _run(_case(row, m, 2 * n), row)
        return
    rng = drawn(row)
    seqlen_k = rng.integers(1, 3 * n) if row["pad"] else n * rng.integers(1, 4)
    case = _case(row, int(rng.integers(1, 2 * m)), int(seqlen_k))
    if lengths == "drawn":
        _run(case, row)
        if row["mask"]:
            _run(replace(case, causal=True), row)
            _run(replace(case, window=(n // 2, n // 3), top_left=True), row)
    elif step:
        _run(replace(case, hdim=row["hdim_q"] - step), row)
        _run(replace(case, hdim_v=row["hdim_v"] - step), row)


@every_of(r for r in COMPILED if r["mask"] or r["group"])
def test_tiles_without_keys(row: Row) -> None:
    """A tile of queries that sees no key leaves CK's pipeline early, its loads of Q still on their way."""
    m, keys = row["tile_m"], 16 if row["pad"] else row["tile_n"]
    case = _case(row, keys + 2 * m, keys)
    if row["group"]:
        case = replace(case, varlen=Varlen((2 * m, m + 3), (0, keys)))
    _run(replace(case, causal=row["mask"]), row)


@pytest.mark.every_kernel
@pytest.mark.skipif("FMHA_EMU_ARCH" in os.environ, reason="this is the other arch")
@pytest.mark.parametrize("arch", sorted({row["arch"] for row in rows()} - {this_arch()}))
def test_other_archs(arch: str, device_kind: str) -> None:
    """Another arch's kernels, of all families, on a software device of that arch in a process of its own."""
    if device_kind == "gpu":
        pytest.skip("a GPU has one arch")
    files = [file_of_tests(f"test_{name}.py") for name in FILES]
    assert " passed" in run_as(arch, "-x", "-m", "every_kernel", *files, **MORE_CHECKS.get(arch, {}))
