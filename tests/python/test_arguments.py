# SPDX-License-Identifier: MIT OR Apache-2.0
"""The public functions refuse bad arguments by name, before anything is allocated.

test_bad_input.py and test_bad_features.py have what the C library refuses by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyfa_rocm as p
from pyfa_rocm import DeviceArray, FmhaError, InvalidArgumentError, UnsupportedError


def new(*shape: int, dtype: Any = np.float16) -> DeviceArray:
    return DeviceArray.from_numpy(np.ones(shape, dtype))


def int32(*values: int) -> DeviceArray:
    return DeviceArray.from_numpy(np.array(values, np.int32))


def _varlen(**change: Any) -> Callable[[], Any]:
    q = new(90, 2, 64)
    arguments: dict[str, Any] = {
        "q": q,
        "k": q,
        "v": q,
        "cu_seqlens_q": int32(0, 30, 90),
        "cu_seqlens_k": int32(0, 50, 90),
        "max_seqlen_q": 60,
        "max_seqlen_k": 50,
    }
    return lambda: p.flash_attn_varlen_func(**(arguments | change))


def _dense(*shape: int, dtype: Any = np.float16, **options: Any) -> Callable[[], Any]:
    q = new(*(shape or (2, 40, 4, 64)), dtype=dtype)
    return lambda: p.flash_attn_func(q, q, q, **options)


INVALID = InvalidArgumentError
REFUSED: list[tuple[str, Callable[[], Callable[[], Any]], type[FmhaError], str]] = [
    ("dropout 1", lambda: _dense(dropout_p=1.0, philox=(1, 2)), INVALID, "dropout_p: got 1.0, expected"),
    ("dropout negative", lambda: _dense(dropout_p=-0.1, philox=(1, 2)), INVALID, "dropout_p: got -0.1"),
    ("dropout nan", lambda: _dense(dropout_p=float("nan"), philox=(1, 2)), INVALID, "dropout_p: got nan"),
    ("dropout text", lambda: _dense(dropout_p="1", philox=(1, 2)), INVALID, "dropout_p: got '1'"),
    ("no philox", lambda: _dense(dropout_p=0.1), INVALID, "philox: got None, expected .seed, offset."),
    ("philox of one", lambda: _dense(dropout_p=0.1, philox=(1,)), INVALID, "philox: got .1,."),
    ("philox negative", lambda: _dense(dropout_p=0.1, philox=(1, -1)), INVALID, "philox: got .1, -1."),
    ("philox big", lambda: _dense(dropout_p=0.1, philox=(2**64, 0)), INVALID, "2..64 - 1"),
    ("philox float", lambda: _dense(dropout_p=0.1, philox=(1.5, 0)), INVALID, "philox: got .1.5, 0."),
    ("philox dtype", lambda: _dense(dropout_p=0.1, philox=new(2)), INVALID, "philox: got dtype float16"),
    (
        "philox shape",
        lambda: _dense(dropout_p=0.1, philox=new(3, dtype=np.uint64)),
        INVALID,
        r"philox: got shape \(3,\), expected \(2,\)",
    ),
    ("softcap negative", lambda: _dense(softcap=-1.0), INVALID, "softcap: got -1.0, expected"),
    ("softcap inf", lambda: _dense(softcap=float("inf")), INVALID, "softcap: got inf"),
    ("softcap text", lambda: _dense(softcap="hot"), INVALID, "softcap: got 'hot', expected a number"),
    ("scale text", lambda: _dense(softmax_scale="big"), INVALID, "softmax_scale: got 'big'"),
    ("kernel", lambda: _dense(kernel=-1), INVALID, "kernel: got -1, expected 0 or more"),
    ("kernel half", lambda: _dense(kernel=0.5), INVALID, "kernel: got 0.5, expected an integer"),
    ("kernel beyond", lambda: _dense(kernel=10**6), UnsupportedError, "kernel"),
    ("window half", lambda: _dense(window_size=(1.5, 0)), INVALID, "window_size: got .1.5, 0.*two integers"),
    ("window of one", lambda: _dense(window_size=(1,)), INVALID, "window_size"),
    ("window text", lambda: _dense(window_size=("a", 1)), INVALID, "window_size"),
    ("window inf", lambda: _dense(window_size=(float("inf"), 1)), INVALID, "window_size"),
    ("out_dtype", lambda: _dense(out_dtype="float99"), INVALID, "out_dtype: got 'float99', expected one of"),
    ("out_dtype int", lambda: _dense(out_dtype=np.int32), INVALID, "out_dtype"),
    ("out not as out_dtype", lambda: _dense(out_dtype="bfloat16", out=new(2, 40, 4, 64)), INVALID,
     "out: got dtype float16, expected bfloat16 as out_dtype"),
    ("out of fp8", lambda: _dense(dtype=ml_dtypes.float8_e4m3fnuz, out=new(2, 40, 4, 64, dtype=np.int32)),
     INVALID, "out: got dtype int32, expected one of float16"),
    ("descale", lambda: _dense(q_descale=2.0), INVALID, "q_descale: got a scale for float16"),
    *(
        (f"descale {x}", lambda x=x: _dense(dtype=ml_dtypes.float8_e4m3fnuz, v_descale=x), INVALID,
         f"v_descale: got {x!r}.*expected")
        for x in (0.0, -1.0, float("inf"), "two")
    ),
    ("float64", lambda: _dense(dtype=np.float64), UnsupportedError, "q: got dtype float64, expected one of"),
    ("bias ndim", lambda: _dense(bias=new(40, 40)), INVALID, r"bias: got shape \(40, 40\), expected 4"),
    ("bias heads", lambda: _dense(bias=new(2, 2, 40, 40)), INVALID,
     r"bias: got shape \(2, 2, 40, 40\), expected \(2, 4, 40, 40\)"),
    ("bias keys", lambda: _dense(bias=new(2, 4, 40, 1)), INVALID, "bias: got shape"),
    ("bias dtype", lambda: _dense(bias=new(2, 4, 40, 40, dtype=np.float32)), INVALID,
     "bias: got dtype float32, expected float16 as q"),
    ("bias rows", lambda: _dense(bias=new(2, 4, 40, 40).transpose(0, 1, 3, 2)), INVALID,
     "bias: got stride 40 in the last dimension"),
    ("slopes dtype", lambda: _dense(alibi_slopes=new(4)), INVALID, "alibi_slopes: got dtype float16"),
    ("slopes shape", lambda: _dense(alibi_slopes=new(2, dtype=np.float32)), INVALID,
     r"alibi_slopes: got shape \(2,\), expected \(4,\) or \(2, 4\)"),
    ("bias and slopes", lambda: _dense(bias=new(2, 4, 40, 40), alibi_slopes=new(4, dtype=np.float32)),
     FmhaError, "bias.*alibi|alibi.*bias"),
    ("packed", lambda: partial(p.flash_attn_qkvpacked_func, new(2, 40, 4, 64)), INVALID,
     r"qkv: got shape \(2, 40, 4, 64\), expected \(batch, seqlen, 3, nhead, hdim\)"),
    ("packed int32", lambda: partial(p.flash_attn_qkvpacked_func, new(2, 40, 3, 4, 64, dtype=np.int32)),
     UnsupportedError, "qkv: got dtype int32, expected one of float16"),
    ("packed of two", lambda: partial(p.flash_attn_qkvpacked_func, new(2, 40, 2, 4, 64)), INVALID, "qkv:"),
    ("kv", lambda: partial(p.flash_attn_kvpacked_func, new(2, 40, 4, 64), new(2, 40, 3, 4, 64)), INVALID,
     r"kv: got shape .*expected \(batch, seqlen, 2, nhead, hdim\)"),
    ("varlen qkv", lambda: partial(p.flash_attn_varlen_qkvpacked_func, new(40, 2, 4, 64), int32(0, 40), 40),
     INVALID, r"qkv: got .*expected \(total, 3, nhead, hdim\)"),
    ("varlen kv", lambda: partial(
        p.flash_attn_varlen_kvpacked_func, new(40, 4, 64), new(40, 3, 4, 64), int32(0, 40), int32(0, 40), 40,
        40),
     INVALID, r"kv: got .*expected \(total, 2, nhead, hdim\)"),
    ("varlen of 4 dims", lambda: _varlen(q=new(1, 90, 2, 64)), INVALID,
     r"q: got shape .*expected 3 dimensions \(total, nhead, hdim\)"),
    ("v rows", lambda: _varlen(v=new(80, 2, 64)), INVALID, r"v: got shape \(80, 2, 64\), expected \(90"),
    *(
        row
        for n in ("cu_seqlens_q", "cu_seqlens_k")
        for row in (
            (f"no {n}", lambda n=n: _varlen(**{n: None}), INVALID, f"{n}: got None, expected"),
            (f"{n} of int64", lambda n=n: _varlen(**{n: new(3, dtype=np.int64)}), INVALID,
             f"{n}: got dtype int64, expected int32"),
            (f"{n} of 2 dims", lambda n=n: _varlen(**{n: int32(0, 30, 90).reshape(1, 3)}), INVALID,
             rf"{n}: got shape \(1, 3\)"),
            (f"empty {n}", lambda n=n: _varlen(**{n: int32()}), INVALID, rf"{n}: got shape \(0,\)"),
            (f"every other {n}", lambda n=n: _varlen(**{n: int32(0, 9, 30, 40, 90)[::2]}), INVALID,
             f"{n}: got stride 2"),
        )
    ),
    ("batches", lambda: _varlen(cu_seqlens_k=int32(0, 90)), INVALID,
     r"cu_seqlens_k: got shape \(2,\), expected \(3,\)"),
    ("seqused_q", lambda: _varlen(seqused_q=int32(1, 2, 3)), INVALID, r"seqused_q: got shape \(3,\)"),
    ("seqused_k", lambda: _varlen(seqused_k=new(2)), INVALID, "seqused_k: got dtype float16"),
    ("max_seqlen_q", lambda: _varlen(max_seqlen_q=-1), INVALID, "max_seqlen_q: got -1, expected 0 or more"),
    ("max_seqlen_k", lambda: _varlen(max_seqlen_k=1.5), INVALID, "max_seqlen_k: got 1.5"),
    ("varlen bias", lambda: _varlen(bias=new(2, 90, 60)), INVALID, r"expected \(2, 90, 50\)"),
    ("varlen bias of 4 dims", lambda: _varlen(bias=new(1, 2, 90, 50)), INVALID, "expected 3 dimensions"),
    ("varlen slopes", lambda: _varlen(alibi_slopes=new(3, 2, dtype=np.float32)), INVALID,
     r"expected \(2,\) or \(2, 2\)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(make: Callable[[], Callable[[], Any]], error: type[FmhaError], message: str) -> None:
    """The message names the argument, and nothing is allocated before."""
    call = make()
    p.memory.reset_peak()
    before = p.memory.peak_bytes
    with pytest.raises(error, match=message):
        call()
    assert p.memory.peak_bytes == before


def test_not_an_array() -> None:
    q = new(1, 40, 2, 64)
    for options in ({"bias": [1.0]}, {"alibi_slopes": 0.5}, {"dropout_p": 0.1, "philox": 7}):
        with pytest.raises(TypeError, match=f"{list(options)[-1]}: got"):
            p.flash_attn_func(q, q, q, **options)
    with pytest.raises(TypeError, match="block_table"):
        p.flash_attn_qkvpacked_func(new(1, 40, 3, 2, 64), block_table=None)  # type: ignore[call-arg]
