# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_merge`: outputs of attention over disjoint sets of keys, merged into one."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._call.arrays import Array, to_read, to_write
from pyfa_rocm._call.checks import dtype_name, lse_strides, require_like, require_output, strided
from pyfa_rocm._call.merge import LseParts, MergeParams, Parts, merge_to_c
from pyfa_rocm._call.numbers import truth
from pyfa_rocm._call.params import DTYPES
from pyfa_rocm._call.placed import Placed, at_tags
from pyfa_rocm._call.plan import find, keep
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import enter_device, leave_device, stream_for
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["flash_attn_merge", "merge_params", "merged_layouts"]

# Layouts of the results, and structs, by all that they depend on.
_plans: dict[tuple[Any, ...], tuple[dict[str, Layout], Placed]] = {}


def flash_attn_merge(
    outs: Any,
    lses: Any,
    *,
    out: Any = None,
    lse: Any = None,
    out_dtype: str | None = None,
    base2: bool = False,
    accumulate: bool = False,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Merge outputs of attention over disjoint sets of keys into that of all keys.

    Parameters
    ----------
    outs : array, (parts, batch, seqlen, nhead, hdim) or (parts, total, nhead, hdim)
        Partial outputs: float16, bfloat16 or float32, the last dimension contiguous and a multiple of 8. A
        part whose log-sum-exp is -inf is not read.
    lses : array, float32 (parts, batch, nhead, seqlen) or (parts, nhead, total)
        Log-sum-exps of the parts, the last dimension contiguous. A part of +inf outweighs all others.
    out : array, optional
        Where to write the output, shaped like a part. By default a new DeviceArray.
    lse : array, optional
        Where to write its log-sum-exp. By default a new DeviceArray.
    out_dtype : str, optional
        Type of the output: by default that of `out`, or of `outs`. Any parts can give "float32"; other types
        need parts of the same type or of "float32".
    base2 : bool
        True: all log-sum-exps are to base 2. False: they are natural.
    accumulate : bool
        Take one more part from `out` and `lse`, which must be given, and write the result there, as ring
        attention does with each block of keys.
    stream : object, optional
        As in `flash_attn_func`.

    Returns
    -------
    out, lse : array
        `out` and `lse` themselves if given. A row that no part has keys for is 0, with a log-sum-exp of -inf.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: ``fmha_merge`` of native/include/fmha_rocm.h and native/kernels/hip/decode/merge.h.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_merge
    >>> outs = DeviceArray.from_numpy(np.stack([np.full((1, 4, 2, 64), x, np.float32) for x in (1, 5)]))
    >>> lses = DeviceArray.from_numpy(np.log(np.stack([np.full((1, 2, 4), x, np.float32) for x in (3, 1)])))
    >>> out, lse = flash_attn_merge(outs, lses)
    >>> print(out.to_numpy()[0, 0, 0, 0].round(4), np.exp(lse.to_numpy()[0, 0, 0]).round(4))
    2.0 4.0
    """
    base2, accumulate = truth("base2", base2), truth("accumulate", accumulate)
    handle = stream_for(stream, outs)
    parts, part_lses = to_read(outs, "outs", handle), to_read(lses, "lses", handle)
    given = {"out": out, "lse": lse}
    if accumulate and (missing := [name for name, x in given.items() if x is None]):
        raise InvalidArgumentError(f"{missing[0]}: got None, expected an array to accumulate in")
    written = {name: to_write(x, name, handle) for name, x in given.items() if x is not None}
    layouts, structs = merge_plan(parts.layout, part_lses.layout, written, out_dtype, base2, accumulate)
    previous = enter_device(parts.layout.device)
    try:
        for name, layout in layouts.items():
            if name not in written:
                written[name] = given[name] = DeviceArray.allocate(layout, handle)
        addresses = {"outs": parts.address, "lses": part_lses.address}
        addresses |= {name: x.address for name, x in written.items()}
        structs.launch(library.load()[1].fmha_merge, addresses, handle)
    finally:
        leave_device(previous)
    return given["out"], given["lse"]


def merge_plan(
    outs: Layout,
    lses: Layout,
    written: dict[str, Array],
    out_dtype: str | None,
    base2: bool,
    accumulate: bool,
) -> tuple[dict[str, Layout], Placed]:
    """Look for the layouts of the results and the structs of a merge, or check it and make them."""
    given = tuple((name, x.layout) for name, x in written.items())
    key = (outs, lses, given, out_dtype, base2, accumulate)
    plan = find(_plans, key)
    if plan is None:
        layouts = merged_layouts(outs, lses, written, out_dtype)
        plan = layouts, _placed(outs, lses, layouts, base2, accumulate)
        keep(_plans, key, plan)
    return plan


def _placed(outs: Layout, lses: Layout, written: dict[str, Layout], base2: bool, accumulate: bool) -> Placed:
    layouts = {"outs": outs, "lses": lses, **written}

    def make(tags: dict[str, int]) -> tuple[Any, ...]:
        at = at_tags(layouts, tags)
        return (merge_to_c(merge_params(at["outs"], at["lses"], at, base2, accumulate)),)

    return Placed(make, layouts)


def merged_layouts(
    outs: Layout, lses: Layout, written: dict[str, Array], out_dtype: str | None
) -> dict[str, Layout]:
    """Check a merge of partial outputs; return the layouts of "out" and "lse"."""
    _check_parts(outs, lses)
    dtype = written["out"].layout.dtype if "out" in written else outs.dtype
    if out_dtype is not None:
        dtype = dtype_name(out_dtype)
        if dtype not in DTYPES:
            raise InvalidArgumentError(f"out_dtype: got {out_dtype!r}, expected one of {', '.join(DTYPES)}")
    shapes = {"out": (outs.shape[1:], dtype), "lse": (lses.shape[1:], "float32")}
    layouts = {
        name: written[name].layout if name in written else contiguous(shape, kind, outs.device)
        for name, (shape, kind) in shapes.items()
    }
    if "out" in written:
        require_output(layouts["out"], outs.shape[1:], dtype, out_dtype, outs)
    if "lse" in written:
        require_like("lse", layouts["lse"], lses.shape[1:], "float32", "lses", outs)
    return layouts


def _check_parts(outs: Layout, lses: Layout) -> None:
    """Raise unless partial outputs and log-sum-exps fit together."""
    if len(outs.shape) not in (4, 5):
        raise InvalidArgumentError(
            f"outs: got shape {outs.shape}, expected 5 dimensions (parts, batch, seqlen, nhead, hdim), or 4 "
            "(parts, total, nhead, hdim)"
        )
    if not outs.shape[0]:
        raise InvalidArgumentError(f"outs: got shape {outs.shape}, expected 1 part or more")
    require_like("outs", outs, outs.shape, outs.dtype, "outs", outs)
    *first, seqlen, nhead, _ = outs.shape
    require_like("lses", lses, (*first, nhead, seqlen), "float32", "outs", outs)


def merge_params(
    outs: Array, lses: Array, written: dict[str, Array], base2: bool, accumulate: bool
) -> MergeParams:
    """Return the parameters of the C call. Packed sequences are one batch."""
    layout, out, lse = outs.layout, written["out"], written["lse"]
    *first, seqlen, nhead, hdim = layout.shape
    steps = layout.strides[:-1]
    lse_steps = lses.layout.strides[:-1]
    no_batch = (0,) if len(first) == 1 else ()
    return MergeParams(
        dtype=layout.dtype, o_dtype=out.layout.dtype, parts=first[0], batch=1 if no_batch else first[1],
        seqlen=seqlen, nhead=nhead, hdim=hdim, base2=bool(base2), accumulate=bool(accumulate),
        o_parts=Parts(outs.address, steps[0], *no_batch, *steps[1:]),
        lse_parts=LseParts(lses.address, lse_steps[0], *no_batch, *lse_steps[1:]),
        o=strided(out.layout)._replace(data=out.address),
        lse=lse_strides(lse.layout)._replace(data=lse.address),
    )  # fmt: skip
