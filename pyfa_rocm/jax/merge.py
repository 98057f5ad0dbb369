# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_merge` for JAX: outputs of attention over disjoint sets of keys, merged into one."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._call.checks import output_dtype, require_like
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.jax._merged import TracedMerge
from pyfa_rocm.jax._operands import Arrays, require_static
from pyfa_rocm.jax._primitive import alike, bind
from pyfa_rocm.jax._traced import Result

__all__ = ["flash_attn_merge"]


def flash_attn_merge(
    outs: Any,
    lses: Any,
    *,
    out: Any = None,
    lse: Any = None,
    out_dtype: Any = None,
    base2: bool = False,
) -> tuple[Any, Any]:
    """Like `pyfa_rocm.flash_attn_merge`, but of JAX arrays: `out` and `lse` are one more part, if given.

    Parameters
    ----------
    outs : array, (parts, batch, seqlen, nhead, hdim) or (parts, total, nhead, hdim)
        Partial outputs: float16, bfloat16 or float32, with an hdim that is a multiple of 8.
    lses : array, float32 (parts, batch, nhead, seqlen) or (parts, nhead, total)
        Their log-sum-exps.
    out, lse : array, optional
        One more part, and its log-sum-exp, as ring attention has of the keys before. The results have the
        memory of these if the compiled function may take it: if they are donated, or made in it.
    out_dtype : str or dtype, optional
        Type of the output: by default that of `out`, or of `outs`. Any parts can become float32; another type
        needs parts of that type or of float32.
    base2 : bool
        Whether all log-sum-exps are of base 2, not natural.

    Returns
    -------
    out, lse : array
        A row that no part has keys for is 0, with a log-sum-exp of -inf.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`. Any derivative is a NotImplementedError.

    Notes
    -----
    Source: ``fmha_merge`` of native/include/fmha_rocm.h, called by native/jax.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from pyfa_rocm.jax import flash_attn_merge
    >>> outs = jnp.stack([jnp.full((1, 4, 2, 64), x) for x in (1.0, 5.0)])
    >>> lses = jnp.log(jnp.stack([jnp.full((1, 2, 4), x) for x in (3.0, 1.0)]))
    >>> out, lse = flash_attn_merge(outs, lses)
    >>> print(out[0, 0, 0, 0].round(4), jnp.exp(lse[0, 0, 0]).round(4))
    2.0 4.0
    """
    require_static({"base2": base2})
    operands = Arrays()
    for name, array in (("outs", outs), ("lses", lses)):
        if array is None:
            raise TypeError(f"{name}: got NoneType, expected a JAX or NumPy array")
        operands.add(name, array)
    if (out is None) != (lse is None):
        missing = "out" if out is None else "lse"
        raise InvalidArgumentError(f"{missing}: got None, expected both out and lse, or neither")
    operands.add("o", out)
    operands.add("lse", lse)
    merged, total = bind(_merge_call(operands, out_dtype, base2), alike(operands.values()))
    return merged, total


def _merge_call(operands: Arrays, out_dtype: Any, base2: bool) -> TracedMerge:
    """Check a merge, and return it as JAX traces it."""
    layouts = operands.layouts
    outs = layouts["outs"]
    if len(outs.shape) not in (4, 5) or not outs.shape[0]:
        raise InvalidArgumentError(
            f"outs: got shape {outs.shape}, expected (parts, batch, seqlen, nhead, hdim) or (parts, total, "
            "nhead, hdim), with 1 part or more"
        )
    *first, seqlen, nhead, hdim = outs.shape
    lse_shape = (*first[1:], nhead, seqlen)
    require_like("lses", layouts["lses"], (first[0], *lse_shape), "float32", "outs", outs)
    accumulate = "o" in layouts
    dtype = outs.dtype if out_dtype is None else output_dtype(None, out_dtype, outs)
    if accumulate:
        dtype = layouts["o"].dtype if out_dtype is None else dtype
        require_like("out", layouts["o"], outs.shape[1:], dtype, "outs", outs)
        require_like("lse", layouts["lse"], lse_shape, "float32", "lses", outs)
    fields = {
        "dtype": outs.dtype,
        "o_dtype": dtype,
        "parts": first[0],
        "batch": first[1] if len(first) > 1 else 1,
        "seqlen": seqlen,
        "nhead": nhead,
        "hdim": hdim,
        "base2": bool(base2),
        "accumulate": accumulate,
    }
    results = (Result("o", outs.shape[1:], dtype), Result("lse", lse_shape, "float32"))
    return TracedMerge(tuple(operands.arrays), tuple(fields.items()), results)
