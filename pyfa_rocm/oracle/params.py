# SPDX-License-Identifier: MIT OR Apache-2.0
"""A problem as the library's parameters, for its raw layer."""

from __future__ import annotations

from pyfa_rocm._call.params import FwdParams, Lse, Strided
from pyfa_rocm.oracle.problem import Problem

__all__ = ["forward_params"]


def forward_params(
    problem: Problem, q: Strided, k: Strided, v: Strided, o: Strided, lse: Lse | None = None
) -> FwdParams:
    """Describe the forward pass of a problem with these tensors; without `lse` none is written."""
    return FwdParams(
        dtype=problem.dtype, batch=problem.batch, seqlen_q=problem.seqlen, seqlen_k=problem.seqlen,
        nhead_q=problem.nhead_q, nhead_k=problem.nhead_k, hdim_q=problem.hdim, hdim_v=problem.hdim,
        softmax_scale=problem.hdim**-0.5, mask="causal" if problem.causal else "none",
        q=q, k=k, v=v, o=o, lse=lse,
    )  # fmt: skip
