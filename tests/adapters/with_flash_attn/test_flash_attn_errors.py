# SPDX-License-Identifier: MIT OR Apache-2.0
"""The drop-in for flash-attn refuses arguments that make no sense, and features that it lacks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from pyfa_rocm import InvalidArgumentError, UnsupportedError, flash_attn
from pyfa_rocm import torch as p
from pyfa_rocm.flash_attn import flash_attn_2_cuda, flash_attn_interface

Q = torch.ones(1, 16, 2, 64, dtype=torch.float16)
CU = torch.tensor([0, 16], dtype=torch.int32)
QKV = torch.stack([Q, Q, Q], 2)

CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "func": (flash_attn.flash_attn_func, {"q": Q, "k": Q, "v": Q}),
    "varlen": (
        flash_attn.flash_attn_varlen_func,
        {
            "q": Q[0], "k": Q[0], "v": Q[0], "cu_seqlens_q": CU, "cu_seqlens_k": CU, "max_seqlen_q": 16,
            "max_seqlen_k": 16,
        },
    ),
    "qkv": (flash_attn.flash_attn_qkvpacked_func, {"qkv": QKV}),
    "kv": (flash_attn.flash_attn_kvpacked_func, {"q": Q, "kv": QKV[:, :, 1:]}),
    "varlen_qkv": (
        flash_attn.flash_attn_varlen_qkvpacked_func, {"qkv": QKV[0], "cu_seqlens": CU, "max_seqlen": 16},
    ),
    "varlen_kv": (
        flash_attn.flash_attn_varlen_kvpacked_func,
        {
            "q": Q[0], "kv": QKV[0, :, 1:], "cu_seqlens_q": CU, "cu_seqlens_k": CU, "max_seqlen_q": 16,
            "max_seqlen_k": 16,
        },
    ),
    "torch": (p.flash_attn_func, {"q": Q, "k": Q, "v": Q}),
}  # fmt: skip
_NESTED = torch.nested.as_nested_tensor([torch.ones(3, 64).half()], layout=torch.jagged)
BAD: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "numpy": ("func", {"q": np.ones(Q.shape)}, TypeError, r"q: got ndarray, expected a torch\.Tensor"),
    "list": ("func", {"k": [1.0]}, TypeError, r"k: got list, expected a torch\.Tensor"),
    "none": ("func", {"v": None}, TypeError, r"v: got NoneType, expected a torch\.Tensor"),
    "packed_numpy": ("qkv", {"qkv": np.ones(QKV.shape)}, TypeError, "qkv: got ndarray, expected a torch"),
    "lengths": ("varlen", {"cu_seqlens_k": [0, 16]}, TypeError, "cu_seqlens_k: got list, expected a torch"),
    "slopes": ("func", {"alibi_slopes": [1.0, 2.0]}, TypeError, "alibi_slopes: got list, expected a torch"),
    "scalar": ("func", {"q": Q[0, 0, 0, 0]}, InvalidArgumentError, r"q: got shape \(\), expected 4 dimens"),
    "dims": ("varlen", {"k": Q}, InvalidArgumentError, r"k: got shape .* 3 dimensions \(total, nhead, hdim"),
    "hdim_0": ("func", {"q": Q[..., :0], "k": Q[..., :0]}, InvalidArgumentError, "q: .* expected hdim above"),
    "qkv": ("qkv", {"qkv": QKV[:, :, :2]}, InvalidArgumentError, r"qkv: .*\(batch, seqlen, 3, nhead, hdim\)"),
    "qkv_dims": ("qkv", {"qkv": Q}, InvalidArgumentError, r"qkv: .*5 dimensions \(batch, seqlen, 3, nhead,"),
    "kv": ("kv", {"kv": QKV}, InvalidArgumentError, r"kv: .* expected \(batch, seqlen, 2, nhead, hdim\)"),
    "varlen_qkv": ("varlen_qkv", {"qkv": QKV}, InvalidArgumentError, r"qkv: .*\(total, 3, nhead, hdim\)"),
    "varlen_kv": ("varlen_kv", {"kv": QKV[0]}, InvalidArgumentError, r"kv: .*\(total, 2, nhead, hdim\)"),
    "dropout": ("func", {"dropout_p": "0.1"}, InvalidArgumentError, r"dropout_p: got '0\.1', expected a num"),
    "dropout_none": ("torch", {"dropout_p": None}, InvalidArgumentError, "dropout_p: got None, expected a"),
    "scale": ("func", {"softmax_scale": "1"}, InvalidArgumentError, "softmax_scale: got '1', expected a num"),
    "softcap": ("func", {"softcap": "1"}, InvalidArgumentError, "softcap: got '1', expected a number"),
    "longest": ("varlen", {"max_seqlen_q": 16.5}, InvalidArgumentError, r"max_seqlen_q: got 16\.5, expected"),
    "longest_none": ("varlen", {"max_seqlen_k": None}, InvalidArgumentError, "max_seqlen_k: got None, expec"),
    "window": ("func", {"window_size": (None, None)}, InvalidArgumentError, r"window_size: got \(None, None"),
    "window_float": ("func", {"window_size": (0.5, 0)}, InvalidArgumentError, r"window_size: got \(0\.5, 0"),
    "nested": ("func", {"q": _NESTED}, UnsupportedError, "q: got a nested tensor, .*flash_attn_varlen_func"),
    "sparse": ("func", {"q": Q.to_sparse()}, UnsupportedError, r"q: got .*sparse_coo, expected .*to_dense"),
}


@pytest.mark.parametrize(("call", "change", "error", "message"), BAD.values(), ids=BAD)
def test_bad_argument(call: str, change: dict[str, Any], error: type[Exception], message: str) -> None:
    function, arguments = CALLS[call]
    with pytest.raises(error, match=message):
        function(**arguments | change)


@pytest.mark.parametrize(("function", "arguments"), CALLS.values(), ids=CALLS)
def test_the_same_calls_are_good(function: Any, arguments: dict[str, Any]) -> None:
    assert torch.isfinite(function(**arguments)).all()


def test_numbers_of_other_kinds() -> None:
    """They take what is a number: whole floats, and NumPy's."""
    function, arguments = CALLS["varlen"]
    want = function(**arguments, softmax_scale=0.5, window_size=(3, 0))
    change: dict[str, Any] = {"max_seqlen_q": 16.0, "max_seqlen_k": np.int64(16)}
    change |= {"softmax_scale": np.float32(0.5), "window_size": (np.int64(3), 0.0)}
    assert torch.equal(function(**arguments | change), want)


@pytest.fixture
def installed() -> Iterator[None]:
    flash_attn.install()
    yield
    flash_attn.uninstall()


MISSING = (
    "import flash_attn.layers.patch_embed",
    "from flash_attn.losses import cross_entropy_apex",
    "import flash_attn.modules.mha",
    "from flash_attn.ops.triton.layer_norm import RMSNorm",
    "from flash_attn import flash_attn_gpu",
    "from flash_attn.flash_attn_interface import flash_attn_gqa_func",
    "from flash_attn_2_cuda import bwd_kvcache",
    "from flash_attn.bert_padding import flash_attn_func",
)


@pytest.mark.parametrize("statement", MISSING)
def test_what_is_missing(statement: str, installed: None) -> None:
    """An ImportError that says whose flash_attn this is, and what it has."""
    with pytest.raises(ImportError) as caught:
        exec(statement, {})
    message = str(caught.value)
    assert "pyfa_rocm.flash_attn" in message
    if "bert_padding" not in statement and "losses" not in statement and "_cuda" not in statement:
        assert "flash_attn_varlen_func" in message
        assert "bert_padding" in message


def test_missing_attributes(installed: None) -> None:
    for module, name in ((flash_attn, "models"), (flash_attn_interface, "_flash_attn_triton")):
        assert not hasattr(module, name)
        with pytest.raises(AttributeError, match=rf"{name}: not part of pyfa_rocm\.flash_attn, .* it has "):
            getattr(module, name)
    assert importlib.import_module("pyfa_rocm.flash_attn.bert_padding") is flash_attn.bert_padding


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize(("paged", "most"), [(True, 64), (False, 16)])
@pytest.mark.parametrize("short", [True, False])
def test_rotary_tables_that_end_before_the_cache(by_name: bool, paged: bool, most: int, short: bool) -> None:
    """Refused, as by flash-attn: lengths, which are on the device, may reach beyond the tables."""
    new, cache = torch.ones(2, 1, 2, 64).bfloat16(), torch.zeros(9, 16, 2, 64).bfloat16()
    table = torch.ones(most - short, 16).bfloat16()
    pages = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]], dtype=torch.int32) if paged else None
    arrays = torch.cat([new, new], 2), cache, cache + 0, new, new
    lengths = torch.zeros(2, dtype=torch.int32)

    def call() -> Any:
        if by_name:
            return flash_attn.flash_attn_with_kvcache(
                *arrays, rotary_cos=table, rotary_sin=table, cache_seqlens=lengths, block_table=pages
            )
        return flash_attn_2_cuda.fwd_kvcache(
            *arrays, lengths, table, table, None, None, pages, None, None, 0.125, False, -1, -1, 0.0, True, 0
        )

    if short:
        message = rf"rotary_cos: got {most - 1} positions, expected {most} or more"
        with pytest.raises(InvalidArgumentError, match=message):
            call()
    else:
        call()
    assert cache.any() != short
