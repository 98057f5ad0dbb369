# SPDX-License-Identifier: MIT OR Apache-2.0
"""Backward problems: a forward case and what is asked of its gradients, run on the device and judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import philox
from built import Row, this_arch
from cases_judge import MANY_ROWS, expected, within
from cases_place import NOT_READ, Placed, Placement
from cases_types import DTYPES, Array, Case, Layout
from reference import RMS_SLACK, Gradient, gradients, numerics_of
from strict import forgiven, read_only

import pyfa_rocm
from pyfa_rocm import BwdParams, Strided

NAMES = ("dq", "dk", "dv")
DBIAS = "dbias"
# The C ABI asks for this alignment.
_WORKSPACE = Layout(start=256)


@dataclass(frozen=True)
class Ask:
    """The requested gradients, and their layouts."""

    grad_dtype: str = ""
    accumulate: bool = False
    deterministic: bool = False
    dbias: bool = True  # where there is a bias
    # Of dout, dq, dk and dv.
    layouts: tuple[Layout, Layout, Layout, Layout] = (Layout(), Layout(), Layout(), Layout())
    kernel: int = 0


class Backward:
    """A case's tensors on the device, O and LSE being the oracle's, and its gradients."""

    def __init__(
        self,
        case: Case,
        ask: Ask | None = None,
        *,
        inputs: list[Array] | None = None,
        results: tuple[Array, Array, Array] | None = None,
    ) -> None:
        """Take other q, k, v than the case's, or other O, LSE and dO than the oracle's, if they are given."""
        self.ask = ask = Ask() if ask is None else ask
        self.case = case = replace(case, lse=True)
        self.forward = Placement(case, inputs)
        rng = np.random.default_rng((case.seed, 3))
        dtype, rows = DTYPES[case.dtype], case.rows_in_use()[0]
        dout = rng.standard_normal(case.o_shape, np.float32).astype(dtype)
        self.o, self.lse, self.dout = (*self._results(), dout) if results is None else results
        tensors, of_rows = self.forward.tensors, rows[:, None, None]
        lse = tensors["lse"]
        tensors["o"] = Placed.put(tensors["o"].layout, case.o_shape, dtype, self.o, of_rows)
        tensors["lse"] = Placed.put(lse.layout, lse.shape, "float32", self.lse[..., None], rows[:, None])
        tensors["dout"] = Placed.put(ask.layouts[0], case.o_shape, dtype, self.dout, of_rows)
        self.grad_dtype = ask.grad_dtype or case.dtype
        self.before: dict[str, Array] = {}
        self.grads: dict[str, Placed] = {}
        shapes = (case.q_shape, case.k_shape, case.v_shape)
        for name, shape, layout in zip(NAMES, shapes, ask.layouts[1:], strict=True):
            dtype = DTYPES[self.grad_dtype]
            held = rng.standard_normal(shape, np.float32).astype(dtype) if ask.accumulate else None
            if held is not None:
                self.before[name] = held
            self.grads[name] = Placed.put(layout, shape, dtype, held)
        if case.bias is not None and ask.dbias:
            dtype, shape = DTYPES[self.grad_dtype], case.bias_shape
            if ask.accumulate:
                self.before[DBIAS] = rng.standard_normal(shape, np.float32).astype(dtype)
            self.grads[DBIAS] = Placed.put(case.bias.layout, shape, dtype, self.before.get(DBIAS))
        self.workspace: Placed | None = None

    def _results(self) -> tuple[Array, Array]:
        """O and LSE of the oracle, rounded as a kernel stores them, over all rows of the tensors."""
        case = self.case
        o = np.zeros(case.o_shape, DTYPES[case.dtype])
        lse = np.zeros((case.slots, case.nhead_q, case.total_q), np.float32)
        rows, _ = case.rows_in_use()
        if case.batch and case.seqlen_q and case.nhead_q:
            want = expected(case, self.forward.inputs)
            o[:, rows], lse[..., rows] = want.o.astype(o.dtype), want.lse.astype(np.float32)
        return o, lse

    def params(self) -> BwdParams:
        """Arguments of the raw functions, with a workspace of the size that they ask for."""
        params = BwdParams(
            fwd=self.forward.params(), dout=self._strided("dout"), dq=self._strided("dq"),
            dk=self._strided("dk"), dv=self._strided("dv"), grad_dtype=self.ask.grad_dtype or None,
            accumulate=self.ask.accumulate, deterministic=self.ask.deterministic, kernel=self.ask.kernel,
        )  # fmt: skip
        if DBIAS in self.grads:
            params.dbias = self._dbias()
        nbytes = pyfa_rocm.fmha_bwd_workspace_bytes(params)
        if nbytes:
            self.workspace = Placed.put(_WORKSPACE, (1, 1, 1, nbytes), np.uint8, None)
            params.workspace, params.workspace_bytes = self.workspace.array.data, nbytes
        return params

    def _strided(self, name: str) -> Strided:
        strided = (self.forward.tensors | self.grads)[name].strided()
        return strided._replace(stride_batch=NOT_READ) if self.case.varlen else strided

    def _dbias(self) -> pyfa_rocm.Bias:
        """The gradient of the bias, whose strides are 0 where it is broadcast."""
        array, case = self.grads[DBIAS].array, self.case
        assert case.bias is not None
        strides = [n if has else 0 for n, has in zip(array.strides[:3], case.bias.dims, strict=True)]
        if case.varlen is not None:
            strides[0] = NOT_READ
        return pyfa_rocm.Bias(array.data, *strides)

    def run(self, stream: int = 0) -> dict[str, Array]:
        """Enqueue, wait, and return the gradients, after checking that nothing else was written."""
        params = self.params()
        inputs = self.forward.tensors.values()
        for placed in inputs:
            placed.watch(holds_input=True)
        for placed in self.grads.values():
            placed.watch(holds_input=self.ask.accumulate)
        if self.workspace is not None:
            self.workspace.watch(holds_input=False)
        with forgiven(), read_only((x.buffer.data, x.host.nbytes) for x in inputs):
            pyfa_rocm.fmha_bwd(params, stream)
            pyfa_rocm.synchronize()
        for name, placed in self.forward.tensors.items():
            assert placed.unchanged(), f"{name} was written"
        if self.workspace is not None:
            self.workspace.take()
        return {name: placed.take() for name, placed in self.grads.items()}

    def expected(self) -> dict[str, Gradient]:
        """The oracle's gradients, over all rows of the tensors; 0 outside of the sequences."""
        case = self.case
        q, k, v = self.forward.inputs
        shapes = dict(zip(NAMES, (case.q_shape, case.k_shape, case.v_shape), strict=True))
        if case.bias is not None:
            shapes[DBIAS] = (case.slots, case.nhead_q, case.total_q, case.seqlen_k)
        parts = {name: [np.zeros(shape) for _ in range(3)] for name, shape in shapes.items()}
        for b, slot, rows, keys in case.sequences():
            at = slice(slot, slot + 1)
            m, n = rows.stop - rows.start, keys.stop - keys.start
            if m == n == 0:
                continue
            slopes = kept = bias = None
            if case.alibi:
                slopes = case.slopes()[b : b + 1] if case.alibi == 2 else case.slopes()
            if case.bias is not None:
                held, of_rows = case.bias_data(), rows if case.bias.dims[2] else slice(None)
                bias = held[at if case.bias.dims[0] else slice(None), :, of_rows, :n]
            if case.dropout is not None:
                random = philox.random_bytes(case.dropout.seed, case.dropout.offset, case.nhead_q, m, n, b)
                kept = (random <= philox.keep_at_most(case.dropout.p))[None]
            found = gradients(
                q[at, rows], k[at, keys], v[at, keys], self.o[at, rows], self.lse[at, :, rows],
                self.dout[at, rows], numerics=numerics_of(case.dtype, arch=this_arch()),
                softmax_scale=case.scale, causal=case.causal, window_size=case.window,
                top_left=case.top_left, max_seqlen_k=case.seqlen_k, alibi_slopes=slopes,
                softcap=case.softcap, bias=bias, keep=kept,
                keep_scale=philox.keep_scale(case.dropout.p) if case.dropout else 1.0,
            )  # fmt: skip
            for name, gradient in found.items():
                where = (
                    (at, slice(None), rows, slice(n))
                    if name == DBIAS
                    else (at, rows if name == "dq" else keys)
                )
                for total, part in zip(
                    parts[name], (gradient.value, gradient.bound, gradient.variance), strict=True
                ):
                    total[where] = part
        found = {name: Gradient(*x) for name, x in parts.items()}
        if case.bias is not None:
            shared = tuple(dim for dim, has in enumerate(case.bias.dims) if not has)
            found[DBIAS] = found[DBIAS].summed(shared)
        for name, before in self.before.items():
            found[name] = replace(found[name], value=found[name].value + before.astype(np.float64))
        return {name: gradient for name, gradient in found.items() if name in self.grads}

    def judge(self, got: dict[str, Array]) -> None:
        """Assert that every gradient is within the oracle's bound, and its errors as small on average."""
        for name, want in self.expected().items():
            judge_gradient(name, want, got[name], self.grad_dtype)


def judge_gradient(name: str, want: Gradient, got: Array, dtype: str) -> None:
    """Assert that a gradient is within the oracle's bound, and its errors as small on average."""
    within(name, got, want.value, want.bound_in(dtype))
    error = got.astype(np.float64) - want.value
    if error.size >= MANY_ROWS * 8:
        rms, limit = (float(np.sqrt(x.mean())) for x in (error**2, want.variance_in(dtype)))
        assert rms <= RMS_SLACK * limit, f"{name} is off by {rms:.3g} (RMS), expected {limit:.3g}"


def candidates(case: Case, ask: Ask, of: type[Backward] = Backward) -> list[str]:
    """Return the names of the kernels that do a case, the best first."""

    def info(number: int) -> Any:
        return pyfa_rocm.fmha_bwd_kernel(of(case, replace(ask, kernel=number)).params())

    return [info(number).name for number in range(1, info(1).candidate_count + 1)]


def forced(case: Case, ask: Ask, name: str) -> Ask:
    """Ask for the candidate of this name, whichever it is."""
    return replace(ask, kernel=1 + candidates(case, ask).index(name))


def by(row: Row, case: Case, ask: Ask | None = None) -> Ask:
    """Ask for the kernel of a row, unless there is nothing to choose."""
    ask = ask or Ask()
    return forced(case, ask, row["name"]) if case.seqlen_q and case.seqlen_k else ask


def run_backward(case: Case, ask: Ask | None = None) -> dict[str, Any]:
    """Run a case through fmha_bwd, judge it, and return its gradients."""
    backward = Backward(case, ask)
    got = backward.run()
    backward.judge(got)
    return got
