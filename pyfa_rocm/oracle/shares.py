# SPDX-License-Identifier: MIT OR Apache-2.0
"""A whole problem by the oracle, sequence by sequence: the right results, and how near others are to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm.array import dtype_of
from pyfa_rocm.oracle import philox
from pyfa_rocm.oracle.gradients import gradients
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.reference import Expected, attention, largest_share
from pyfa_rocm.oracle.rounding import Numerics

__all__ = ["Shares", "backward_shares", "forward_shares", "raise_shares", "right_results"]

Array = npt.NDArray[Any]
# By result, the largest share of an element's tolerance that it uses; NaN if it has one.
Shares = dict[str, float]
_Place = tuple[slice, slice, slice]


def raise_shares(shares: Shares, name: str, got: Array, want: Array, tolerance: Array) -> None:
    """Take over the share of a part of a result if it is larger."""
    shares[name] = float(np.maximum(shares.get(name, 0.0), largest_share(got, want, tolerance)))  # NaN stays


def _of_scores(x: Array, place: _Place) -> Array:
    """Return a sequence's part of an array that is shaped like the scores, with a batch or without."""
    slot, rows, keys = place
    return (x if x.ndim == 3 else x[slot])[..., rows, : keys.stop - keys.start]


def _sequences(
    problem: Problem, numerics: Numerics, keep: Array | None
) -> Iterator[tuple[_Place, dict[str, Any], dict[str, Any]]]:
    """Yield the place of each sequence, its q, k and v, and the oracle's options for it."""
    inputs, options = problem.inputs(), problem.options()
    options |= {"numerics": numerics, "max_seqlen_k": problem.longest[1]}
    if keep is not None:
        options |= {"keep": keep, "keep_scale": philox.keep_scale(problem.dropout_p)}
    for place in problem.sequences():
        slot, rows, keys = place
        parts = {name: _of_scores(options[name], place) for name in ("bias", "keep") if name in options}
        tensors = [x[slot, part] for x, part in zip(inputs, (rows, keys, keys), strict=True)]
        yield place, dict(zip("qkv", tensors, strict=True)), options | parts


def _forward(problem: Problem, numerics: Numerics, keep: Array | None) -> Iterator[tuple[_Place, Expected]]:
    descale: dict[str, Any] = {"descale": problem.descale} if problem.descale else {}
    for place, tensors, options in _sequences(problem, numerics, keep):
        yield place, attention(**tensors, **options, **descale)


def right_results(problem: Problem, numerics: Numerics, keep: Array | None = None) -> tuple[Array, Array]:
    """Return the oracle's O and LSE, rounded: gradients of them need no forward kernel.

    `keep` says what dropout keeps, bool (batch, nhead_q, seqlen, most keys).
    """
    o, lse = np.zeros(problem.o_shape, dtype_of(problem.dtype)), np.zeros(problem.lse_shape, np.float32)
    for (slot, rows, _), want in _forward(problem, numerics, keep):
        o[slot, rows], lse[slot, :, rows] = want.o.astype(o.dtype), want.lse.astype(np.float32)
    return o, lse


def forward_shares(
    problem: Problem, o: Array, lse: Array, numerics: Numerics, keep: Array | None = None
) -> Shares:
    """Judge O and LSE; packed ones have a batch of one. `keep` is that of `right_results`."""
    shares: Shares = {}
    for (slot, rows, _), want in _forward(problem, numerics, keep):
        raise_shares(shares, "o", o[slot, rows], want.o, want.o_tolerance)
        raise_shares(shares, "lse", lse[slot, :, rows], want.lse, want.lse_tolerance)
    return shares


def backward_shares(
    problem: Problem, found: dict[str, Array], o: Array, lse: Array, numerics: Numerics,
    keep: Array | None = None,
) -> Shares:  # fmt: skip
    """Judge the gradients "dq", "dk", "dv" and perhaps "dbias", of this O and LSE, in the inputs' type."""
    shares, dout = dict.fromkeys(found, 0.0), problem.dout()
    for place, tensors, options in _sequences(problem, numerics, keep):
        slot, rows, keys = place
        options.pop("sinks", None)  # which the LSE has
        tensors |= {"o": o[slot, rows], "lse": lse[slot, :, rows], "dout": dout[slot, rows]}
        want = gradients(**tensors, **options)
        for name, x in found.items():
            part = _of_scores(x, place) if name == "dbias" else x[slot, rows if name == "dq" else keys]
            raise_shares(shares, name, part, want[name].value, want[name].bound_in(problem.dtype))
    return shares
