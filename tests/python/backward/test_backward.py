# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backward pass against float64: the oracle against itself, fixed cases that matter, and random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backward import NAMES, Ask, Backward, forced, judge_gradient, run_backward
from built import DTYPE_OF, Row, drawn, every_of, rows, this_arch
from cases import Bias, Case, Dropout, Layout, Varlen, bits, cases, layouts
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from reference import Expected, Gradient, Numerics, attention, gradients
from strict import wave_order

import pyfa_rocm

EXAMPLES = hypothesis_profile.EXAMPLES // 4
# Pipelines of our own, which add up nothing in memory.
OWN = ("pingpong", "wide", "halves", "two_sided")
BASE = Case(batch=2, seqlen_q=150, seqlen_k=203, nhead_k=2, ratio=1, hdim=64, dtype="float16", seed=5)


# On gfx942: by pingpong, by a kernel that sums up in memory, and by that of float32.
@pytest.fixture(params=[("float16", 64), ("bfloat16", 32), ("float32", 64)], ids=["f16", "summed", "f32"])
def base(request: pytest.FixtureRequest) -> Case:
    """A small case for each way to make gradients."""
    dtype, hdim = request.param
    return nearest(replace(BASE, dtype=dtype, hdim=hdim))


def has(row: Row, feature: str, wanted: bool) -> bool:
    """Return whether a kernel does a problem with a feature, or without it."""
    return bool(row["optional"] or row.get(feature, False) == wanted)


def kernels(case: Case, *, dbias: bool = True) -> list[Row]:
    """The rows of this arch whose kernels can do a case, with the gradient of its bias or without."""
    hdim_v = case.hdim_v or case.hdim
    return [
        row
        for row in rows("bwd")
        if row["arch"] == this_arch() and DTYPE_OF[row["dtype"]] == case.dtype and row["mask"] == "any"
        and row["hdim_q"] >= case.hdim and row["hdim_v"] >= hdim_v
        and has(row, "alibi", bool(case.alibi)) and has(row, "dropout", case.dropout is not None)
        and has(row, "softcap", case.softcap > 0) and has(row, "bias", case.bias is not None)
        and has(row, "dbias", case.bias is not None and dbias)
    ]  # fmt: skip


def nearest(case: Case) -> Case:
    """The case, or one of another dtype or head dim, or with dropout, that has a kernel of a small set."""
    dtypes = (case.dtype, "float16", "bfloat16")
    for dropout in (case.dropout, case.dropout or Dropout(0.2)):
        like = replace(case, dropout=dropout)
        for other in (like, *(replace(like, dtype=d, hdim=n) for d in dtypes for n in (64, 128))):
            if kernels(other):
                return other
    pytest.skip("this build has no backward kernel for such a case on this arch")


@pytest.mark.parametrize("feature", ["alibi", "softcap", "bias", "sinks"])
def test_oracle_is_the_derivative(feature: str) -> None:
    """The oracle's gradients are the slopes of the forward oracle in a random direction."""
    rng = np.random.default_rng(11)
    q, k, v = (rng.standard_normal(shape) for shape in ((2, 5, 4, 8), (2, 7, 2, 8), (2, 7, 2, 16)))
    dout = rng.standard_normal((2, 5, 4, 16))
    keep = rng.random((2, 4, 5, 7)) < 0.8
    features: dict[str, Any] = {
        "softmax_scale": 0.4,
        "causal": True,
        "window_size": (4, -1),
        "keep": keep,
        "keep_scale": 1.25,
    }
    features |= {"softcap": 1.5} if feature == "softcap" else {}
    features |= {"alibi_slopes": np.full(4, 0.3)} if feature == "alibi" else {}
    arrays = [q, k, v, *([rng.standard_normal((2, 1, 5, 7))] if feature == "bias" else [])]
    arrays += [rng.standard_normal(4)] if feature == "sinks" else []
    exact = Numerics("float32", "float32")

    def forward(*inputs: np.ndarray) -> Expected:
        q, k, v, *last = inputs
        named = features | ({feature: last[0]} if last else {})
        return attention(q, k, v, numerics=exact, **named)

    def loss(*inputs: np.ndarray) -> float:
        return float((forward(*inputs).o * dout).sum())

    bias = arrays[3] if feature == "bias" else None
    want = forward(*arrays)
    found = gradients(q, k, v, want.o, want.lse, dout, bias=bias, numerics=exact, **features)
    if bias is not None:
        found["dbias"] = found["dbias"].summed((1,))
    if feature == "sinks":  # as fmha_rocm.h says: the backward pass knows them by the LSE
        d = (dout * want.o).sum(axis=3).transpose(0, 2, 1)
        slope = (-np.exp(arrays[3][:, None] - want.lse) * d).sum(axis=(0, 2))
        found["dsinks"] = Gradient(slope, slope, slope)
    for i, name in enumerate(found):
        direction, h = rng.standard_normal(arrays[i].shape), 1e-5
        sides = []
        for sign in (1, -1):
            moved = list(arrays)
            moved[i] = arrays[i] + sign * h * direction
            sides.append(loss(*moved))
        slope = (sides[0] - sides[1]) / (2 * h)
        # A central difference is off by h^2 of the third derivative, and by rounding / h.
        assert slope == pytest.approx((found[name].value * direction).sum(), rel=1e-6, abs=1e-7), name


# Kernels that come prebuilt are tested by test_prebuilt_backward.py.
COMPILED = [row for row in rows("bwd") if row["origin"] != "aiter"]


@every_of(COMPILED)
def test_every_kernel(row: Row) -> None:
    """The head dims of its tile, and less; lengths that are no multiple of its tile, then any."""
    case = replace(
        BASE, dtype=DTYPE_OF[row["dtype"]], hdim=row["hdim_q"], hdim_v=row["hdim_v"], alibi=int(row["alibi"]),
        dropout=Dropout(0.3) if row["dropout"] else None, batch=1, seqlen_k=row["tile_n"] + 30,
    )  # fmt: skip
    if not row["optional"]:
        case = replace(case, bias=Bias() if row["bias"] else None, softcap=4.0 if row["softcap"] else 0.0)
    ask = forced(case, Ask(dbias=row["dbias"]), row["name"])
    backward = Backward(case, ask)
    assert pyfa_rocm.fmha_bwd_kernel(backward.params()).name == row["name"]
    backward.judge(backward.run())
    seqlen_q, seqlen_k = (int(n) for n in drawn(row).integers(1, 2 * row["tile_n"], 2))
    run_backward(
        replace(case, hdim=row["hdim_q"] - 8, causal=True, ratio=2, seqlen_q=seqlen_q, seqlen_k=seqlen_k),
        replace(ask, kernel=0),
    )
    if row["optional"]:
        run_backward(replace(case, alibi=0, dropout=None))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("hdim", [8, 32, 40, 64, 96, 104, 128, 200, 256, 264, 512])
def test_head_dims(dtype: str, hdim: int) -> None:
    case = replace(BASE, dtype=dtype, hdim=hdim, causal=True)
    if not kernels(case):
        pytest.skip("this build has no kernel for it")
    run_backward(case)
    if hdim > 8:
        run_backward(replace(case, hdim_v=hdim - 8, causal=False))


@pytest.mark.parametrize(
    "change",
    [
        {"causal": True},
        {"causal": True, "top_left": True},
        {"seqlen_q": 300, "seqlen_k": 100, "causal": True},  # rows 0 to 199 see no key
        {
            "seqlen_q": 40,
            "seqlen_k": 600,
            "causal": True,
            "top_left": True,
        },  # keys from 40 on are seen by no row
        {"window": (20, 3)},
        {"window": (20, 3), "top_left": True, "seqlen_q": 400},
        {"window": (0, 0), "seqlen_q": 257, "seqlen_k": 31},
        {"seqlen_q": 1, "seqlen_k": 1},
        {"seqlen_q": 1, "seqlen_k": 500},
        {"seqlen_q": 500, "seqlen_k": 1},
        {"ratio": 3},
        {"ratio": 8, "nhead_k": 1, "batch": 1},
        {"scale": 0.5},
        {"broadcast_kv": (True, True), "ratio": 2},
    ],
    ids=str,
)
def test_masks_lengths_heads(base: Case, change: dict[str, object]) -> None:
    run_backward(replace(base, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("ask", [
    Ask(accumulate=True), Ask(grad_dtype="float32"), Ask(grad_dtype="float32", accumulate=True),
    Ask(deterministic=True), Ask(deterministic=True, accumulate=True),
    Ask(layouts=(Layout((0, 2, 1)), Layout((1, 0, 2)), Layout((0, 2, 1), (0, 3, 0, 8)), Layout((2, 0, 1)))),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("ratio", [1, 2])
def test_what_is_asked(base: Case, ask: Ask, ratio: int) -> None:
    run_backward(replace(base, ratio=ratio, causal=True), ask)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("ratio", [1, 2])
def test_packed_sequences(base: Case, used: bool, ratio: int) -> None:
    slack = ((3, 0, 70, 1), (0, 9, 2, 0)) if used else (None, None)
    varlen = Varlen((100, 0, 33, 257), (150, 60, 0, 130), *slack)
    case = replace(
        base, batch=4, seqlen_q=257, seqlen_k=150, nhead_k=1, ratio=ratio, varlen=varlen, causal=True
    )
    run_backward(case)
    run_backward(replace(case, causal=False), Ask(grad_dtype="float32", deterministic=True))
    run_backward(replace(case, causal=False), Ask(accumulate=True))


@pytest.mark.parametrize("change", [
    {"alibi": 1}, {"alibi": 2, "causal": True}, {"alibi": 1, "top_left": True}, {"alibi": 1, "slope": -0.1},
    {"dropout": Dropout(0.2)},
    {"dropout": Dropout(0.5, seed=2**63 + 5, offset=77, on_device=True), "causal": True},
    {"alibi": 2, "dropout": Dropout(0.1)},
    {"softcap": 2.0, "scale": 0.5}, {"softcap": 30.0, "causal": True, "dropout": Dropout(0.1)},
    {"bias": Bias()}, {"bias": Bias(dims=(False, True, True), infinities=True), "causal": True},
    {"bias": Bias(dims=(True, False, True)), "dropout": Dropout(0.3), "window": (30, 9)},
    {"bias": Bias(dims=(True, True, False)), "seqlen_q": 300}, {"bias": Bias(dims=(False, False, False))},
], ids=str)  # fmt: skip
def test_features(base: Case, change: dict[str, object]) -> None:
    case = nearest(replace(base, ratio=2, **change))  # type: ignore[arg-type]
    run_backward(case)
    if case.bias is not None:
        run_backward(replace(case, hdim=40, seqlen_k=65), Ask(accumulate=True))


@pytest.mark.parametrize("ask", [
    Ask(grad_dtype="float32"), Ask(grad_dtype="float32", accumulate=True), Ask(deterministic=True),
    Ask(deterministic=True, accumulate=True), Ask(grad_dtype="float32", deterministic=True),
], ids=str)  # fmt: skip
@pytest.mark.parametrize(
    "dims", [(True, True, True), (False, True, True), (True, False, False), (False, False, False)]
)
def test_gradient_of_a_bias(base: Case, dims: tuple[bool, bool, bool], ask: Ask) -> None:
    """Written, or added up, wherever and in whatever order that is done."""
    layout = Layout((0, 2, 1)) if dims[0] else Layout()
    case = replace(base, seqlen_q=70, seqlen_k=141, ratio=2, bias=Bias(dims, layout), window=(40, 9))
    run_backward(nearest(case), ask)


@pytest.mark.parametrize("dims", [(False, True, True), (False, False, True), (False, False, False)])
@pytest.mark.parametrize("deterministic", [False, True])
def test_gradient_of_a_bias_of_packed_sequences(
    base: Case, dims: tuple[bool, bool, bool], deterministic: bool
) -> None:
    """Rows not in use, and columns from a sequence's keys on, are 0."""
    varlen = Varlen((60, 0, 33, 1), (130, 60, 0, 20), (3, 0, 10, 1), (0, 9, 2, 0))
    case = replace(
        base, batch=4, seqlen_q=60, seqlen_k=130, varlen=varlen, bias=Bias(dims), dropout=None, causal=True
    )
    run_backward(nearest(case), Ask(deterministic=deterministic))
    run_backward(nearest(case), Ask(deterministic=deterministic, accumulate=True))


@pytest.mark.parametrize("change", [{"seqlen_q": 0}, {"seqlen_k": 0}, {"batch": 0}, {"ratio": 0}], ids=str)
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    "bias", [None, Bias(), Bias(dims=(False, False, False)), Bias(dims=(False, True, True))]
)
def test_nothing_to_attend_to(
    base: Case, change: dict[str, int], accumulate: bool, bias: Bias | None
) -> None:
    """Gradients are 0, or stay what they were; never NaN."""
    case = nearest(replace(base, bias=bias, **change))  # type: ignore[arg-type]
    backward = Backward(case, Ask(accumulate=accumulate))
    for name, got in backward.run().items():
        before = backward.before.get(name, np.zeros_like(got))
        assert np.array_equal(bits(got), bits(before)), name


@pytest.mark.parametrize("bias", [None, Bias((True, False, True)), Bias((False, False, False))], ids=str)
def test_deterministic_over_wave_orders(
    base: Case, bias: Bias | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits, whatever the order in which waves and workgroups run."""
    case = replace(base, seqlen_q=300, seqlen_k=700, batch=1)
    if bias is not None:
        case = nearest(replace(case, bias=bias, seqlen_q=100, seqlen_k=150))
    results = []
    for schedule in ("round", "reverse", "random:1", "random:2"):
        monkeypatch.setenv("FMHA_EMU_SCHEDULE", schedule)
        results.append(run_backward(case, Ask(deterministic=True)))
    for other in results[1:]:
        for name, got in other.items():
            assert np.array_equal(bits(results[0][name]), bits(got)), name


@pytest.mark.parametrize("change", [{}, {"causal": True, "seqlen_q": 300, "seqlen_k": 200}], ids=str)
@pytest.mark.parametrize("varlen", [None, Varlen((60, 0, 33), (130, 60, 0))], ids=["batch", "packed"])
def test_sinks(base: Case, change: dict[str, Any], varlen: Varlen | None) -> None:
    """The LSE counts them, and nothing else of them is read: rows without keys have gradient 0."""
    case = replace(base, sinks=True, ratio=4, varlen=varlen, batch=base.batch if varlen is None else 3)
    run_backward(nearest(replace(case, **change)))


def test_infinite_log_sum_exp(base: Case) -> None:
    """Rows whose LSE is infinite have P 0, and our own kernels do not look at its sign."""
    case = replace(base, batch=1, seqlen_q=100)
    plain = Backward(case)
    got = []
    for infinite in (np.inf, -np.inf):
        lse = plain.lse.copy()
        lse[:, :, [3, 40, 99]] = infinite
        backward = Backward(case, results=(plain.o, lse, plain.dout))
        got.append(backward.run())
        if infinite > 0:
            backward.judge(got[0])
    if pyfa_rocm.fmha_bwd_kernel(plain.params()).pipeline.startswith(OWN):
        for name in NAMES:
            assert np.array_equal(bits(got[0][name]), bits(got[1][name])), name


def test_partial_passes(base: Case) -> None:
    """With the LSE of all keys, the gradients of two halves of the keys add up: what ring attention does."""
    case = replace(base, batch=1, seqlen_q=100, seqlen_k=200)
    whole = Backward(case)
    want = whole.expected()
    q, k, v = whole.forward.inputs
    dq = np.zeros(case.q_shape)
    for part in (slice(0, 100), slice(100, 200)):
        half = Backward(
            replace(case, seqlen_k=100),
            Ask(grad_dtype="float32"),
            inputs=[q, k[:, part], v[:, part]],
            results=(whole.o, whole.lse, whole.dout),
        )
        got = half.run()
        half.judge(got)
        dq += got["dq"]
        for name in ("dk", "dv"):
            error = np.abs(got[name] - want[name].value[:, part])
            assert (error <= want[name].bound_in("float32")[:, part]).all(), name
    # The bound of a sum is the sum of the parts' bounds, each of which is at most that of the whole.
    assert (np.abs(dq - want["dq"].value) <= 2 * want["dq"].bound_in("float32")).all()


@pytest.mark.parametrize("schedule", ["round", "reverse", "random:1"])
@settings(max_examples=EXAMPLES)
@given(
    case=cases(
        dtypes=("float16", "bfloat16", "float32"),
        variants=("none", "alibi", "softcap", "bias"),
        varlen=(False, True),
        dropout=(False, False, True),
        sinks=(False, False, True),
        max_tiles=12,
    ),
    data=st.data(),
)
def test_random(schedule: str, case: Case, data: st.DataObject) -> None:
    """Any lengths, head dims, masks, layouts, features and orders of waves, whatever is asked."""
    case = replace(case, kernel=0)
    if case.dropout is not None:
        case = replace(case, dropout=replace(case.dropout, randval=False))
    ask = data.draw(
        st.builds(
            Ask,
            grad_dtype=st.sampled_from(("", "float32")),
            accumulate=st.booleans(),
            deterministic=st.booleans(),
            dbias=st.booleans(),
            layouts=st.tuples(layouts, layouts, layouts, layouts),
        )
    )
    assume(kernels(case, dbias=ask.dbias))
    with wave_order(schedule):
        run_backward(case, ask)


@pytest.mark.parametrize("varlen", [None, Varlen((100, 0, 50), (70, 60, 0), (3, 0, 1), (0, 9, 2))], ids=bool)
def test_public_functions(base: Case, varlen: Varlen | None) -> None:
    """flash_attn_bwd and its varlen form: their mapping of masks, shapes and strides."""
    case = replace(
        base,
        batch=3,
        seqlen_q=100,
        seqlen_k=70,
        ratio=2,
        window=(30, 5),
        top_left=True,
        varlen=varlen,
    )
    backward = Backward(case)
    tensors = backward.forward.tensors
    arrays: dict[str, Any] = {name: tensors[name].array for name in ("dout", "q", "k", "v")}
    arrays |= {"out": tensors["o"].array, "lse": tensors["lse"].array[:, :, :, 0]}
    options: dict[str, Any] = {"window_size": case.window, "top_left": True, "grad_dtype": "float32"}
    if varlen is None:
        got = pyfa_rocm.flash_attn_bwd(**arrays, **options)
    else:
        names = {"cu_q": "cu_seqlens_q", "cu_k": "cu_seqlens_k", "used_q": "seqused_q", "used_k": "seqused_k"}
        options |= {option: tensors[name].array[0, 0, 0] for name, option in names.items()}
        options |= {"max_seqlen_q": case.seqlen_q, "max_seqlen_k": case.seqlen_k}
        got = pyfa_rocm.flash_attn_varlen_bwd(**{name: x[0] for name, x in arrays.items()}, **options)
    for name, array in zip(NAMES, got, strict=True):
        host = array.to_numpy()
        judge_gradient(name, backward.expected()[name], host if varlen is None else host[None], "float32")


def test_questions() -> None:
    """The kernel described is that of dK and dV, and a call is some steps."""
    backward = Backward(nearest(BASE))
    info = pyfa_rocm.fmha_bwd_kernel(backward.params())
    assert "bwd" in info.name
    assert info.step_count >= (2 if info.pipeline.startswith(OWN) else 4)
    assert info.candidate == 1
    pyfa_rocm.fmha_bwd_prepare(backward.params())
    pyfa_rocm.fmha_bwd_supported(backward.params())
