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
from engines.with_parallel.ranks import Ranks
from engines.with_parallel.work import Problem

CASES = {
    "ring zigzag": ("ring", Problem((64,), 2)),
    "ring": ("ring", Problem((64,), 4, zigzag=False, causal=False)),
    "yunchang": ("yunchang", Problem((64,), 4, zigzag=False, causal=False, nhead_k=4)),
    "torch": ("torch", Problem((64,), 2)),
    "torch without balance": ("torch", Problem((64,), 4, zigzag=False)),
}


@pytest.mark.parametrize("case", CASES)
def test_unmodified(case: str) -> None:
    name, problem = CASES[case]
    with Ranks(problem.rings) as group:
        results = group.all(run, problem, name)
    order = np.argsort(torch.cat([x[0] for x in results]).numpy())
    got = [torch.cat([x[i] for x in results])[order] for i in range(1, 5)]
    exact, low = whole(problem)
    for mine, want, theirs in zip(got, exact, low, strict=True):
        error, allowed = ((x.double() - want).abs().max() for x in (mine, theirs))
        rounding = torch.finfo(mine.dtype).eps * want.abs().max()
        assert mine.dtype == theirs.dtype
        assert error <= 2 * allowed + problem.rings * rounding
