# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.torch's functions: their arguments, errors, random state, and what they return."""

from __future__ import annotations

import doctest
import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from adapters.with_torch.torch_cases import to_numpy
from built import fp8, other_fp8, this_arch

import pyfa_rocm
from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm import torch as p
from pyfa_rocm.torch._schema import SCHEMAS, Arguments, Lengths

Q = torch.ones(2, 16, 4, 128, dtype=torch.bfloat16)
K = torch.ones(2, 20, 2, 128, dtype=torch.bfloat16)
AT = torch.tensor([0, 3, 16], dtype=torch.int32)
AT_K = torch.tensor([0, 9, 20], dtype=torch.int32)


def dense(device: str, **change: Any) -> Any:
    arguments = {"q": Q, "k": K, "v": K} | change
    return p.flash_attn_func(**_on(device, arguments))


def varlen(device: str, **change: Any) -> Any:
    arguments = {
        "q": Q[0],
        "k": K[0],
        "v": K[0],
        "cu_seqlens_q": AT,
        "cu_seqlens_k": AT_K,
        "max_seqlen_q": 13,
        "max_seqlen_k": 11,
        **change,
    }
    return p.flash_attn_varlen_func(**_on(device, arguments))


def _on(device: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}


@pytest.mark.parametrize("name", ["flash_attn_func", "flash_attn_varlen_func"])
def test_signature(name: str) -> None:
    """pyfa_rocm's, without a stream: torch has a current one."""
    ours = [x for x in inspect.signature(getattr(pyfa_rocm, name)).parameters.values() if x.name != "stream"]
    torch_s = inspect.signature(getattr(p, name)).parameters.values()
    assert [(x.name, x.kind, x.default) for x in torch_s] == [(x.name, x.kind, x.default) for x in ours]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_what_python_sees(name: str) -> None:
    arguments = getattr(torch.ops.pyfa_rocm, name).default._schema.arguments
    lengths = Lengths._fields if "varlen" in name else ()
    out = ("out",) if name.endswith("out") else ()
    assert tuple(x.name for x in arguments) == ("q", "k", "v", *out, *lengths, *Arguments._fields)
    defaults = {x.name: x.default_value for x in arguments if x.has_default_value()}
    assert defaults == Arguments()._asdict()


# Version 0.1's options. New ones go to the end: a program that torch.export stored has these by position.
OPTIONS = (
    "float? softmax_scale=None, bool causal=False, int window_left=-1, int window_right=-1, "
    "float softcap=0.0, Tensor? alibi_slopes=None, Tensor? bias=None, bool top_left=False, "
    "bool return_lse=False, float dropout_p=0.0, Tensor? philox=None, SymInt philox_seed=0, "
    "SymInt philox_offset=0, ScalarType? out_dtype=None, float? q_descale=None, float? k_descale=None, "
    "float? v_descale=None, int candidate=0"
)
LENGTHS = (
    "Tensor cu_seqlens_q, Tensor cu_seqlens_k, Tensor? seqused_q, Tensor? seqused_k, SymInt max_seqlen_q, "
    "SymInt max_seqlen_k"
)


def test_schemas_stay() -> None:
    inputs, out, both = "(Tensor q, Tensor k, Tensor v, ", "Tensor(a!) out, ", " -> (Tensor out, Tensor lse)"
    begin = {
        "fmha_fwd": inputs + OPTIONS,
        "fmha_fwd_out": inputs + out + OPTIONS,
        "fmha_varlen_fwd": f"{inputs}{LENGTHS}, {OPTIONS}",
        "fmha_varlen_fwd_out": f"{inputs}{out}{LENGTHS}, {OPTIONS}",
    }
    assert SCHEMAS.keys() == begin.keys()
    for name, schema in SCHEMAS.items():
        assert schema.startswith(begin[name])
        assert schema.endswith(" -> Tensor lse" if name.endswith("out") else both)


BAD: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "dims": (dense, {"q": Q[0]}, r"q: got shape \(16, 4, 128\), expected 4 dimensions"),
    "batch": (dense, {"k": K[:1]}, r"k: got shape \(1, 20, 2, 128\), expected \(2, 20, 2, 128\) to fit q"),
    "hdim": (dense, {"k": K[..., :64]}, r"k: got shape .*, expected \(2, 20, 2, 128\) to fit q"),
    "keys": (dense, {"v": K[:, 1:]}, r"v: got shape .*, expected \(2, 20, 2, 128\) to fit k"),
    "dtype": (dense, {"v": K.half()}, r"v: got dtype float16, expected bfloat16 as q"),
    "columns": (dense, {"q": Q.mT.contiguous().mT}, r"q: got stride 4 in the last dimension, expected 1"),
    "slopes": (dense, {"alibi_slopes": torch.ones(3)}, r"alibi_slopes: got shape \(3,\), expected \(4,\) or"),
    "slopes_dtype": (dense, {"alibi_slopes": torch.ones(4).half()}, r"alibi_slopes: got dtype float16"),
    "bias": (dense, {"bias": Q[..., :7]}, r"bias: got shape .*, expected \(2, 4, 16, 20\)"),
    "window": (dense, {"window_size": 3}, r"window_size: got 3, expected two integers"),
    "softcap": (dense, {"softcap": -1.0}, r"softcap: got -1.0, expected"),
    "dropout": (dense, {"dropout_p": 1.0}, r"dropout_p: got 1.0, expected"),
    "philox": (dense, {"dropout_p": 0.5, "philox": torch.ones(3).long()}, r"philox: got shape \(3,\)"),
    "philox_value": (dense, {"dropout_p": 0.5, "philox": (-1, 0)}, r"philox: got -1, expected"),
    "philox_kind": (dense, {"dropout_p": 0.5, "philox": 3}, r"philox: got 3, expected \(seed, offset\)"),
    "descale": (dense, {"q_descale": 2.0}, r"q_descale: got a scale for bfloat16, expected None"),
    "out_dtype": (dense, {"out_dtype": torch.int8}, r"out_dtype: got 'int8', expected one of"),
    "out_name": (dense, {"out_dtype": "half-float"}, r"out_dtype: got 'half-float', expected"),
    "out": (dense, {"out": Q[:1].clone()}, r"out: got shape \(1, 16, 4, 128\), expected \(2, 16, 4, 128\)"),
    "starts": (varlen, {"cu_seqlens_q": AT.long()}, r"cu_seqlens_q: got dtype int64, expected int32"),
    "starts_k": (varlen, {"cu_seqlens_k": AT_K[:2]}, r"cu_seqlens_k: got shape \(2,\), expected \(3,\)"),
    "used": (varlen, {"seqused_k": AT_K}, r"seqused_k: got shape \(3,\), expected \(2,\)"),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("call", "change", "message"), BAD.values(), ids=BAD)
def test_bad_argument(call: Callable[..., Any], change: dict[str, Any], message: str, device: str) -> None:
    """The same words from the fake kernels as from the real ones."""
    with pytest.raises(InvalidArgumentError, match=message):
        call(device, **change)


@pytest.mark.parametrize("call", [dense, varlen])
def test_not_a_tensor(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"k: got list, expected a torch\.Tensor"):
        call("cpu", k=[1])


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_unsupported(device: str) -> None:
    with pytest.raises(UnsupportedError, match="q: got dtype float64, expected one of float16"):
        dense(device, q=Q.double(), k=K.double(), v=K.double())


@pytest.mark.parametrize("name", ["k", "v", "alibi_slopes", "bias", "philox", "out"])
def test_devices_differ(name: str) -> None:
    arguments: dict[str, Any] = {"q": Q, "k": K, "v": K, "dropout_p": 0.5, "philox": torch.ones(2).long()}
    arguments |= {"alibi_slopes": torch.ones(4), "bias": None, "out": torch.empty_like(Q)}
    if name == "bias":
        arguments |= {"alibi_slopes": None, "bias": torch.empty(2, 4, 16, 20, dtype=Q.dtype)}
    arguments[name] = arguments[name].to("meta")
    with pytest.raises(InvalidArgumentError, match=f"{name}: got a tensor on meta, expected cpu as q"):
        p.flash_attn_func(**arguments)


@pytest.mark.parametrize("name", ["q", "v"])
def test_results_are_those_of_a_call_without_gradients(name: str) -> None:
    arguments = {"q": Q.half(), "k": K.half(), "v": K.half()}
    want = p.flash_attn_func(**arguments)
    arguments[name] = arguments[name].clone().requires_grad_()
    out = p.flash_attn_func(**arguments)
    assert out.requires_grad
    assert torch.equal(out, want)
    with torch.no_grad():
        out = p.flash_attn_func(**arguments)
        assert not out.requires_grad
        assert torch.equal(out, want)


@pytest.mark.parametrize("call", [dense, varlen])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_returns(call: Callable[..., Any], device: str) -> None:
    """O, then the log-sum-exp if asked for, then the probabilities; O in the memory given."""
    out = call(device)
    assert out.device.type == device
    assert out.is_contiguous()
    out, lse = call(device, return_lse=True)
    assert (lse.dtype, lse.shape) == (torch.float32, (2, 4, 16) if call is dense else (4, 16))
    if device == "cpu":
        here = torch.zeros_like(out)
        assert call(device, out=here) is here
        assert torch.equal(here, out)


def test_probabilities() -> None:
    """Results are those of the plain functions."""
    q, k = torch.randn(Q.shape).to(Q.dtype), torch.randn(K.shape).to(K.dtype)
    out, lse, s_dmask = p.flash_attn_func(q, k, k, causal=True, return_attn_probs=True)
    want = p.flash_attn_func(q, k, k, causal=True, return_lse=True)
    assert torch.equal(out, want[0])
    assert torch.equal(lse, want[1])
    values = torch.einsum("bhij,bjhd->bihd", s_dmask, k.float().repeat_interleave(2, 2))
    assert (values - out).abs().max() < 0.02
    host = [pyfa_rocm.DeviceArray.from_numpy(to_numpy(x)) for x in (q, k)]
    plain = pyfa_rocm.flash_attn_func(host[0], host[1], host[1], causal=True, return_attn_probs=True)
    torch.testing.assert_close(s_dmask, torch.from_numpy(plain[2].to_numpy()), rtol=1e-5, atol=0)
    packed = p.flash_attn_varlen_func(q[0], k[0], k[0], AT, AT_K, 13, 11, return_attn_probs=True)
    assert packed[2].shape == (2, 4, 13, 11)


def test_fp8_gives_bfloat16_unless_told() -> None:
    own, other = (torch.ones(1, 16, 1, 128).to(getattr(torch, dtype)) for dtype in (fp8(), other_fp8()))
    assert p.flash_attn_func(own, own, own).dtype == torch.bfloat16
    for q in (own.to("meta"), other.to("meta")):
        assert p.flash_attn_func(q, q, q).dtype == torch.bfloat16


def test_the_other_fp8_is_refused() -> None:
    """Its bytes are other numbers on this device."""
    q = torch.ones(1, 16, 1, 128).to(getattr(torch, other_fp8()))
    said = f"dtype = fp8.* is {other_fp8()}, and {this_arch()} has fp8.*, {fp8()}"
    with pytest.raises(UnsupportedError, match=said):
        p.flash_attn_func(q, q, q)
    with pytest.raises(InvalidArgumentError, match=f"k: got dtype {other_fp8()}, expected {fp8()}"):
        p.flash_attn_func(q.to(getattr(torch, fp8())), q, q)


def test_dropout_draws_from_torch_s_generator() -> None:
    """Two numbers of the generator of q's device are seed and offset; each call draws its own."""
    q, k = (torch.randn(x.shape)[..., :64].to(x.dtype) for x in (Q, K))
    torch.manual_seed(5)
    first, second = (p.flash_attn_func(q, k, k, 0.5) for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    for want in (first, second):
        philox = torch.randint(2**63 - 1, (2,))
        assert torch.equal(p.flash_attn_func(q, k, k, 0.5, philox=philox), want)
        assert torch.equal(p.flash_attn_func(q, k, k, 0.5, philox=tuple(philox.tolist())), want)
    state = torch.get_rng_state()
    p.flash_attn_func(q, k, k, philox=None)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["functional", "kvcache", "_sdpa", "_module"])
def test_examples_in_docstrings(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(f"pyfa_rocm.torch.{name}"))
    assert attempted
    assert not failed


def test_without_torch() -> None:
    """pyfa_rocm loads no framework, and without torch its adapter says what to install."""
    code = """
import sys
import pyfa_rocm
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    import pyfa_rocm.torch
except ImportError as error:
    assert "pip install torch" in str(error), error
else:
    raise AssertionError("imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("causal", [False, True])
def test_a_length_that_leads_beyond_the_tables_of_rotary(causal: bool) -> None:
    """An integer is compared with them; queries at their own places count too."""
    new, q = torch.ones(2, 1, 2, 64).half(), torch.ones(2, 3, 4, 64).half()
    cache, table = torch.zeros(2, 32, 2, 64).half(), torch.ones(20, 16).half()
    rotary = {"rotary_cos": table, "rotary_sin": table, "causal": causal}
    last = 17 if causal else 19
    p.flash_attn_with_kvcache(q, cache, cache + 0, new, new, cache_seqlens=last, **rotary)
    assert cache[:, last].any()
    with pytest.raises(InvalidArgumentError, match="rotary_cos: got 20 positions, expected 21 or more"):
        p.flash_attn_with_kvcache(q, cache, cache + 0, new, new, cache_seqlens=last + 1, **rotary)
    assert not cache[:, last + 1].any()
