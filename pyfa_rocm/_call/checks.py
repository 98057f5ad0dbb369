# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks of a call, and its translation to FwdParams.

They run when a plan is made, and when a framework traces. The C library checks addresses, in each call.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyfa_rocm._call.call import Call, Checked
from pyfa_rocm._call.numbers import to_float
from pyfa_rocm._call.optional import DESCALES
from pyfa_rocm._call.params import DTYPES, FP8, Bias, FwdParams, Lse, Options, Strided, number_fields
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = [
    "bias_strides",
    "check",
    "dtype_name",
    "lse_strides",
    "output_dtype",
    "output_layout",
    "params_of",
    "plain_fields",
    "require_like",
    "require_output",
    "strided",
]

_UNLIMITED = 2**31 - 1


def check(call: Call) -> Checked:
    """Check everything but addresses and `out`; of sizes, which may be symbols, only shapes are made."""
    return _check_dense(call) if call.max_seqlen_q is None else _check_packed(call)


def _check_dense(call: Call) -> Checked:
    q, k, v = call.q, call.k, call.v
    _require_inputs(q, k, v, "(batch, seqlen, nhead, hdim)")
    batch, seqlen_q, nhead_q, _ = q.shape
    scores = (batch, nhead_q, seqlen_q, k.shape[1])
    fields = {"batch": batch, "seqlen_q": seqlen_q, "seqlen_k": k.shape[1]} | _input_fields(call)
    fields |= _option_fields(call.options, q) | _array_fields(call, batch, scores)
    return Checked((batch, seqlen_q, nhead_q, v.shape[-1]), scores[:-1], scores, fields)


def _check_packed(call: Call) -> Checked:
    q, k, v = call.q, call.k, call.v
    _require_inputs(q, k, v, "(total, nhead, hdim)")
    total_q, nhead_q, _ = q.shape
    batch = _batch(call.arrays, q)
    longest_q, longest_k = call.max_seqlen_q, call.max_seqlen_k
    assert longest_q is not None
    assert longest_k is not None
    fields = {"batch": batch, "seqlen_q": longest_q, "seqlen_k": longest_k} | _input_fields(call)
    fields |= {"total_q": total_q, "total_k": k.shape[0]}
    fields |= _option_fields(call.options, q) | _array_fields(call, batch, (nhead_q, total_q, longest_k))
    scores = (batch, nhead_q, longest_q, longest_k)
    return Checked((total_q, nhead_q, v.shape[-1]), (nhead_q, total_q), scores, fields)


def _input_fields(call: Call) -> dict[str, Any]:
    q, v = call.q, call.v
    return {
        "dtype": q.dtype,
        "nhead_q": q.shape[-2],
        "nhead_k": v.shape[-2],
        "hdim_q": q.shape[-1],
        "hdim_v": v.shape[-1],
    }


def plain_fields(checked: Checked) -> dict[str, Any]:
    """Return the checked fields of FwdParams, with sizes as the C library wants them."""
    fields = dict(checked.fields)
    for side in "qk":
        # Without rows no length is above 0. The C library takes a total of 0 for a forgotten one.
        if f"total_{side}" in fields and not fields[f"total_{side}"]:
            fields[f"seqlen_{side}"] = 0
    return fields


def params_of(call: Call, checked: Checked) -> tuple[FwdParams, Layout, Layout | None]:
    """Check `out`; return the parameters without addresses, and the layouts of O and of the log-sum-exp."""
    device = call.q.device
    o = output_layout(call.out, checked.o, call.options.out_dtype, call.q)
    lse = contiguous(checked.lse, "float32", device) if call.options.wants_lse else None
    params = FwdParams(
        **plain_fields(checked),
        q=strided(call.q),
        k=strided(call.k),
        v=strided(call.v),
        o=strided(o),
        lse=None if lse is None else lse_strides(lse),
        o_dtype=None if o.dtype == call.q.dtype else o.dtype,
    )
    return params, o, lse


def _mask_fields(options: Options, has_alibi: bool) -> dict[str, Any]:
    """Return mask and window of the C call for flash-attention's pair of arguments."""
    try:
        left, right = options.window_size
        if int(left) != left or int(right) != right:
            raise ValueError("not integers")
        left, right = int(left), int(right)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"window_size: got {options.window_size!r}, expected two integers"
        ) from error
    suffix = "_top_left" if options.top_left else ""
    if options.causal:
        right = 0
    # ALiBi's distances are from a query's own column, which without a mask would be aligned bottom-right.
    if left < 0 and right < 0 and not (options.top_left and has_alibi):
        return {"mask": "none"}
    if left < 0 and right == 0:
        return {"mask": "causal" + suffix}
    left, right = (side if 0 <= side < _UNLIMITED else _UNLIMITED for side in (left, right))
    return {"mask": "window" + suffix, "window_left": left, "window_right": right}


def _option_fields(options: Options, q: Layout) -> dict[str, Any]:
    """Return the fields of FwdParams that come from numbers and flags."""
    fields = number_fields(options)
    if options.softmax_scale is not None:
        scale = to_float("softmax_scale", options.softmax_scale)
    else:
        scale = 1.0 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    return fields | {"softmax_scale": scale} | _mask_fields(options, options.alibi_slopes is not None)


def _require_shape(name: str, got: tuple[int, ...], expected: tuple[int, ...], other: str) -> None:
    """Raise unless a shape is the expected one, which comes from another argument."""
    if got != expected:
        raise InvalidArgumentError(f"{name}: got shape {got}, expected {expected} to fit {other}")


def _require_contiguous_rows(name: str, layout: Layout) -> None:
    if layout.shape[-1] > 1 and layout.strides[-1] != 1:
        raise InvalidArgumentError(
            f"{name}: got stride {layout.strides[-1]} in the last dimension, expected 1 (contiguous)"
        )


def _require_inputs(q: Layout, k: Layout, v: Layout, dims: str) -> None:
    """Raise unless q, k, v fit together; `dims` names their dimensions, "(total, nhead, hdim)" say."""
    ndim = dims.count(",") + 1
    for name, layout in (("q", q), ("k", k), ("v", v)):
        if len(layout.shape) != ndim:
            raise InvalidArgumentError(f"{name}: got shape {layout.shape}, expected {ndim} dimensions {dims}")
        if layout.dtype != q.dtype:
            raise InvalidArgumentError(f"{name}: got dtype {layout.dtype}, expected {q.dtype} as q")
        _require_device(name, layout, q)
        _require_contiguous_rows(name, layout)
    if q.dtype not in DTYPES:
        raise UnsupportedError(f"q: got dtype {q.dtype}, expected one of {', '.join(DTYPES)}")
    _require_shape("k", k.shape, (*q.shape[:-3], *k.shape[-3:-1], q.shape[-1]), "q")
    _require_shape("v", v.shape, (*k.shape[:-1], v.shape[-1]), "k")


def _require_device(name: str, layout: Layout, q: Layout) -> None:
    if layout.device != q.device:
        raise InvalidArgumentError(f"{name}: got device {layout.device}, expected {q.device} as q")


def _require_vector(
    name: str, layout: Layout, dtypes: tuple[str, ...], length: int | None, q: Layout
) -> None:
    """Raise unless an array has one dimension, of this length (None: 1 or more), and one of these types."""
    if layout.dtype not in dtypes:
        raise InvalidArgumentError(f"{name}: got dtype {layout.dtype}, expected {' or '.join(dtypes)}")
    if len(layout.shape) != 1 or (layout.shape[0] != length if length is not None else not layout.shape[0]):
        expected = f"({length},)" if length is not None else "(batch + 1,)"
        raise InvalidArgumentError(f"{name}: got shape {layout.shape}, expected {expected}")
    _require_device(name, layout, q)
    _require_contiguous_rows(name, layout)


def _bias_field(bias: Layout, shape: tuple[int, ...], q: Layout) -> Bias:
    """Check a bias against the shape of the scores, and return its strides, 0 where it is broadcast.

    `shape` is (batch, nhead, seqlen_q, seqlen_k), or without batch for packed sequences.
    """
    if len(bias.shape) != len(shape):
        raise InvalidArgumentError(f"bias: got shape {bias.shape}, expected {len(shape)} dimensions {shape}")
    if bias.dtype != q.dtype:
        raise InvalidArgumentError(f"bias: got dtype {bias.dtype}, expected {q.dtype} as q")
    _require_device("bias", bias, q)
    _require_contiguous_rows("bias", bias)
    fits = all(n in (1, size) for n, size in zip(bias.shape[:-1], shape[:-1], strict=True))
    if not fits or bias.shape[-1] != shape[-1]:
        raise InvalidArgumentError(
            f"bias: got shape {bias.shape}, expected {shape}, or 1 in place of a size other than the last"
        )
    return bias_strides(bias)


def _alibi_stride(slopes: Layout, batch: int, nhead: int, q: Layout) -> int:
    """Check ALiBi slopes, and return their stride from batch to batch."""
    if slopes.dtype != "float32":
        raise InvalidArgumentError(f"alibi_slopes: got dtype {slopes.dtype}, expected float32")
    if slopes.shape not in ((nhead,), (batch, nhead)):
        raise InvalidArgumentError(
            f"alibi_slopes: got shape {slopes.shape}, expected {(nhead,)} or {(batch, nhead)}"
        )
    _require_device("alibi_slopes", slopes, q)
    _require_contiguous_rows("alibi_slopes", slopes)
    return slopes.strides[0] if len(slopes.shape) == 2 else 0


def _array_fields(call: Call, batch: int, scores: tuple[int, ...]) -> dict[str, Any]:
    """Check the optional arrays, and return the fields of FwdParams with their strides.

    `scores` is the shape that a bias has, nhead_q being the third from last.
    """
    fields: dict[str, Any] = {}
    arrays, q = call.arrays, call.q
    if "bias" in arrays:
        fields["bias"] = _bias_field(arrays["bias"], scores, q)
    if "alibi_slopes" in arrays:
        fields["alibi_stride_batch"] = _alibi_stride(arrays["alibi_slopes"], batch, scores[-3], q)
    if "sinks" in arrays:
        _require_vector("sinks", arrays["sinks"], ("float32",), scores[-3], q)
    if "philox" in arrays:
        _require_vector("philox", arrays["philox"], ("uint64", "int64"), 2, q)
    for name in DESCALES if q.dtype not in FP8 else ():
        if getattr(call.options, name) is not None:
            types = " and ".join(FP8)
            raise InvalidArgumentError(f"{name}: got a scale for {q.dtype}, expected None: it is for {types}")
    return fields


def _batch(arrays: dict[str, Layout], q: Layout) -> int:
    """Check the arrays of lengths against each other, and return how many sequences they say there are."""
    for name in ("cu_seqlens_q", "cu_seqlens_k"):
        if name not in arrays:
            raise InvalidArgumentError(f"{name}: got None, expected an int32 array (batch + 1,)")
    _require_vector("cu_seqlens_q", arrays["cu_seqlens_q"], ("int32",), None, q)
    batch = arrays["cu_seqlens_q"].shape[0] - 1
    _require_vector("cu_seqlens_k", arrays["cu_seqlens_k"], ("int32",), batch + 1, q)
    for name in ("seqused_q", "seqused_k"):
        if name in arrays:
            _require_vector(name, arrays[name], ("int32",), batch, q)
    return batch


def dtype_name(out_dtype: Any) -> str:
    """Return the name of a type given as a name, or as a type of NumPy, ml_dtypes or torch."""
    if isinstance(out_dtype, str):
        return out_dtype
    try:
        return str(np.dtype(out_dtype).name)
    except TypeError:
        return str(out_dtype).rpartition(".")[2]


def output_dtype(out: Layout | None, out_dtype: Any, q: Layout) -> str:
    """Check `out_dtype`, and return the type of the output."""
    if out_dtype is not None:
        dtype = dtype_name(out_dtype)
        if dtype not in DTYPES:
            raise InvalidArgumentError(f"out_dtype: got {out_dtype!r}, expected one of {', '.join(DTYPES)}")
        return dtype
    if q.dtype not in FP8:
        return q.dtype
    dtype = "bfloat16" if out is None else out.dtype
    if dtype not in DTYPES:
        raise InvalidArgumentError(f"out: got dtype {dtype}, expected one of {', '.join(DTYPES)}")
    return dtype


def output_layout(out: Layout | None, shape: tuple[int, ...], out_dtype: Any, q: Layout) -> Layout:
    """Check `out` and `out_dtype`, and return the layout of the output."""
    dtype = output_dtype(out, out_dtype, q)
    if out is None:
        return contiguous(shape, dtype, q.device)
    require_output(out, shape, dtype, out_dtype, q)
    return out


def require_output(out: Layout, shape: tuple[int, ...], dtype: str, out_dtype: Any, q: Layout) -> None:
    """Raise unless `out` can be written to."""
    if out.shape != shape:
        raise InvalidArgumentError(f"out: got shape {out.shape}, expected {shape}")
    if out.dtype != dtype:
        reason = "as q" if out_dtype is None else "as out_dtype"
        raise InvalidArgumentError(f"out: got dtype {out.dtype}, expected {dtype} {reason}")
    _require_device("out", out, q)
    _require_contiguous_rows("out", out)


def require_like(
    name: str, layout: Layout, shape: tuple[int, ...], dtype: str, other: str, q: Layout
) -> None:
    """Raise unless an array has the shape and type that follow from another argument, on q's device."""
    if layout.dtype != dtype:
        raise InvalidArgumentError(f"{name}: got dtype {layout.dtype}, expected {dtype} to fit {other}")
    _require_shape(name, layout.shape, shape, other)
    _require_device(name, layout, q)
    _require_contiguous_rows(name, layout)


def strided(layout: Layout) -> Strided:
    """Return the strides of a (batch, seqlen, nhead, hdim) tensor, or of a packed one without batch."""
    strides = layout.strides[:-1]
    return Strided(0, *([0] * (3 - len(strides))), *strides)


def bias_strides(bias: Layout) -> Bias:
    """Return the strides of a (batch, nhead, seqlen_q, seqlen_k) bias, 0 where it has one element for all.

    Packed sequences' is without batch.
    """
    strides = [0 if n == 1 else s for n, s in zip(bias.shape[:-1], bias.strides[:-1], strict=True)]
    return Bias(0, *([0] * (3 - len(strides))), *strides)


def lse_strides(lse: Layout) -> Lse:
    """Return the strides of a (batch, nhead, seqlen) log-sum-exp, or of a packed one without batch."""
    strides = lse.strides[:-1]
    return Lse(0, *([0] * (2 - len(strides))), *strides)
