# SPDX-License-Identifier: MIT OR Apache-2.0
"""The right results of a case, and the judgement of a kernel's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import philox
import pytest
from built import candidates, this_arch
from cases_place import Placement, bits, without_lse
from cases_types import Array, Bools, Case
from plugins import errors
from reference import RMS_SLACK, Expected, Numerics, attention, numerics_of, visible
from strict import forgiven, wave_order

import pyfa_rocm
from pyfa_rocm import FwdParams
from pyfa_rocm.fmha import KernelInfo

# From so many rows on averages over them mean something.
MANY_ROWS = 256


def expected(case: Case, inputs: list[Array], numerics: Numerics | None = None) -> Expected:
    """The oracle's answer to a case; with packed sequences, that of the rows in use."""
    if numerics is None:
        numerics = numerics_of(case.dtype, case.out_dtype, arch=this_arch())
    if case.varlen is None:
        return _sequence(case, inputs, range(case.batch), slice(None), slice(None), numerics)
    sequences = list(case.sequences())
    assert sequences, "no sequences, nothing to expect"
    with_rows = [at for at in sequences if at[2].stop > at[2].start] or sequences[:1]
    parts = [_sequence(case, inputs, range(b, b + 1), rows, keys, numerics) for b, _, rows, keys in with_rows]
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=2 if "lse" in name else 1)
        for name in ("o", "lse", "o_tolerance", "lse_tolerance", "o_variance", "o_bias")
    }
    return Expected(**joined, o_bias_slack=parts[0].o_bias_slack)


def numerics_by(kernel: KernelInfo, case: Case) -> Numerics:
    """How the kernel that does a case rounds."""
    return numerics_of(case.dtype, case.out_dtype, kernel.tile_n, kernel.arch, kernel.pipeline)


def _sequence(
    case: Case, inputs: list[Array], batches: range, rows: slice, keys: slice, numerics: Numerics
) -> Expected:
    """Batch entries whose rows of the tensors are the same."""
    q, k, v = (x[:, part] for x, part in zip(inputs, (rows, keys, keys), strict=True))
    bias = slopes = kept = None
    if case.bias is not None:
        bias = case.bias_data()[:, :, rows if case.bias.dims[2] else slice(None), : k.shape[1]]
    if case.alibi:
        slopes = case.slopes()
        slopes = slopes[batches.start : batches.stop] if case.alibi == 2 else slopes
    if case.dropout is not None:
        kept = np.stack([_random(case, b, q.shape[1], k.shape[1]) for b in batches])
        kept = kept <= philox.keep_at_most(case.dropout.p)
    return attention(
        q, k, v, softmax_scale=case.scale, causal=case.causal, window_size=case.window,
        top_left=case.top_left, max_seqlen_k=case.seqlen_k, bias=bias, alibi_slopes=slopes,
        softcap=case.softcap, keep=kept, descale=case.descale, numerics=numerics,
        sinks=case.sink_data() if case.sinks else None,
        keep_scale=philox.keep_scale(case.dropout.p) if case.dropout else 1.0,
    )  # fmt: skip


def _random(case: Case, batch: int, rows: int, columns: int) -> Array:
    assert case.dropout is not None
    return philox.random_bytes(case.dropout.seed, case.dropout.offset, case.nhead_q, rows, columns, batch)


def within(name: str, got: Array, want: Array, bound: Array, part: str = "") -> None:
    """Assert that no element is further from the right one than its bound; -inf is right where it is wanted.

    `name` is that of the result in the record of errors; `part`, of which part of it this is.
    """
    errors.tell(name, got, want, bound)
    with np.errstate(invalid="ignore"):  # -inf - -inf
        distance = np.where(np.isneginf(want) & (got == want), 0.0, np.abs(got.astype(np.float64) - want))
    off = ~(distance <= bound)
    if off.any():
        at = tuple(int(i) for i in np.argwhere(off)[0])
        raise AssertionError(
            f"{name}{part}{list(at)} = {got[at]}, expected {want[at]} +- {bound[at]:.3g}; "
            f"{off.sum()} of {off.size} elements are off"
        )


def judge(want: Expected, o: Array, lse: Array | None, averages: bool = True) -> None:
    """Assert that a kernel's results are within tolerance, and rows without keys exact.

    `averages`: errors of different rows are independent.
    """
    within("o", o, want.o, want.o_tolerance)
    signed = o.astype(np.float64) - want.o
    empty = np.isneginf(want.lse).transpose(0, 2, 1)
    assert (o[empty].astype(np.float64) == 0).all(), "a row that sees no key is not 0"
    _, distinct = np.unique(want.o[~empty][:, 0], return_index=True)  # of rows alike errors are alike
    if averages and distinct.size >= MANY_ROWS:
        error, o, variance = (x[~empty][distinct] for x in (signed - want.o_bias, want.o, want.o_variance))
        _judge_statistics(error, o, variance, want.o_bias_slack)
    if lse is not None:
        within("lse", lse, want.lse, want.lse_tolerance)


def _judge_statistics(error: Array, o: Array, variance: Array, bias_slack: float) -> None:
    """Assert that errors are as small as rounding makes them on average, and have no more bias to or from 0.

    All are (rows, hdim), of rows that differ; `error` is what is left when the expected bias is taken off.
    Errors of different rows are independent; within a row they share the errors of P, so that the variance of
    its sum of error * o is bounded only by Cauchy and Schwarz.
    """
    rms, limit = (float(np.sqrt(x.mean())) for x in (error**2, variance))
    assert rms <= RMS_SLACK * limit, f"O is off by {rms:.3g} (RMS), expected {limit:.3g}"
    drift = (error * o).sum()
    deviation = np.sqrt(((o**2).sum(1) * variance.sum(1)).sum())
    allowed = 5 * deviation + bias_slack * (o**2).sum()
    assert abs(drift) <= allowed, f"O has a bias of {drift / (o**2).sum():.2g} of itself"


def randval_is_right(placement: Placement) -> None:
    """Assert that the random bytes are the model's: of keys that are seen all, of others those written."""
    case = placement.case
    stored = placement.randval.take()
    for b, slot, rows, keys in case.sequences():
        m, n = rows.stop - rows.start, keys.stop - keys.start
        got, want = stored[slot, :, rows, :n], _random(case, b, m, n)
        wrong = got != want
        untouched: Bools = (got == 0xFF) & ~_seen(case, m, n)
        assert not (wrong & ~untouched).any(), (
            f"random bytes of batch {b}: {(wrong & ~untouched).sum()} of {wrong.size} are wrong, first at "
            f"{np.argwhere(wrong & ~untouched)[0].tolist()}"
        )


def _seen(case: Case, m: int, n: int) -> Bools:
    return visible(
        m, n, causal=case.causal, window_size=case.window, top_left=case.top_left, max_seqlen_k=case.seqlen_k
    )


def run_raw(case: Case, stream: int = 0, orders: tuple[str, ...] = ()) -> str:
    """Run a case through fmha_fwd, judge it, and return the kernel's name.

    In each of `orders` of a workgroup's waves it runs again, and gives the same bits.
    """
    placement = Placement(case)
    params = placement.params()
    placement.add_workspace(params)
    kernel = pyfa_rocm.fmha_fwd_kernel(params)

    def run() -> tuple[Array, Array | None]:
        with forgiven(), placement.watched():
            pyfa_rocm.fmha_fwd(params, stream)
            return placement.results()

    results = run()
    judge(expected(case, placement.inputs, numerics_by(kernel, case)), *results)
    for order in orders:
        with wave_order(order):
            again = run()
        for x, y in zip(results, again, strict=True):
            same = x is y if x is None or y is None else np.array_equal(bits(x), bits(y))
            assert same, f"other bits in wave order {order}"
    if case.dropout is not None and case.dropout.randval:
        randval_is_right(placement)
    return kernel.name


def _of_workgroups_that_share(params: FwdParams) -> FwdParams:
    """Choose the first candidate that takes a workspace: waves of one workgroup may be faster."""
    params.kernel = 1
    while not pyfa_rocm.fmha_fwd_workspace_bytes(params):
        params.kernel += 1
    return params


def run_shared(case: Case) -> tuple[KernelInfo, list[Array], tuple[Array, Array | None]]:
    """Run a case twice whose keys workgroups divide, in a workspace of its own: both have the same bits.

    Return the kernel, the inputs and the results.
    """
    placement = Placement(case)
    params = _of_workgroups_that_share(placement.params())
    assert placement.add_workspace(params) > 0
    info = pyfa_rocm.fmha_fwd_kernel(params)
    assert (info.pipeline, info.step_count) == ("pingpong", 2)
    results = []
    for _ in range(2):
        with placement.watched():
            pyfa_rocm.fmha_fwd(params)
            results.append(placement.results())
    for first, second in zip(*results, strict=True):
        assert (first is None) == (second is None)
        assert first is None or second is None or np.array_equal(bits(first), bits(second))
    return info, placement.inputs, results[0]


def run_or_refused(case: Case, orders: tuple[str, ...] = ()) -> str:
    """Run a case on one of the kernels that can do it, else see it refused; return the kernel, or ""."""
    number = len(candidates(case))
    if number:
        return run_raw(replace(case, kernel=1 + case.seed % number), orders=orders)
    placement = Placement(case)
    with pytest.raises(pyfa_rocm.UnsupportedError) as refused:
        pyfa_rocm.fmha_fwd(placement.params())
    reasons = ("dtype", "hdim_q", "sinks", "softcap", "aligned to 16 bytes")
    assert any(reason in str(refused.value) for reason in reasons), refused.value
    pyfa_rocm.synchronize()
    assert placement.unchanged()
    return ""


def forced(case: Case, kernel: str) -> Case:
    """The case with `kernel` set so that this kernel runs. Its candidates must be the catalogue's."""
    placement, names = Placement(case), {row["name"] for row in candidates(case)}
    found = {}
    for number in range(1, len(names) + 1):
        info = pyfa_rocm.fmha_fwd_kernel(replace(placement.params(), kernel=number))
        assert (info.candidate, info.candidate_count) == (number, len(names))
        found[info.name] = number
    assert found.keys() == names
    return replace(case, kernel=found[kernel])


def run_flash(case: Case) -> None:
    """Run a case through flash_attn_func or its varlen form and judge it. Its LSE is an array of its own.

    Nothing happens if there is no kernel for it.
    """
    if not candidates(case):
        return
    placement = Placement(without_lse(case))
    kernel = pyfa_rocm.fmha_fwd_kernel(placement.params())
    with forgiven(), placement.watched():
        result = _flash(case, placement)
        o, _ = placement.results()
    lse = None
    if case.lse:
        lse = result[1].to_numpy()
        lse = lse if case.varlen is None else lse[None][..., case.rows_in_use()[0]]
    judge(expected(case, placement.inputs, numerics_by(kernel, case)), o, lse)


def _flash(case: Case, placement: Placement) -> Any:
    arguments = _flash_arguments(case, placement)
    tensors: dict[str, Any] = {name: placement.flash(name) for name in ("q", "k", "v", "o")}
    if case.varlen is None:
        out = tensors.pop("o")
        return pyfa_rocm.flash_attn_func(**tensors, out=out, **arguments)
    packed: dict[str, Any] = {name: array[0] for name, array in tensors.items()}
    out = packed.pop("o")
    lengths: dict[str, Any] = {
        field: placement.tensors[name].array[0, 0, 0]
        for name, field in (
            ("cu_q", "cu_seqlens_q"),
            ("cu_k", "cu_seqlens_k"),
            ("used_q", "seqused_q"),
            ("used_k", "seqused_k"),
        )
        if name in placement.tensors
    }
    return pyfa_rocm.flash_attn_varlen_func(
        **packed, **lengths, max_seqlen_q=case.seqlen_q, max_seqlen_k=case.seqlen_k, out=out, **arguments
    )


def _flash_arguments(case: Case, placement: Placement) -> dict[str, Any]:
    """Arguments that both functions take."""
    arguments: dict[str, Any] = {
        "softmax_scale": case.scale,
        "causal": case.causal,
        "window_size": case.window,
        "return_lse": case.lse,
    }
    if case.softcap:
        arguments["softcap"] = case.softcap
    if case.top_left:
        arguments["top_left"] = True
    if case.bias is not None:
        array = placement.bias.array
        arguments["bias"] = array if case.varlen is None else array[0]
    if case.alibi:
        slopes = placement.slopes.array[0, :, 0]
        arguments["alibi_slopes"] = slopes if case.alibi == 2 else slopes[0]
    if case.sinks:
        arguments["sinks"] = placement.sinks.array[0, 0, 0]
    if case.dropout is not None:
        arguments["dropout_p"] = case.dropout.p
        seed = (case.dropout.seed, case.dropout.offset)
        arguments["philox"] = placement.philox.array[0, 0, 0] if case.dropout.on_device else seed
    for name, value in zip(("q_descale", "k_descale", "v_descale"), case.descale, strict=True):
        if value != 1.0:
            arguments[name] = value
    return arguments
