# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bad values of each feature's arguments: status, message, and memory that stays as it was.

Arguments are judged before kernels are looked for, so that these hold for every build.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from built import fp8
from cases import Bias, Case, Dropout, Placement, Varlen

import pyfa_rocm
from pyfa_rocm import FmhaError, FwdParams, InvalidArgumentError, UnsupportedError

PLAIN = Case(batch=2, seqlen_q=40, seqlen_k=50, nhead_k=2, ratio=2, hdim=64, dtype="float16")
BIAS = replace(PLAIN, bias=Bias())
ALIBI = replace(PLAIN, alibi=2)
SINKS = replace(PLAIN, sinks=True)
VARLEN = replace(PLAIN, batch=3, varlen=Varlen((40, 1, 13), (50, 20, 3), (0, 2, 1), (1, 0, 4)))
DROPOUT = replace(PLAIN, dropout=Dropout(0.25, randval=True))
PHILOX = replace(PLAIN, dropout=Dropout(0.25, on_device=True))
FP8 = replace(PLAIN, dtype=fp8(), o_dtype="bfloat16", lse=False)

NAN, INFINITY = float("nan"), float("inf")
HOST = np.zeros(1 << 18, np.float16).ctypes
Change = Callable[[FwdParams], dict[str, Any]]
Row = tuple[str, Case, Change, type[FmhaError], list[str]]
BAD, UNSUPPORTED = InvalidArgumentError, UnsupportedError


def _set(**fields: Any) -> Change:
    return lambda _: fields


def _member(name: str, **fields: int) -> Change:
    return lambda p: {name: getattr(p, name)._replace(**fields)}


def _shifted(name: str, nbytes: int) -> Change:
    """An address that is not aligned."""
    return lambda p: {name: getattr(p, name) + nbytes}


def _onto(name: str, written: str) -> Change:
    """An input that lies in what is written."""
    return lambda p: {name: getattr(p, written).data}


def _moved(name: str, onto: str) -> Change:
    """A tensor that begins where another does."""
    return lambda p: {name: getattr(p, name)._replace(data=getattr(p, onto).data)}


def _strides(name: str, case: Case, error_if_zero: bool) -> list[Row]:
    rows: list[Row] = []
    for stride in ("stride_batch", "stride_head", "stride_seqlen"):
        said = f"{name}.{stride}"
        rows += [
            (f"{said} -1", case, _member(name, **{stride: -1}), BAD, [said, "-1", "0 or more"]),
            (f"{said} 2**31", case, _member(name, **{stride: 2**31}), UNSUPPORTED, [said, str(2**31)]),
        ]
        if error_if_zero:
            rows.append((f"{said} 0", case, _member(name, **{stride: 0}), BAD, [said, "overlap one another"]))
    return rows


ROWS: list[Row] = [
    # Bias and ALiBi.
    *_strides("bias", BIAS, error_if_zero=False),
    ("bias odd", BIAS, lambda p: {"bias": pyfa_rocm.Bias(p.q.data + 1, 0, 0, 0)}, BAD,
     ["bias.data", "aligned to 2 bytes"]),
    ("bias host", BIAS, _member("bias", data=HOST.data), BAD, ["bias.data", "device memory"]),
    ("bias is o", BIAS, _moved("bias", "o"), BAD,
     ["o is written but overlaps bias"]),
    ("bias span", BIAS, _member("bias", stride_seqlen=2**23), UNSUPPORTED,
     ["bias.stride_seqlen", "one head spans 4294967396 bytes"]),
    ("alibi odd", ALIBI, _shifted("alibi_slopes", 2), BAD, ["alibi_slopes", "aligned to 4 bytes"]),
    ("alibi host", ALIBI, _set(alibi_slopes=HOST.data), BAD, ["alibi_slopes", "device memory"]),
    ("alibi stride", ALIBI, _set(alibi_stride_batch=-4), BAD, ["alibi_stride_batch = -4", "0 or more"]),
    ("alibi stride 2**31", ALIBI, _set(alibi_stride_batch=2**31, p_drop=0.5), UNSUPPORTED, ["alibi_stride"]),
    ("alibi is lse", ALIBI, _onto("alibi_slopes", "lse"), BAD, ["lse is written but overlaps alibi_slopes"]),
    ("both biases", BIAS, lambda p: {"alibi_slopes": p.q.data}, UNSUPPORTED, ["bias and alibi_slopes"]),
    # Sinks.
    ("sinks odd", SINKS, _shifted("sinks", 2), BAD, ["sinks", "aligned to 4 bytes"]),
    ("sinks host", SINKS, _set(sinks=HOST.data), BAD, ["sinks", "device memory"]),
    ("sinks are lse", SINKS, _onto("sinks", "lse"), BAD, ["lse is written but overlaps sinks"]),
    # Softcap.
    *((f"softcap {x}", PLAIN, _set(softcap=x), BAD, ["softcap", "a finite number above 0"])
      for x in (-1.0, NAN, INFINITY)),
    *((f"softcap {x}", PLAIN, _set(softcap=x), UNSUPPORTED, ["softcap", "kernels take"])
      for x in (1e-40, 820.0, 3e38)),
    ("softcap and bias", BIAS, _set(softcap=30.0), UNSUPPORTED,
     ["softcap = 30", "bias", "no kernel does both"]),
    ("softcap and alibi", ALIBI, _set(softcap=30.0), UNSUPPORTED, ["softcap = 30", "alibi_slopes"]),
    # Masks.
    *((f"top-left {n}", PLAIN, _set(mask="window_top_left", **{n: -1}), BAD, [n, "-1", "0 or more"])
      for n in ("window_left", "window_right")),
    # Packed sequences.
    *((f"no {n}", VARLEN, _set(**{n: 0}), BAD, [f"{n} = NULL", "both or neither"])
      for n in ("cu_seqlens_q", "cu_seqlens_k")),
    *((f"only {n}", PLAIN, lambda p, n=n: {n: p.q.data}, BAD, [n, "expected NULL without cu_seqlens_q"])
      for n in ("seqused_q", "seqused_k")),
    *((f"{n} {x}", VARLEN, _set(**{n: x}), BAD, [f"{n} = {x}", "1 or more"])
      for n in ("total_q", "total_k") for x in (0, -1)),
    *((f"{n} 2**31", VARLEN, _set(**{n: 2**31}), UNSUPPORTED, [n, str(2**31)])
      for n in ("total_q", "total_k")),
    *((f"{n} odd", VARLEN, _shifted(n, 2), BAD, [n, "aligned to 4 bytes"])
      for n in ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")),
    *((f"{n} host", VARLEN, _set(**{n: HOST.data}), BAD, [n, "device memory"])
      for n in ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")),
    *((f"{n} is o", VARLEN, _onto(n, "o"), BAD, [f"o is written but overlaps {n}"])
      for n in ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")),
    ("packed lse", VARLEN, _member("lse", stride_head=56), BAD,
     ["lse.stride_head = 56", "expected 57 or more"]),
    ("packed o", VARLEN, _member("o", stride_seqlen=8), BAD, ["o.stride", "overlap"]),
    ("packed k span", VARLEN, _member("k", stride_seqlen=2**23), UNSUPPORTED, ["k.stride_seqlen", "50 rows"]),
    # Dropout.
    *((f"p_drop {x}", PLAIN, _set(p_drop=x), BAD,
       ["p_drop", "from 0 to below 1"]) for x in (-0.1, 1.0, 2.0, NAN)),
    ("randval without dropout", DROPOUT, _set(p_drop=0.0), BAD,
     ["randval.data", "expected NULL if p_drop = 0"]),
    *_strides("randval", DROPOUT, error_if_zero=True),
    ("randval host", DROPOUT, _member("randval", data=HOST.data), BAD, ["randval.data", "device memory"]),
    *((f"randval is {n}", DROPOUT, _moved("randval", n), BAD,
       [f"randval is written but overlaps {n}"]) for n in ("q", "k", "v", "o", "lse")),
    ("philox odd", PHILOX, _shifted("philox_seed_offset", 4), BAD,
     ["philox_seed_offset", "aligned to 8 bytes"]),
    ("philox host", PHILOX, _set(philox_seed_offset=HOST.data), BAD, ["philox_seed_offset", "device memory"]),
    ("philox is o", PHILOX, _onto("philox_seed_offset", "o"), BAD,
     ["o is written but overlaps philox_seed_offset"]),
    # Types and scales.
    ("o_dtype", PLAIN, _set(o_dtype="int8"), BAD, ["o_dtype", "int8", "bfloat16"]),
    *((f"{n} {x}", FP8, _set(**{n: x}), BAD, [n, "a finite number above 0"])
      for n in ("q_descale", "k_descale", "v_descale") for x in (-1.0, NAN, INFINITY)),
    *((f"{n} fp16", PLAIN, _set(**{n: 2.0}), BAD, [f"{n} = 2", "only FP8 inputs"])
      for n in ("q_descale", "k_descale", "v_descale")),
    ("descales vanish", FP8, _set(q_descale=1e-20, k_descale=1e-20), UNSUPPORTED,
     ["times q_descale and k_descale"]),
    ("v_descale vanishes", FP8, _set(v_descale=1e-37), UNSUPPORTED, ["v_descale"]),
    ("fp8 strides", FP8, _member("k", stride_seqlen=136), BAD, ["k.stride_seqlen = 136", "multiple of 16"]),
    ("fp32 strides", replace(PLAIN, dtype="float32"), _member("k", stride_seqlen=130), BAD,
     ["k.stride_seqlen = 130", "multiple of 4"]),
    # The number of a kernel.
    ("kernel -1", PLAIN, _set(kernel=-1), BAD, ["kernel = -1", "0, or the number of a candidate"]),
    ("kernel 1000", PLAIN, _set(kernel=1000), UNSUPPORTED, ["kernel = 1000", "candidates for this problem"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "change", "error", "words"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_refused(case: Case, change: Change, error: type[FmhaError], words: list[str]) -> None:
    placement = Placement(case)
    params = placement.params()
    bad = replace(params, **change(params))
    for call in (pyfa_rocm.fmha_fwd, pyfa_rocm.fmha_fwd_kernel, pyfa_rocm.fmha_prepare):
        with pytest.raises(error) as caught:
            call(bad)
        assert type(caught.value) is error, f"{caught.value!r} is a {error.__name__} of another status"
        for word in words:
            assert word in str(caught.value)
    pyfa_rocm.synchronize()
    assert placement.unchanged()


@pytest.mark.parametrize("case", [BIAS, ALIBI, VARLEN, DROPOUT, PHILOX, FP8], ids=lambda case: case.dtype)
def test_the_cases_themselves_are_no_bad_input(case: Case) -> None:
    """The cases that `test_refused` starts from are valid: they run, or only lack a kernel."""
    placement = Placement(case)
    with suppress(UnsupportedError):
        assert pyfa_rocm.fmha_fwd_kernel(placement.params()).name
