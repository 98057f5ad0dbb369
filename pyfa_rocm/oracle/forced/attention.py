# SPDX-License-Identifier: MIT OR Apache-2.0
"""A forward or a backward kernel on a random problem, by the raw functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pyfa_rocm import fmha
from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.params import Bias, FwdParams, Lse, Strided
from pyfa_rocm.array import DeviceArray, dtype_of
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
    judged,
    nothing,
    number_of,
    put,
    repeated,
    workspace,
)
from pyfa_rocm.oracle.forced.problem import Drawn, backward_problem, forward_problem
from pyfa_rocm.oracle.gradients import gradients
from pyfa_rocm.oracle.reference import attention
from pyfa_rocm.oracle.rounding import Numerics, numerics_of

__all__ = ["backward", "forward"]

_SEED, _OFFSET = 2**33 + 5, 77
_Draw = Callable[[Row, np.random.Generator, Sizes], Drawn]


class _Placed:
    """A problem's arrays, on both sides. Those of packed sequences have a batch of one."""

    def __init__(self, problem: Drawn, rng: np.random.Generator) -> None:
        self.problem = p = problem
        m, n = (sum(rows) for rows in zip(*p.lengths, strict=True)) if p.packed else p.longest
        self.slots = 1 if p.packed else len(p.lengths)
        self.rows = {"q": (m, p.nhead_q), "k": (n, p.nhead_k)}
        self.inputs: dict[str, Array] = {
            "q": self._normal(rng, m, p.nhead_q, p.hdim_q),
            "k": self._normal(rng, n, p.nhead_k, p.hdim_q),
            "v": self._normal(rng, n, p.nhead_k, p.hdim_v),
        }
        self.bias: Array | None = None
        if p.bias:
            shape = (self.slots, p.nhead_q, m, p.longest[1])
            self.bias = rng.standard_normal(shape, np.float32).astype(dtype_of(p.dtype))
        self.dout = self._normal(rng, m, p.nhead_q, p.hdim_v)
        self.held: dict[str, DeviceArray] = {name: put(x) for name, x in self.inputs.items()}
        self.kept: list[DeviceArray] = []

    def _normal(self, rng: np.random.Generator, rows: int, heads: int, hdim: int) -> Array:
        shape = (self.slots, rows, heads, hdim)
        return rng.standard_normal(shape, np.float32).astype(dtype_of(self.problem.dtype))

    @property
    def o_shape(self) -> tuple[int, ...]:
        """The shape of O."""
        return (*self.inputs["q"].shape[:3], self.problem.hdim_v)

    @property
    def lse_shape(self) -> tuple[int, ...]:
        """The shape of the log-sum-exp."""
        return self.slots, self.problem.nhead_q, self.inputs["q"].shape[1]

    def address(self, x: Array) -> int:
        """Copy an array to the device for as long as this lives."""
        self.kept.append(put(x))
        return self.kept[-1].data

    def params(self) -> FwdParams:
        """Describe the forward pass, with nowhere to write yet."""
        p, (m, n) = self.problem, self.problem.longest
        q, k, v = (_strided(self.held[name]) for name in "qkv")
        o, lse = self.o_shape, self.lse_shape
        params = FwdParams(
            dtype=p.dtype, batch=len(p.lengths), seqlen_q=m, seqlen_k=n, nhead_q=p.nhead_q,
            nhead_k=p.nhead_k, hdim_q=p.hdim_q, hdim_v=p.hdim_v, softmax_scale=p.hdim_q**-0.5, q=q, k=k, v=v,
            o=Strided(0, o[1] * o[2] * o[3], o[2] * o[3], o[3]), lse=Lse(0, lse[1] * lse[2], lse[2]),
            o_dtype=None if p.o_dtype == p.dtype else p.o_dtype, mask=p.mask, softcap=p.softcap,
            p_drop=p.p_drop,
        )  # fmt: skip
        if p.mask.startswith("window"):
            params.window_left, params.window_right = p.window
        if p.p_drop:
            params.philox_seed, params.philox_offset = _SEED, _OFFSET
        if p.descale != (1.0, 1.0, 1.0):
            params.q_descale, params.k_descale, params.v_descale = p.descale
        if p.packed:
            starts_q, starts_k = (self._starts(which) for which in (0, 1))
            params.cu_seqlens_q = self.address(starts_q)
            params.cu_seqlens_k = params.cu_seqlens_q if p.same_lengths else self.address(starts_k)
            params.total_q, params.total_k = int(starts_q[-1]), int(starts_k[-1])
        if self.bias is not None:
            at = put(self.bias)
            self.kept.append(at)
            params.bias = Bias(at.data, *at.strides[:3])
        if p.alibi:
            params.alibi_slopes = self.address(p.slopes)
        return params

    def _starts(self, which: int) -> Array:
        return np.cumsum([0, *(pair[which] for pair in self.problem.lengths)], dtype=np.int32)

    def sequences(self) -> Iterator[tuple[slice, slice, slice, dict[str, Any]]]:
        """Yield slots, rows and keys of each sequence, and the oracle's arguments for it."""
        p = self.problem
        starts = [self._starts(which) for which in (0, 1)]
        for b, (m, n) in enumerate(p.lengths):
            slot = slice(0, 1) if p.packed else slice(b, b + 1)
            rows, keys = (
                slice(int(start[b]), int(start[b]) + count) if p.packed else slice(count)
                for start, count in zip(starts, (m, n), strict=True)
            )
            arguments = p.mask_arguments() | {"softcap": p.softcap, "alibi_slopes": p.slopes}
            if self.bias is not None:
                arguments["bias"] = self.bias[slot, :, rows, :n]
            if p.p_drop:
                random = philox.random_bytes(_SEED, _OFFSET, p.nhead_q, m, n, b)
                arguments["keep"] = (random <= philox.keep_at_most(p.p_drop))[None]
                arguments["keep_scale"] = philox.keep_scale(p.p_drop)
            yield slot, rows, keys, arguments


def _strided(x: DeviceArray) -> Strided:
    return Strided(x.data, *x.strides[:3])


def _arch() -> str:
    return describe(current_device()).arch


def _offered(
    row: Row, seed: int, sizes: Sizes, draw: _Draw, describe_call: Callable[[_Placed], Any], info: Any
) -> tuple[_Placed, Any, fmha.KernelInfo]:
    """Draw problems until the library offers the kernel for one; return it, its call and the kernel."""
    rng = drawn(row, seed)
    for _ in range(TRIES):
        placed = _Placed(draw(row, rng, sizes), rng)
        params = describe_call(placed)
        try:
            return placed, params, number_of(params, info, row["name"])
        except (NotOfferedError, UnsupportedError):
            continue
    raise NotOfferedError(f"not offered for {TRIES} random problems, the last: {placed.problem}")


def forward(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Run a forward kernel."""
    placed, params, kernel = _offered(row, seed, sizes, forward_problem, _Placed.params, fmha.fmha_fwd_kernel)
    p = placed.problem
    room, params.workspace = workspace(nbytes := fmha.fmha_fwd_workspace_bytes(params))
    params.workspace_bytes = nbytes
    if fmha.fmha_fwd_kernel(params).name != row["name"]:
        raise NotOfferedError(f"not offered with a workspace: {p}")

    def run() -> dict[str, Array]:
        o, lse = nothing(placed.o_shape, p.o_dtype), nothing(placed.lse_shape, "float32")
        params.o = params.o._replace(data=o.data)
        params.lse = Lse(lse.data, *lse.strides[:2])
        fmha.fmha_fwd(params)
        return {"o": o.to_numpy(), "lse": lse.to_numpy()}

    found, same = repeated(run, sizes.runs)
    del room
    shares = dict.fromkeys(found, 0.0)
    numerics = numerics_of(p.dtype, p.o_dtype, kernel.tile_n, kernel.arch, kernel.pipeline)
    q, k, v = placed.inputs.values()
    for slot, rows, keys, arguments in placed.sequences():
        want = attention(
            q[slot, rows], k[slot, keys], v[slot, keys], numerics=numerics, descale=p.descale, **arguments
        )
        _raise(shares, "o", judged(found["o"][slot, rows], want.o, want.o_tolerance))
        _raise(shares, "lse", judged(found["lse"][slot, :, rows], want.lse, want.lse_tolerance))
    return Outcome(str(p), shares, same, promised=True)


def _raise(shares: dict[str, float], name: str, share: float) -> None:
    """Take over a larger share; NaN stays."""
    shares[name] = float(np.maximum(shares[name], share))


def _oracle_results(placed: _Placed, numerics: Numerics) -> tuple[Array, Array]:
    """Return the oracle's O and LSE, rounded: no forward kernel of the same features is needed."""
    o = np.zeros(placed.o_shape, dtype_of(placed.problem.dtype))
    lse = np.zeros(placed.lse_shape, np.float32)
    q, k, v = placed.inputs.values()
    for slot, rows, keys, arguments in placed.sequences():
        want = attention(q[slot, rows], k[slot, keys], v[slot, keys], numerics=numerics, **arguments)
        o[slot, rows], lse[slot, :, rows] = want.o.astype(o.dtype), want.lse.astype(np.float32)
    return o, lse


def _backward_params(placed: _Placed, dbias: bool) -> BwdParams:
    of_q, of_k, of_v = (_strided(placed.held[name])._replace(data=0) for name in "qkv")
    params = BwdParams(placed.params(), _strided_like(placed.o_shape), of_q, of_k, of_v)
    if dbias and params.fwd.bias is not None and placed.bias is not None:
        # Any memory: an address of 0 says that it is not wanted.
        params.dbias = params.fwd.bias._replace(data=placed.address(placed.bias))
    return params


def _strided_like(shape: tuple[int, ...]) -> Strided:
    return Strided(0, shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3])


def backward(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Run a backward kernel: where it is offered, for half of the seeds in its deterministic form."""
    dbias = bool(row["dbias"])
    placed, params, _ = _offered(
        row, seed, sizes, backward_problem, lambda x: _backward_params(x, dbias), fmha.fmha_bwd_kernel
    )
    p = placed.problem
    promised = False
    if seed % 2 == 0:
        certain = replace(params, deterministic=True)
        try:
            number_of(certain, fmha.fmha_bwd_kernel, row["name"])
            params, promised = certain, True
        except (NotOfferedError, UnsupportedError):
            pass
    numerics = numerics_of(p.dtype, arch=_arch())
    o, lse = _oracle_results(placed, numerics)
    held = {"o": put(o), "lse": put(lse), "dout": put(placed.dout)}
    params.fwd.o, params.dout = _strided(held["o"]), _strided(held["dout"])
    params.fwd.lse = Lse(held["lse"].data, *held["lse"].strides[:2])
    like = {f"d{name}": x for name, x in placed.inputs.items()}
    if params.dbias is not None:
        assert placed.bias is not None
        like["dbias"] = placed.bias

    def run() -> dict[str, Array]:
        out = {name: nothing(x.shape, p.dtype) for name, x in like.items()}
        for name, x in out.items():
            setattr(params, name, getattr(params, name)._replace(data=x.data))
        room, params.workspace = workspace(nbytes := fmha.fmha_bwd_workspace_bytes(params))
        params.workspace_bytes = nbytes
        fmha.fmha_bwd(params)
        found = {name: x.to_numpy() for name, x in out.items()}
        del room
        return found

    found, same = repeated(run, sizes.runs)
    shares = dict.fromkeys(found, 0.0)
    q, k, v = placed.inputs.values()
    for slot, rows, keys, arguments in placed.sequences():
        want = gradients(
            q[slot, rows], k[slot, keys], v[slot, keys], o[slot, rows], lse[slot, :, rows],
            placed.dout[slot, rows], numerics=numerics, **arguments,
        )  # fmt: skip
        places: dict[str, Any] = {"dq": (slot, rows), "dk": (slot, keys), "dv": (slot, keys)}
        count = keys.stop - (keys.start or 0)
        places["dbias"] = (slot, slice(None), rows, slice(count))
        for name, x in found.items():
            gradient = want[name]
            _raise(shares, name, judged(x[places[name]], gradient.value, gradient.bound_in(p.dtype)))
    return Outcome(f"{p}, deterministic" if promised else str(p), shares, same, promised)
