# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks of the public functions' arguments, and their translation to fields of FwdParams.

They run when a plan is made. Nothing here looks at an address: that is the C library's part.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyfa_rocm._call.numbers import to_float, to_integer
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import DTYPES, Bias, Lse, Strided
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = [
    "Checked", "Options", "array_fields", "option_fields", "output_dtype", "output_layout", "require_inputs",
    "require_output", "require_shape", "require_vector", "tensor_fields",
]  # fmt: skip

_UNLIMITED = 2**31 - 1
_FP8 = "float8_e4m3fnuz"


class Options(NamedTuple):
    """What `flash_attn_func` and its siblings take beside arrays; see there."""

    softmax_scale: float | None
    causal: bool
    window_size: tuple[int, int]
    top_left: bool
    dropout_p: float
    softcap: float
    out_dtype: Any
    return_lse: bool
    return_attn_probs: bool
    kernel: int

    @property
    def wants_lse(self) -> bool:
        """Whether the log-sum-exp is computed."""
        return bool(self.return_lse or self.return_attn_probs)


class Checked(NamedTuple):
    """What a call comes to once its arguments are checked.

    Attributes
    ----------
    o, lse, scores : tuple of int
        Shapes of the output, of its log-sum-exp, and of the scores.
    batch : int
        Number of sequences.
    fields : dict
        Fields of FwdParams that come from options and optional arrays.
    """

    o: tuple[int, ...]
    lse: tuple[int, ...]
    scores: tuple[int, ...]
    batch: int
    fields: dict[str, Any]


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


def option_fields(options: Options, q: Layout, optional: OptionalArguments | None) -> dict[str, Any]:
    """Return the fields of FwdParams that come from numbers and flags."""
    dropout_p = to_float("dropout_p", options.dropout_p)
    if not 0 <= dropout_p < 1:
        raise InvalidArgumentError(f"dropout_p: got {dropout_p}, expected from 0 to below 1")
    softcap = to_float("softcap", options.softcap)
    if not 0 <= softcap < math.inf:
        raise InvalidArgumentError(f"softcap: got {softcap}, expected 0 (none) or a finite number above")
    if options.softmax_scale is not None:
        scale = to_float("softmax_scale", options.softmax_scale)
    else:
        scale = 1.0 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    has_alibi = optional is not None and "alibi_slopes" in optional.arrays
    return {
        "softmax_scale": scale,
        "softcap": softcap,
        "p_drop": dropout_p,
        "kernel": to_integer("kernel", options.kernel),
        **_mask_fields(options, has_alibi),
    }


def require_shape(name: str, got: tuple[int, ...], expected: tuple[int, ...], other: str) -> None:
    """Raise unless a shape is the expected one, which comes from another argument."""
    if got != expected:
        raise InvalidArgumentError(f"{name}: got shape {got}, expected {expected} to fit {other}")


def _require_contiguous_rows(name: str, layout: Layout) -> None:
    if layout.shape[-1] > 1 and layout.strides[-1] != 1:
        raise InvalidArgumentError(
            f"{name}: got stride {layout.strides[-1]} in the last dimension, expected 1 (contiguous)"
        )


def require_inputs(q: Layout, k: Layout, v: Layout, dims: str) -> None:
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


def _require_device(name: str, layout: Layout, q: Layout) -> None:
    if layout.device != q.device:
        raise InvalidArgumentError(f"{name}: got device {layout.device}, expected {q.device} as q")


def require_vector(name: str, layout: Layout, dtypes: tuple[str, ...], length: int | None, q: Layout) -> None:
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
    strides = [0 if n == 1 else s for n, s in zip(bias.shape[:-1], bias.strides[:-1], strict=True)]
    return Bias(0, *([0] * (3 - len(strides))), *strides)


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


def array_fields(
    optional: OptionalArguments | None, batch: int, scores: tuple[int, ...], q: Layout
) -> dict[str, Any]:
    """Check the optional arrays, and return the fields of FwdParams with their strides.

    `scores` is the shape that a bias has, nhead_q being the third from last.
    """
    fields: dict[str, Any] = {}
    if optional is None:
        return fields
    arrays = {name: array.layout for name, array in optional.arrays.items()}
    if "bias" in arrays:
        fields["bias"] = _bias_field(arrays["bias"], scores, q)
    if "alibi_slopes" in arrays:
        fields["alibi_stride_batch"] = _alibi_stride(arrays["alibi_slopes"], batch, scores[-3], q)
    if "philox" in arrays:
        require_vector("philox", arrays["philox"], ("uint64", "int64"), 2, q)
    _require_no_descales(optional, q)
    return fields


def _require_no_descales(optional: OptionalArguments, q: Layout) -> None:
    """Raise if there are scales of 8-bit floats for another type."""
    if q.dtype == _FP8:
        return
    for name in ("q_descale", "k_descale", "v_descale"):
        if name in optional.key:
            raise InvalidArgumentError(f"{name}: got a scale for {q.dtype}, expected None: it is for {_FP8}")


def _dtype_name(out_dtype: Any) -> str:
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
        dtype = _dtype_name(out_dtype)
        if dtype not in DTYPES:
            raise InvalidArgumentError(f"out_dtype: got {out_dtype!r}, expected one of {', '.join(DTYPES)}")
        return dtype
    if q.dtype != _FP8:
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


def tensor_fields(q: Layout, k: Layout, v: Layout, o: Layout, lse: Layout | None) -> dict[str, Any]:
    """Return the fields of FwdParams that come from the tensors, but those that packing changes."""
    return {
        "dtype": q.dtype,
        "o_dtype": None if o.dtype == q.dtype else o.dtype,
        "nhead_q": q.shape[-2],
        "nhead_k": k.shape[-2],
        "hdim_q": q.shape[-1],
        "hdim_v": v.shape[-1],
        **{name: _strided(layout) for name, layout in (("q", q), ("k", k), ("v", v), ("o", o))},
        "lse": None if lse is None else _lse(lse),
    }


def _strided(layout: Layout) -> Strided:
    """Return the strides of a (batch, seqlen, nhead, hdim) tensor, or of a packed one without batch."""
    strides = layout.strides[:-1]
    return Strided(0, *([0] * (3 - len(strides))), *strides)


def _lse(lse: Layout) -> Lse:
    """Return the strides of a (batch, nhead, seqlen) log-sum-exp, or of a packed one without batch."""
    strides = lse.strides[:-1]
    return Lse(0, *([0] * (2 - len(strides))), *strides)
