# SPDX-License-Identifier: MIT OR Apache-2.0
"""ring-flash-attention and yunchang on the drop-in, and torch's own templates, on these kernels.

Their merges are theirs, so the judge is flash-attention's own criterion: at most twice the error of the
formula in the low precision, and for each rank one rounding of its part and one of the sum.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engines.with_parallel.other_work import run, whole
from engines.with_parallel.ranks import Ranks, record
from engines.with_parallel.work import Problem

CASES = {
    "ring zigzag": ("ring-flash-attn", Problem((64,), 2)),
    "ring": ("ring-flash-attn", Problem((64,), 4, zigzag=False, causal=False)),
    "ring and Ulysses": ("yunchang", Problem((64,), 4, zigzag=False, causal=False, nhead_k=4)),
    "templates": ("torch", Problem((64,), 2)),
    "templates without balance": ("torch", Problem((64,), 4, zigzag=False)),
}


@pytest.mark.parametrize("case", CASES)
def test_unmodified(case: str) -> None:
    name, problem = CASES[case]
    with Ranks(problem.rings) as group:
        ranks = group.all(run, problem, name)
    results, kernels = [x for x, _ in ranks], {x for _, names in ranks for x in names}
    order = np.argsort(torch.cat([x[0] for x in results]).numpy())
    got = [torch.cat([x[i] for x in results])[order] for i in range(1, 5)]
    exact, low = whole(problem)
    parts = []
    for mine, want, theirs in zip(got, exact, low, strict=True):
        error, allowed = ((x.double() - want).abs().max() for x in (mine, theirs))
        rounding = torch.finfo(mine.dtype).eps * want.abs().max()
        assert mine.dtype == theirs.dtype
        assert error <= 2 * allowed + problem.rings * rounding
        parts.append(error / (2 * allowed + problem.rings * rounding))
    record(name, f"{case}, {problem.rings} ranks", float(max(parts)), kernels)
