# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_quantize`: 8-bit floats of 16 bits, with their scales, rotated first if that is wanted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pyfa_rocm._call.arrays import Array, to_read, to_write
from pyfa_rocm._call.checks import dtype_name, require_like, strided
from pyfa_rocm._call.numbers import to_integer, truth
from pyfa_rocm._call.params import CATALOGUE_TYPES, FP8
from pyfa_rocm._call.quantize import Descale, QuantizeParams, require_unit
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import devices, enter_device, leave_device, stream_for
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.fmha import fmha_quantize, fmha_quantize_workspace_bytes

__all__ = ["flash_attn_quantize"]


def flash_attn_quantize(
    x: Any,
    *,
    scale_unit: str | None = "head",
    block_tokens: int | None = None,
    heads_per_scale: int = 1,
    hadamard: bool = False,
    descale: Any = None,
    out: Any = None,
    out_descale: Any = None,
    out_dtype: str | None = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Quantise queries, keys or values to 8-bit floats.

    Parameters
    ----------
    x : array, (batch, seqlen, nhead, hdim) or (total, nhead, hdim)
        The array to quantise: float16 or bfloat16, the last dimension contiguous, a multiple of 8 up to 512.
    scale_unit : {"tensor", "head", "block"}, optional
        Elements that share a scale: all of them; those of a head of a batch element; or those of
        `block_tokens` tokens of such a head. None: x is rotated only, and stays in its type.
    block_tokens : int, optional
        With "block" only, and required there.
    heads_per_scale : int
        Neighbouring heads that share a scale.
    hadamard : bool
        Multiply each row by the Hadamard matrix of hdim, over sqrt(hdim), first: hdim is a power of two, 8 to
        256. Do so with queries and keys alike: their scores stay the same, but for rounding.
    descale : array, float32, optional
        Scales to use, shaped as those that are returned. By default they are computed.
    out : array, optional
        The array for the 8-bit floats, shaped like x. By default a new DeviceArray.
    out_descale : array, float32, optional
        The array for computed scales. By default a new DeviceArray. Without elements in x it is not written.
    out_dtype : str, optional
        By default that of `out`, or the device's 8-bit float.
    stream : object, optional
        As in `flash_attn_func`.

    Returns
    -------
    out, descale : array
        An element of x, or of its rotation, is about descale * out. descale is (1,) for "tensor", (batch,
        nhead / heads_per_scale) for "head", with a last dimension of blocks for "block"; without batch if x
        has none; None for scale_unit None. Without elements in x it is 1.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: ``fmha_quantize`` of native/include/fmha_rocm.h and native/kernels/hip/quantize/quantize.h.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_quantize
    >>> x = DeviceArray.from_numpy(np.full((1, 4, 2, 64), 3, np.float16))
    >>> out, descale = flash_attn_quantize(x)
    >>> print((out.to_numpy().astype(np.float32)[0, 0] * descale.to_numpy()[0, :, None])[:, 0])
    [3. 3.]
    """
    hadamard = truth("hadamard", hadamard)
    require_unit(scale_unit)
    handle = stream_for(stream, x)
    source = to_read(x, "x", handle)
    layout = source.layout
    if len(layout.shape) not in (3, 4):
        raise InvalidArgumentError(
            f"x: got shape {layout.shape}, expected (batch, seqlen, nhead, hdim) or (total, nhead, hdim)"
        )
    if descale is not None and out_descale is not None:
        raise InvalidArgumentError("out_descale: got an array, expected None with descale, which is read")
    heads = to_integer("heads_per_scale", heads_per_scale)
    blocks = None if block_tokens is None else to_integer("block_tokens", block_tokens, 1)
    shape = _scales_shape(layout, scale_unit, blocks, heads)
    previous = enter_device(layout.device)
    try:
        target = _out(layout, scale_unit, out, _dtype(layout, scale_unit, out, out_dtype), handle)
        scales = _scales(layout, shape, descale, out_descale, handle)
        params = QuantizeParams(
            dtype=layout.dtype, out_dtype=target.layout.dtype, **_sizes(layout), x=_strided(source),
            out=_strided(target), descale=None if scales is None else _descale(scales, scale_unit, layout),
            scale_unit=scale_unit, heads_per_scale=heads if scale_unit in ("head", "block") else 0,
            block_tokens=blocks or 0, given=descale is not None, hadamard=hadamard,
        )  # fmt: skip
        nbytes = fmha_quantize_workspace_bytes(params)
        if nbytes:
            workspace = DeviceArray.allocate(contiguous((nbytes,), "uint8", layout.device), handle)
            params = replace(params, workspace=workspace.address, workspace_bytes=nbytes)
        fmha_quantize(params, handle)
    finally:
        leave_device(previous)
    given = descale if descale is not None else out_descale
    return (target if out is None else out), (scales if given is None else given)


def _scales_shape(x: Layout, unit: str | None, block: int | None, heads: int) -> tuple[int, ...] | None:
    """Return the shape of the scales; None if there are none."""
    if (block is not None) != (unit == "block"):
        expected = "a number of tokens with scale_unit='block'" if block is None else "None without 'block'"
        raise InvalidArgumentError(f"block_tokens: got {block}, expected {expected}")
    if unit is None:
        return None
    if unit == "tensor":
        return (1,)
    *batch, seqlen, nhead, _ = x.shape
    if heads < 1 or nhead % heads:
        raise InvalidArgumentError(f"heads_per_scale: got {heads}, expected a divisor of nhead = {nhead}")
    shape = (*batch, nhead // heads)
    return shape if block is None else (*shape, -(-seqlen // block))


def _dtype(x: Layout, unit: str | None, out: Any, wanted: str | None) -> str | None:
    """Return the type of the result; None: that of `out`."""
    if wanted is not None:
        _require_type("out_dtype", dtype_name(wanted), x, unit)
        return dtype_name(wanted)
    if out is not None:
        return None
    if unit is None:
        return x.dtype
    arch = devices()[x.device].arch
    facts = library.known_archs().get(arch, {"dtypes": ()})
    for dtype in FP8:
        if CATALOGUE_TYPES[dtype] in facts["dtypes"]:
            return dtype
    raise InvalidArgumentError(f"out_dtype: got None, expected one of {', '.join(FP8)}: {arch} has none")


def _require_type(name: str, dtype: str, x: Layout, unit: str | None) -> None:
    types = (x.dtype,) if unit is None else FP8
    if dtype not in types:
        raise InvalidArgumentError(
            f"{name}: got {dtype}, expected {' or '.join(types)} with scale_unit={unit!r}"
        )


def _out(x: Layout, unit: str | None, out: Any, dtype: str | None, handle: int) -> Array:
    if out is None:
        assert dtype is not None
        return DeviceArray.allocate(contiguous(x.shape, dtype, x.device), handle)
    target = to_write(out, "out", handle)
    require_like("out", target.layout, x.shape, dtype or target.layout.dtype, "x", x)
    _require_type("out", target.layout.dtype, x, unit)
    return target


def _scales(
    x: Layout, shape: tuple[int, ...] | None, descale: Any, out_descale: Any, handle: int
) -> Array | None:
    if shape is None:
        if descale is not None or out_descale is not None:
            raise InvalidArgumentError("descale: got an array, expected None with scale_unit=None")
        return None
    if descale is None and out_descale is None:
        if not math.prod(x.shape):
            return DeviceArray.from_numpy(np.ones(shape, np.float32), x.device)  # no kernel writes it
        return DeviceArray.allocate(contiguous(shape, "float32", x.device), handle)
    if descale is not None:
        name, scales = "descale", to_read(descale, "descale", handle)
    else:
        name, scales = "out_descale", to_write(out_descale, "out_descale", handle)
    require_like(name, scales.layout, shape, "float32", "x", x)
    return scales


def _sizes(x: Layout) -> dict[str, int]:
    *batch, seqlen, nhead, hdim = x.shape
    return {"batch": batch[0] if batch else 1, "seqlen": seqlen, "nhead": nhead, "hdim": hdim}


def _strided(array: Array) -> Any:
    return strided(array.layout)._replace(data=array.address)


def _descale(scales: Array, unit: str | None, x: Layout) -> Descale:
    strides = [] if unit == "tensor" else list(scales.layout.strides)
    if len(x.shape) == 3:
        strides = [0, *strides]
    return Descale(scales.address, *[*strides, 0, 0, 0][:3])
