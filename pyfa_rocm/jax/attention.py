# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_func` for JAX: attention of sequences of equal lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyfa_rocm._call.keywords import spelled_out
from pyfa_rocm._call.params import Keywords
from pyfa_rocm.jax._gradient import attend
from pyfa_rocm.jax._operands import Operands, static_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["flash_attn_func"]


@spelled_out
def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `pyfa_rocm.flash_attn_func`, but of JAX arrays, and under JAX's transformations.

    Arrays may be traced; every other argument is a Python value that is known while tracing.

    Parameters
    ----------
    q : array, (batch, seqlen_q, nhead_q, hdim)
        Float16, bfloat16, float32, or whichever of float8_e4m3fnuz and float8_e4m3fn the device has, on the
        platform rocm, or cpu for the software device.
    k : array, (batch, seqlen_k, nhead_k, hdim)
        As q. nhead_q is a multiple of nhead_k.
    v : array, (batch, seqlen_k, nhead_k, hdim_v)
        As k.
    dropout_p, softmax_scale, causal, window_size, softcap, top_left, kernel
        As in `pyfa_rocm.flash_attn_func`.
    deterministic : bool
        Whether the gradient of q has the same bits from run to run; see `pyfa_rocm.flash_attn_bwd`.
    alibi_slopes : array, optional, float32 (nhead_q) or (batch, nhead_q)
        As in `pyfa_rocm.flash_attn_func`.
    return_attn_probs : bool
        Must be false; it keeps the place that flash-attention gives it.
    bias : array, optional, (batch, nhead_q, seqlen_q, seqlen_k)
        Added to the scaled scores; q's dtype. A size of 1 in place of any but the last is broadcast.
    philox : array or (int, int), optional
        Random state of dropout, required with it: uint32 (4,) as `philox_of_key` makes it, so that each call
        of a compiled step draws new numbers; or two integers below 2**64, seed and offset, which are compiled
        in.
    out_dtype : str or dtype, optional
        Type of O; q's by default, and bfloat16 for 8-bit floats.
    q_descale, k_descale, v_descale : float, optional
        Only for 8-bit floats: the factor on each element of q, k, v; 1 by default.
    return_lse : bool
        Whether to return the log-sum-exp too.
    sinks : array, optional, float32 (nhead_q)
        As in `pyfa_rocm.flash_attn_func`. They have no gradient; q, k and v have theirs.

    Returns
    -------
    out : array, (batch, seqlen_q, nhead_q, hdim_v)
        A query row that sees no key gives 0.
    lse : array, float32 (batch, nhead_q, seqlen_q)
        Natural logarithm, of the softmax before dropout; only with `return_lse`.

    Raises
    ------
    TypeError
        An argument is not an array.
    InvalidArgumentError
        An argument, or a combination of them, makes no sense.
    UnsupportedError
        The arguments make sense, but cannot be done here; or cannot be differentiated: the message says what
        can.
    NotImplementedError
        A second derivative was asked for, or one in forward mode.
    jax.errors.JaxRuntimeError
        When the call runs: no kernel does this (UNIMPLEMENTED: the message says what would work), or the HIP
        runtime refused. (A ValueError with that text if the compiled function has run before.)

    Notes
    -----
    ``jax.vmap`` maps any axis without a copy, except a last one. Mapped axes become part of the batch if the
    strides of all arrays allow that; otherwise, and always with dropout, the kernel is launched once for each
    index of an axis, within one custom call. So ``vmap`` gives what a loop would give, dropout included: an
    unmapped `philox` is the same for every element.

    q, k, v and bias have gradients, of their dtypes; and the log-sum-exp may be differentiated as well as the
    output, which takes eight more columns of v. When a differentiated call is traced, the library is asked
    whether it has a kernel, so a device must be there. `kernel` is forward's.

    Source: ``fmha_fwd`` and ``fmha_bwd`` of native/include/fmha_rocm.h, called by native/jax.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from pyfa_rocm.jax import flash_attn_func
    >>> q, k, v = (jnp.ones((1, 64, 2, 128), jnp.bfloat16) for _ in range(3))
    >>> jax.jit(lambda q, k, v: flash_attn_func(q, k, v, causal=True))(q, k, v).shape
    (1, 64, 2, 128)
    """
    options = static_options(
        "flash_attn_func", ours, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
        window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
        return_attn_probs=return_attn_probs, deterministic=deterministic,
    )  # fmt: skip
    operands = Operands(options, q=q, k=k, v=v)
    results = attend(operands.traced(operands.check(), deterministic=deterministic), operands.values())
    return tuple(results) if options.wants_lse else results[0]
