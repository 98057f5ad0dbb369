# SPDX-License-Identifier: MIT OR Apache-2.0
"""A forward or a backward kernel on a random problem, by the raw functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pyfa_rocm import fmha
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import current_device, describe
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle import philox
from pyfa_rocm.oracle.forced.outcome import (
    TRIES,
    Array,
    NotOfferedError,
    Outcome,
    Row,
    Sizes,
    drawn,
    nothing,
    number_of,
    repeated,
    workspace,
)
from pyfa_rocm.oracle.forced.problem import backward_problem, forward_problem, words
from pyfa_rocm.oracle.params import PHILOX, backward_params, forward_params, put
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.rounding import numerics_of
from pyfa_rocm.oracle.shares import backward_shares, forward_shares, right_results

__all__ = ["backward", "forward"]

_Arrays = dict[str, DeviceArray]
_Draw = Callable[[Row, np.random.Generator, Sizes], Problem]


def _placed(p: Problem) -> _Arrays:
    """Return a problem's arrays on the device, by the names of `forward_params`."""
    host = dict(zip("qkv", p.inputs(), strict=True))
    host = {name: x[0] if p.lengths else x for name, x in host.items()}
    host |= {name: x for name, x in p.options().items() if isinstance(x, np.ndarray)}
    held = {name: put(x) for name, x in host.items()}
    if p.lengths:
        # One array for both says that each sequence has as many queries as keys.
        held["cu_seqlens_q"] = held["cu_seqlens_k"] = put(p.starts())
        if p.lengths != p.lengths_k:
            held["cu_seqlens_k"] = put(p.starts(p.lengths_k))
    return held


def _kept(p: Problem) -> Array | None:
    """Return what dropout keeps, as `right_results` takes it; None without dropout."""
    if not p.dropout_p:
        return None
    drawn_bytes = np.zeros((p.batch, p.nhead_q, p.seqlen, p.longest[1]), np.uint8)
    for b, (slot, rows, keys) in enumerate(p.sequences()):
        m, n = rows.stop - rows.start, keys.stop - keys.start
        drawn_bytes[slot, :, rows, :n] = philox.random_bytes(*PHILOX, p.nhead_q, m, n, b)
    return np.asarray(drawn_bytes <= philox.keep_at_most(p.dropout_p))


def _offered(
    row: Row, seed: int, sizes: Sizes, draw: _Draw, describe_call: Callable[..., Any], info: Any
) -> tuple[Problem, _Arrays, Any, fmha.KernelInfo]:
    """Draw problems until the library offers the kernel for one; return it, its call and the kernel."""
    rng = drawn(row, seed)
    for _ in range(TRIES):
        problem = draw(row, rng, sizes)
        held = _placed(problem)
        params = describe_call(problem, **held)
        try:
            return problem, held, params, number_of(params, info, row["name"])
        except (NotOfferedError, UnsupportedError):
            continue
    raise NotOfferedError(f"not offered for {TRIES} random problems, the last: {words(problem)}")


def forward(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Run a forward kernel."""
    p, held, params, kernel = _offered(
        row, seed, sizes, forward_problem, forward_params, fmha.fmha_fwd_kernel
    )
    room, params.workspace = workspace(nbytes := fmha.fmha_fwd_workspace_bytes(params))
    params.workspace_bytes = nbytes
    if fmha.fmha_fwd_kernel(params).name != row["name"]:
        raise NotOfferedError(f"not offered with a workspace: {words(p)}")
    lse_at = params.lse
    assert lse_at is not None

    def run() -> dict[str, Array]:
        o, lse = nothing(p.o_shape, p.o_dtype), nothing(p.lse_shape, "float32")
        params.o, params.lse = params.o._replace(data=o.data), lse_at._replace(data=lse.data)
        fmha.fmha_fwd(params)
        return {"o": o.to_numpy(), "lse": lse.to_numpy()}

    found, same = repeated(run, sizes.runs)
    del room, held
    numerics = numerics_of(p.dtype, p.o_dtype, kernel.tile_n, kernel.arch, kernel.pipeline)
    shares = forward_shares(p, found["o"], found["lse"], numerics, _kept(p))
    return Outcome(words(p), shares, same, promised=True)


def backward(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Run a backward kernel: where it is offered, for half of the seeds in its deterministic form."""
    wanted: list[DeviceArray] = []

    def describe_call(problem: Problem, **arrays: DeviceArray) -> Any:
        params = backward_params(problem, **arrays)
        if row["dbias"] and params.fwd.bias is not None:
            # Any memory: an address of 0 says that it is not wanted.
            wanted.append(nothing(arrays["bias"].shape, problem.dtype))
            params.dbias = params.fwd.bias._replace(data=wanted[-1].data)
        return params

    p, held, params, _ = _offered(row, seed, sizes, backward_problem, describe_call, fmha.fmha_bwd_kernel)
    promised = False
    if seed % 2 == 0:
        certain = replace(params, deterministic=True)
        try:
            number_of(certain, fmha.fmha_bwd_kernel, row["name"])
            params, promised = certain, True
        except (NotOfferedError, UnsupportedError):
            pass
    numerics, keep = numerics_of(p.dtype, arch=describe(current_device()).arch), _kept(p)
    o, lse = right_results(p, numerics, keep)
    results = {"o": put(o), "lse": put(lse), "dout": put(p.dout())}
    params.fwd.o = params.fwd.o._replace(data=results["o"].data)
    params.fwd.lse = params.fwd.lse._replace(data=results["lse"].data)
    params.dout = params.dout._replace(data=results["dout"].data)
    like: dict[str, tuple[int, ...]] = {"dq": p.q_shape, "dk": p.k_shape, "dv": p.v_shape}
    if params.dbias is not None:
        like["dbias"] = held["bias"].shape

    def run() -> dict[str, Array]:
        out = {name: nothing(shape, p.dtype) for name, shape in like.items()}
        for name, x in out.items():
            setattr(params, name, getattr(params, name)._replace(data=x.data))
        room, params.workspace = workspace(nbytes := fmha.fmha_bwd_workspace_bytes(params))
        params.workspace_bytes = nbytes
        fmha.fmha_bwd(params)
        found = {name: x.to_numpy() for name, x in out.items()}
        del room
        return found

    found, same = repeated(run, sizes.runs)
    shares = backward_shares(p, found, o, lse, numerics, keep)
    return Outcome(f"{words(p)}, deterministic" if promised else words(p), shares, same, promised)
