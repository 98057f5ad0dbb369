# SPDX-License-Identifier: MIT OR Apache-2.0
"""flash-attn's private functions, its operators and its extension module, as other programs call them."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from adapters.with_flash_attn.flash_attn_cases import LENGTHS, draw, judge_gradients, judge_packed, starts

from pyfa_rocm import InvalidArgumentError, flash_attn
from pyfa_rocm.flash_attn import flash_attn_2_cuda, flash_attn_interface

# Written down from flash-attn 2.8.3's flash_attn/flash_attn_interface.py; num_splits came later.
_MASK = "dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes"
_LENGTHS = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
_BACKWARD = "dout, q, k, v, out, softmax_lse, dq, dk, dv"
SIGNATURES = {
    "_flash_attn_forward": f"q, k, v, {_MASK}, return_softmax",
    "_flash_attn_varlen_forward": (
        f"q, k, v, {_LENGTHS}, dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1, "
        "softcap=0.0, alibi_slopes=None, return_softmax=False, block_table=None, leftpad_k=None, "
        "seqused_k=None, zero_tensors=False, num_splits=0"
    ),
    "_flash_attn_backward": f"{_BACKWARD}, {_MASK}, deterministic, rng_state=None",
    "_flash_attn_varlen_backward": (
        f"{_BACKWARD}, {_LENGTHS}, {_MASK}, deterministic, rng_state=None, zero_tensors=False"
    ),
}
SCALE = 0.2
# Not typed: calls here are by tuples of arguments.
private: Any = flash_attn_interface


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    """The functions have flash-attn's parameters, and so have the schemas of the operators behind them."""
    function = getattr(flash_attn_interface, name)
    assert inspect.isfunction(function)
    plain = [
        x.replace(annotation=inspect.Parameter.empty) for x in inspect.signature(function).parameters.values()
    ]
    assert ", ".join(map(str, plain)) == SIGNATURES[name]
    operator = getattr(flash_attn_interface, f"_wrapped{name}")
    for argument, parameter in zip(operator.default._schema.arguments, plain, strict=True):
        assert argument.name == parameter.name
        if parameter.default is not inspect.Parameter.empty:
            assert argument.default_value == parameter.default
        written = argument.alias_info is not None and argument.alias_info.is_write
        assert written == (argument.name in ("dq", "dk", "dv"))


FEATURES: list[tuple[dict[str, Any], torch.dtype]] = [
    ({}, torch.float16),
    ({"causal": True, "deterministic": True}, torch.bfloat16),
    ({"window_size": (20, 5)}, torch.bfloat16),
]


@pytest.mark.parametrize(("options", "dtype"), FEATURES, ids=str)
def test_forward_and_backward(options: dict[str, Any], dtype: torch.dtype) -> None:
    """Grouped heads; gradients are written to parts of one tensor."""
    options = dict(options)
    deterministic, (left, right) = options.pop("deterministic", False), options.get("window_size", (-1, -1))
    shapes = ((37, 4), (50, 2), (50, 2), (37, 4))
    q, k, v, dout = (draw(2, n, h, 64, seed=i, dtype=dtype) for i, (n, h) in enumerate(shapes))
    mask: tuple[Any, ...] = (0.0, SCALE, options.get("causal", False), left, right, 0.0, None)
    out, lse, s_dmask, rng_state = private._flash_attn_forward(q, k, v, *mask, False)
    assert (out.shape, lse.shape, lse.dtype) == (q.shape, (2, 4, 37), torch.float32)
    assert (s_dmask.shape, rng_state.shape, rng_state.dtype) == ((0,), (2,), torch.int64)
    assert torch.equal(out, flash_attn.flash_attn_func(q, k, v, softmax_scale=SCALE, **options))
    dq, dkv = torch.empty_like(q), k.new_empty(2, 50, 2, 2, 64)
    softmax_d = private._flash_attn_backward(
        dout, q, k, v, out, lse, dq, dkv[:, :, 0], dkv[:, :, 1], *mask, deterministic
    )
    judge_gradients((dq, *dkv.unbind(2)), q, k, v, out, lse, dout, softmax_scale=SCALE, **options)
    terms = dout.double() * out.double()
    torch.testing.assert_close(softmax_d, terms.sum(-1).transpose(1, 2), check_dtype=False, rtol=0, atol=1e-5)
    assert softmax_d.dtype == torch.float32


def test_varlen() -> None:
    qkv, dout, cu = draw(100, 3, 2, 64), draw(100, 2, 64, seed=1), starts(LENGTHS)
    q, k, v = qkv.unbind(1)
    longest = torch.tensor(70)
    lengths: tuple[Any, ...] = (cu, cu, longest, longest)
    mask: tuple[Any, ...] = (0.0, SCALE, True, -1, -1, 0.0, None)
    out, lse, _, _ = private._flash_attn_varlen_forward(q, k, v, *lengths, 0.0, SCALE, True)
    assert lse.shape == (2, 100)
    dqkv = torch.full_like(qkv, torch.nan)
    softmax_d = private._flash_attn_varlen_backward(
        dout, q, k, v, out, lse, *dqkv.unbind(1), *lengths, *mask, False, zero_tensors=True
    )
    judge_packed(dqkv.unbind(1), q, k, v, out, lse, dout, cu, cu, softmax_scale=SCALE, causal=True)
    assert softmax_d.shape == (2, 100)
    used = torch.tensor([20, 0, 60], dtype=torch.int32)
    short, _, _, _ = private._flash_attn_varlen_forward(
        q, k, v, *lengths, 0.0, SCALE, False, seqused_k=used, zero_tensors=True
    )
    want = flash_attn.flash_attn_func(q[None, :30], k[None, :20], v[None, :20], softmax_scale=SCALE)[0]
    torch.testing.assert_close(short[:30], want, rtol=0, atol=2**-9)


def test_dropout_follows_rng_state() -> None:
    """The backward pass drops what the forward pass dropped."""
    q, k, v, dout = (draw(60, 2, 128, seed=i) for i in range(4))
    cu = starts((60,))
    lengths: tuple[Any, ...] = (cu, cu, 60, 60)
    mask: tuple[Any, ...] = (0.25, SCALE, False, -1, -1, 0.0, None)
    out, lse, s_dmask, state = private._flash_attn_varlen_forward(q, k, v, *lengths, *mask, True)
    assert s_dmask.shape == (1, 2, 128, 128)
    keep = (s_dmask[:, :, :60, :60] > 0).numpy()
    assert 0.65 < keep.mean() < 0.85
    gradients: tuple[Any, ...] = tuple(torch.empty_like(x) for x in (q, k, v))
    arguments: tuple[Any, ...] = (dout, q, k, v, out, lse, *gradients, *lengths, *mask, False)
    private._flash_attn_varlen_backward(*arguments, rng_state=state)
    judge_packed(
        gradients, q, k, v, out, lse, dout, cu, cu, softmax_scale=SCALE, keep=keep, keep_scale=1 / 0.75
    )
    with pytest.raises(InvalidArgumentError, match="rng_state: got None, expected what forward returned"):
        private._flash_attn_varlen_backward(*arguments)
    with pytest.raises(InvalidArgumentError, match="return_softmax: got True with p_dropout"):
        private._flash_attn_varlen_forward(q, k, v, *lengths, 0.0, *mask[1:], True)


def test_extension() -> None:
    """By position, as TransformerEngine calls it; O, and gradients if they are wanted, are given."""
    q, k, v, dout = (draw(1, 40, 2, 64, seed=i) for i in range(4))
    given, random = torch.empty_like(q), torch.Generator().manual_seed(1)
    mask: tuple[Any, ...] = (0.0, SCALE, True, -1, -1, 0.0)
    out, lse, s_dmask, _ = flash_attn_2_cuda.fwd(q, k, v, given, None, *mask, False, random)
    assert out is given
    assert not s_dmask.numel()
    gradients: tuple[Any, ...] = tuple(torch.empty_like(x, dtype=torch.float32) for x in (q, k, v))
    *got, softmax_d = flash_attn_2_cuda.bwd(
        dout, q, k, v, out, lse, *gradients, None, *mask, False, None, None
    )
    assert all(a is b for a, b in zip(got, gradients, strict=True))
    judge_gradients(got, q, k, v, out, lse, dout, softmax_scale=SCALE, causal=True)
    *new, again = flash_attn_2_cuda.bwd(
        dout, q, k, v, out, lse, None, None, None, None, *mask, True, None, None
    )
    assert [x.dtype for x in new] == [q.dtype] * 3
    assert torch.equal(softmax_d, again)
    cu = starts((15, 25))
    packed = [x[0] for x in (q, k, v)]
    outs = flash_attn_2_cuda.varlen_fwd(
        *packed,
        None,
        cu,
        cu,
        None,
        None,
        None,
        None,
        25,
        25,
        0.0,
        SCALE,
        False,
        True,
        -1,
        -1,
        0.0,
        False,
        None,
    )
    *got, softmax_d = flash_attn_2_cuda.varlen_bwd(
        dout[0], *packed, *outs[:2], None, None, None, cu, cu, None, 25, 25, 0.0, SCALE, False, True, -1, -1,
        0.0, False, None, None,
    )  # fmt: skip
    of_q, of_k, of_v = packed
    judge_packed(got, of_q, of_k, of_v, outs[0], outs[1], dout[0], cu, cu, softmax_scale=SCALE, causal=True)
    # Like the real one, it sees neither gradients nor autocast.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = flash_attn_2_cuda.fwd(q.requires_grad_(), k, v, None, None, *mask, False, None)[0]
    assert torch.equal(result, out)
    assert not result.requires_grad


def test_generator_decides_dropout() -> None:
    q = draw(1, 40, 2, 64, dtype=torch.bfloat16)

    def state(seed: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(seed)
        return flash_attn_2_cuda.fwd(q, q, q, None, None, 0.3, SCALE, True, -1, -1, 0.0, False, random)[3]

    assert torch.equal(state(1), state(1))
    assert not torch.equal(state(1), state(2))


def test_parts_of_the_keys() -> None:
    """Ring attention: gradients of each part of the keys from the merged O and LSE add up to those of all."""
    q, dout = (draw(1, 40, 2, 64, seed=i) for i in range(2))
    k, v = (draw(1, 64, 2, 64, seed=i) for i in range(2, 4))
    mask: tuple[Any, ...] = (0.0, SCALE, False, -1, -1, 0.0, None)
    blocks = [slice(0, 24), slice(24, 64)]
    parts = [private._flash_attn_forward(q, k[:, b], v[:, b], *mask, False)[:2] for b in blocks]
    lse = torch.logaddexp(*(lse for _, lse in parts))
    out = sum(o * torch.exp(part - lse).transpose(1, 2)[..., None] for o, part in parts).half()
    dq, dkv = torch.zeros_like(q, dtype=torch.float32), torch.empty(2, *k.shape, dtype=torch.float32)
    for b in blocks:
        of_q = torch.empty_like(dq)
        private._flash_attn_backward(dout, q, k[:, b], v[:, b], out, lse, of_q, *dkv[:, :, b], *mask, False)
        dq += of_q
    judge_gradients((dq, *dkv), q, k, v, out, lse, dout, softmax_scale=SCALE)


def test_compiled() -> None:
    """Forward and backward are two operators of one graph, whose gradients are written in place."""
    q, k, v, dout = (draw(1, 40, 2, 64, seed=i) for i in range(4))
    mask: tuple[Any, ...] = (0.0, SCALE, True, -1, -1, 0.0, None)

    def step(*tensors: torch.Tensor) -> Any:
        q, k, v, dout = tensors
        out, lse, _, state = private._flash_attn_forward(q, k, v, *mask, False)
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        softmax_d = private._flash_attn_backward(dout, q, k, v, out, lse, *gradients, *mask, False, state)
        return out, lse, *gradients, softmax_d

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for got, want in zip(compiled(q, k, v, dout), step(q, k, v, dout), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=2**-8)


def test_fakes_have_the_results_shapes() -> None:
    q, k = (draw(2, n, h, 64, dtype=torch.bfloat16) for n, h in ((40, 4), (50, 2)))
    packed_q, packed_k, of_q, of_k = draw(80, 4, 128), draw(100, 2, 128), starts((30, 50)), starts((50, 50))
    mask: tuple[Any, ...] = (0.25, SCALE, False, -1, -1, 0.0, None)
    lengths: tuple[Any, ...] = (of_q, of_k, 50, 50)
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (private._flash_attn_forward, (q, k, k, *mask, True)),
        (
            private._flash_attn_varlen_forward,
            (packed_q, packed_k, packed_k, *lengths, *mask, True),
        ),
    ]
    for function, arguments in calls:
        real = function(*arguments)
        with torch._subclasses.FakeTensorMode() as mode:
            fake = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments]
            traced = function(*fake)
        for a, b in zip(traced, real, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_refused_by_name() -> None:
    q = draw(1, 16, 2, 64)
    with pytest.raises(AttributeError, match=r"flash_attn_2_cuda.bwd_kvcache: not part of pyfa_rocm"):
        _ = flash_attn_2_cuda.bwd_kvcache
    with pytest.raises(TypeError, match=r"q: got list, expected a torch\.Tensor"):
        flash_attn_2_cuda.fwd([1.0], q, q, None, None, 0.0, SCALE, True, -1, -1, 0.0, False, None)


def test_operators_have_no_gradients() -> None:
    """They are like flash-attn's own: the caller makes the gradients."""
    q = draw(1, 16, 2, 64).requires_grad_()
    out = private._flash_attn_forward(q, q, q, 0.0, SCALE, True, -1, -1, 0.0, None, False)[0]
    with pytest.raises(RuntimeError, match="no autograd formula"):
        out.sum().backward()


@pytest.fixture
def installed() -> Iterator[None]:
    flash_attn.install()
    yield
    flash_attn.uninstall()


def test_installed(installed: None) -> None:
    """The operators and the extension are there by flash-attn's names; installing again changes nothing."""
    assert importlib.import_module("flash_attn_2_cuda") is flash_attn_2_cuda
    interface = importlib.import_module("flash_attn.flash_attn_interface")
    assert interface.flash_attn_gpu is flash_attn_2_cuda
    operator = torch.ops.flash_attn._flash_attn_forward.default
    flash_attn.install()
    assert torch.ops.flash_attn._flash_attn_forward.default is operator
    q = draw(1, 16, 2, 64)
    arguments: tuple[Any, ...] = (q, q, q, 0.0, SCALE, True, -1, -1, 0.0, None, False)
    for got, want in zip(operator(*arguments), interface._flash_attn_forward(*arguments), strict=True):
        assert torch.equal(got, want)
    for name in SIGNATURES:
        ours, theirs = (getattr(getattr(torch.ops, x), name).default for x in ("pyfa_rocm", "flash_attn"))
        assert str(ours._schema).partition("::")[2] == str(theirs._schema).partition("::")[2]
    flash_attn.uninstall()
    assert "flash_attn_2_cuda" not in sys.modules


def test_another_flash_attn_defines_its_operators(installed: None) -> None:
    """After ours, as the real one does at its import: no clash; and ours go on working by their own names."""

    @torch.library.custom_op("flash_attn::_flash_attn_forward", mutates_args=())
    def theirs(q: torch.Tensor) -> torch.Tensor:
        return q + 1

    q = draw(1, 16, 2, 64)
    assert torch.equal(torch.ops.flash_attn._flash_attn_forward(q), q + 1)
    out = private._flash_attn_forward(q, q, q, 0.0, SCALE, True, -1, -1, 0.0, None, False)[0]
    assert torch.equal(out, flash_attn.flash_attn_func(q, q, q, softmax_scale=SCALE, causal=True))


def test_refuses_beside_another_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("flash_attn_2_cuda")
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", other)
    with pytest.raises(RuntimeError, match=r"flash_attn_2_cuda: got one already imported"):
        flash_attn.install()
    flash_attn.uninstall()
    assert sys.modules["flash_attn_2_cuda"] is other
    assert "flash_attn" not in sys.modules


def test_autograd_functions() -> None:
    """Arguments are in flash-attn's order, whose last is not ours."""
    q, k, v = (draw(1, 20, 2, 64, seed=i).requires_grad_() for i in range(3))
    options: tuple[Any, ...] = (0.0, SCALE, True, (-1, -1), 0.0, None, False, False)
    out = private.FlashAttnFunc.apply(q, k, v, *options, True)
    assert torch.equal(out, flash_attn.flash_attn_func(q, k, v, *options))
    assert torch.autograd.grad(out.sum(), q)[0].shape == q.shape
    cu = starts((20,))
    packed = private.FlashAttnVarlenFunc.apply(q[0], k[0], v[0], cu, cu, 20, 20, *options, None, True)
    torch.testing.assert_close(packed, out[0], rtol=0, atol=2**-9)


@pytest.mark.parametrize("hdim_v", [64, 60, 24])
@pytest.mark.parametrize("packed", [False, True])
def test_fakes_with_another_head_dim_of_v(hdim_v: int, packed: bool) -> None:
    """O has v's, as in eager mode: to the next multiple of 8."""
    q, v = draw(1, 16, 2, 128), draw(1, 16, 2, hdim_v)
    cu = starts((16,))

    def call(q: torch.Tensor, v: torch.Tensor) -> Any:
        if packed:
            return private._wrapped_flash_attn_varlen_forward(
                q[0], q[0], v[0], cu, cu, 16, 16, 0.0, SCALE, True
            )
        return private._wrapped_flash_attn_forward(q, q, v, 0.0, SCALE, True, -1, -1, 0.0, None, False)

    torch._dynamo.reset()
    eager, compiled = call(q, v), torch.compile(call, fullgraph=True, backend="aot_eager")(q, v)
    for a, b in zip(eager, compiled, strict=True):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
    assert torch.equal(eager[0], compiled[0])
    assert eager[0].shape[-1] == -(-hdim_v // 8) * 8


@pytest.mark.parametrize("hdim_v", [64, 24])
def test_fakes_over_pages_with_another_head_dim_of_v(hdim_v: int) -> None:
    q, cu, table = draw(2, 4, 128), starts((1, 1)), torch.tensor([[0], [1]], dtype=torch.int32)
    k, v = draw(2, 16, 2, 128), draw(2, 16, 2, hdim_v)

    def call(q: torch.Tensor) -> Any:
        return private._wrapped_flash_attn_varlen_forward(
            q, k, v, cu, cu, 1, 16, 0.0, SCALE, True, block_table=table
        )

    torch._dynamo.reset()
    eager, compiled = call(q), torch.compile(call, fullgraph=True, backend="aot_eager")(q)
    assert [x.shape for x in eager] == [x.shape for x in compiled]
    assert eager[0].shape == (2, 4, hdim_v)


@pytest.mark.parametrize("p_dropout", [1e-30, 2.0**-25])
def test_a_chance_that_nothing_drops_by(p_dropout: float) -> None:
    """A call that asks for the log-sum-exp in this way gets kernels without dropout, forward and backward."""
    q, k, v, dout = (draw(1, 40, 2, 64, seed=i) for i in range(4))
    mask: tuple[Any, ...] = (SCALE, True, -1, -1, 0.0, None)
    want, lse_want, _, _ = private._flash_attn_forward(q, k, v, 0.0, *mask, False)
    out, lse, s_dmask, state = private._flash_attn_forward(q, k, v, p_dropout, *mask, True)
    assert torch.equal(out, want)
    assert torch.equal(lse, lse_want)
    assert not s_dmask.signbit().any()
    # Probabilities are rounded to float16 on both sides, and O is.
    values = torch.einsum("bhij,bjhd->bihd", s_dmask[..., :40, :40].double(), v.double())
    terms = torch.einsum("bhij,bjhd->bihd", s_dmask[..., :40, :40].double(), v.double().abs())
    assert ((out.double() - values).abs() <= 2**-11 * (2 * terms + values.abs()) + 2**-24).all()
    results = []
    for given in (state, None):
        gradients = tuple(torch.empty_like(x) for x in (q, k, v))
        private._flash_attn_backward(
            dout, q, k, v, out, lse, *gradients, p_dropout, *mask, True, rng_state=given
        )
        results.append(gradients)
    gradients = tuple(torch.empty_like(x) for x in (q, k, v))
    private._flash_attn_backward(dout, q, k, v, out, lse, *gradients, 0.0, *mask, True)
    for got in results:
        assert all(torch.equal(a, b) for a, b in zip(got, gradients, strict=True))
    public_out, public_lse, _ = flash_attn.flash_attn_func(
        q, k, v, p_dropout, softmax_scale=SCALE, causal=True, return_attn_probs=True
    )
    assert torch.equal(public_out, want)
    assert torch.equal(public_lse, lse_want)
