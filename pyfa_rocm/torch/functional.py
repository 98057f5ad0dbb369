# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_func` and `flash_attn_varlen_func` on torch tensors, by way of torch operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pyfa_rocm._call.keywords import require_known, spelled_out
from pyfa_rocm._call.params import Keywords
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.torch import _autograd, _operators
from pyfa_rocm.torch._arguments import length, output_type, window
from pyfa_rocm.torch._schema import Arguments, Lengths
from pyfa_rocm.torch._tensors import autocast, real, require_tensors
from pyfa_rocm.torch.kvcache import attend_paged

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]

_MOST_INT64, _SIZE_UINT64 = 2**63 - 1, 2**64


@spelled_out
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    out: torch.Tensor | None = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `pyfa_rocm.flash_attn_func`, but of torch tensors, to torch tensors, and compilable.

    All other parameters are as there. The stream is torch's current one; choose another with
    ``torch.cuda.stream``.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        float16, bfloat16, float32, or whichever of float8_e4m3fnuz and float8_e4m3fn the device has, on a
        ROCm device ("cuda" in PyTorch), or on "cpu" if the software device is in use. Any layout whose last
        dimension is contiguous and whose other strides are multiples of 16 bytes, 0 included for k and v: it
        is not copied. Under autocast, q, k, v and bias are cast to its type, except 8-bit floats.
    k : torch.Tensor, (batch, seqlen_k, nhead_k, hdim)
        As q.
    v : torch.Tensor, (batch, seqlen_k, nhead_k, hdim_v)
        As k.
    alibi_slopes : torch.Tensor, optional, float32 (nhead_q) or (batch, nhead_q)
        As there. They have no gradient.
    deterministic : bool
        Give the gradient of q the same bits in each run. That may take more memory and time.
        ``torch.use_deterministic_algorithms`` asks for it too.
    return_attn_probs : bool
        Whether to return the log-sum-exp and the probabilities too. Only for tests: it takes memory for each
        pair of query and key, and cannot be part of a compiled graph.
    bias : torch.Tensor, optional, (batch, nhead_q, seqlen_q, seqlen_k)
        As there.
    philox : torch.Tensor or (int, int), optional
        Seed and offset of dropout's random numbers: two integers below 2**64, or int64 or uint64 (2) on q's
        device. Without it, each call draws them from the default generator of q's device: as with torch's
        own dropout, ``torch.manual_seed`` decides them, and a replayed graph draws new ones.
    out_dtype : torch.dtype or str, optional
        Type of the output.
    sinks : torch.Tensor, optional, float32 (nhead_q)
        As there. They have no gradient; q, k and v have theirs.
    out : torch.Tensor, optional
        Where to write O. It must not overlap any other tensor. Such a call has no gradients.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen_q, nhead_q, hdim_v)
        Contiguous; `out` itself if given.
    lse : torch.Tensor, float32 (batch, nhead_q, seqlen_q)
        Only with `return_lse` or `return_attn_probs`.
    S_dmask : torch.Tensor, float32 (batch, nhead_q, seqlen_q, seqlen_k)
        Only with `return_attn_probs`.

    Raises
    ------
    TypeError
        An input is not a torch tensor.
    InvalidArgumentError
        An argument, or a combination of them, makes no sense: shapes, types, or devices that differ.
    UnsupportedError
        The arguments make sense, but no kernel here can do it; or a tensor requires a gradient, and no kernel
        has it, as the call itself says. It is a NotImplementedError.
    HipError
        The HIP runtime refused; or, for CPU tensors, the software device found an error in what a kernel did.

    Notes
    -----
    The operator is ``torch.ops.pyfa_rocm.fmha_fwd`` (with `out`, ``fmha_fwd_out``), with a fake kernel:
    ``torch.compile(fullgraph=True)`` and ``torch.export`` keep it whole, with symbolic sizes too. A capture
    into a graph needs a call of the same kind before it, as compiling and PyTorch's own warm-up do.

    The gradients of q, k, v and bias are those of ``torch.ops.pyfa_rocm.fmha_bwd`` (``fmha_bwd_out``), which
    does for this module what `pyfa_rocm.flash_attn_bwd` does. Kept for it are q, k, v, O and the
    log-sum-exp. The log-sum-exp, if returned, has a gradient too, up to hdim_v 248, or
    504 where `flash_attn_bwd` takes head dims up to 512. There are no second
    derivatives, and none in forward mode.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.torch import flash_attn_func
    >>> q, k, v = torch.ones(3, 1, 64, 2, 128, dtype=torch.float16)
    >>> flash_attn_func(q, k, v, causal=True).shape
    torch.Size([1, 64, 2, 128])
    """
    require_tensors(q=q, k=k, v=v)
    q, k, v = autocast(q, k, v)
    arguments = _arguments(
        "flash_attn_func", q, ours, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
        window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
        deterministic=deterministic, return_attn_probs=return_attn_probs,
    )  # fmt: skip
    if return_attn_probs:
        return _probabilities(q, k, v, out, None, arguments)
    if out is None:
        result, lse = _operators.fmha_fwd(q, k, v, **arguments)
    else:
        result, lse = out, _operators.fmha_fwd_out(q, k, v, out, **arguments)
    return (result, lse) if ours.get("return_lse") else result


@spelled_out
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
    *,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `pyfa_rocm.flash_attn_varlen_func`, but of torch tensors, to torch tensors, and compilable.

    All other parameters are as in `flash_attn_func` of this module, and as there.

    Parameters
    ----------
    q : torch.Tensor, (total_q, nhead_q, hdim)
        All queries.
    k : torch.Tensor, (total_k, nhead_k, hdim)
        All keys.
    v : torch.Tensor, (total_k, nhead_k, hdim_v)
        All values.
    cu_seqlens_q, cu_seqlens_k : torch.Tensor, int32 (batch + 1)
        Where each sequence starts, and the end, on q's device. Values of CPU tensors are checked.
    max_seqlen_q, max_seqlen_k : int
        Upper bounds of the lengths. In a compiled graph they are symbols: it serves other lengths too.
    block_table : torch.Tensor, optional, int32 (batch, max_pages)
        k and v are caches, (pages, page_size, nhead_k, hdim), as in `pyfa_rocm.flash_attn_varlen_func`.
    seqused_q, seqused_k : torch.Tensor, optional, int32 (batch)
        Lengths in use. Rows beyond them are of no sequence.
    bias : torch.Tensor, optional, (nhead_q, total_q, max_seqlen_k)
        As there.

    Returns
    -------
    out : torch.Tensor, (total_q, nhead_q, hdim_v)
        Contiguous, 0 in rows of no sequence; `out` itself if given, which keeps them.
    lse : torch.Tensor, float32 (nhead_q, total_q)
        -inf for rows of no sequence; only with `return_lse` or `return_attn_probs`.
    S_dmask : torch.Tensor, float32 (batch, nhead_q, max_seqlen_q, max_seqlen_k)
        Only with `return_attn_probs`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    The operator is ``torch.ops.pyfa_rocm.fmha_varlen_fwd`` (with `out`, ``fmha_varlen_fwd_out``), with
    `block_table` ``fmha_decode`` (``fmha_decode_out``). Gradients of rows of no sequence are 0, whatever the
    gradient of O holds there.

    Examples
    --------
    >>> import torch
    >>> from pyfa_rocm.torch import flash_attn_varlen_func
    >>> q, k, v = torch.ones(3, 100, 2, 128, dtype=torch.bfloat16)
    >>> cu_seqlens = torch.tensor([0, 30, 100], dtype=torch.int32)
    >>> flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, 70, 70, causal=True).shape
    torch.Size([100, 2, 128])
    """
    require_tensors(q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    if block_table is None:
        q, k, v = autocast(q, k, v)
    else:
        (q,) = autocast(q)  # caches are never copied
    lengths = {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_q": seqused_q,
        "seqused_k": seqused_k,
        "max_seqlen_q": length("max_seqlen_q", max_seqlen_q),
        "max_seqlen_k": length("max_seqlen_k", max_seqlen_k),
    }
    arguments = _arguments(
        "flash_attn_varlen_func", q, ours, dropout_p=dropout_p, softmax_scale=softmax_scale,
        causal=causal, window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
        deterministic=deterministic, return_attn_probs=return_attn_probs,
    )  # fmt: skip
    if block_table is not None:
        return attend_paged(q, k, v, block_table, lengths, arguments, out, return_attn_probs)
    if return_attn_probs:
        return _probabilities(q, k, v, out, lengths, arguments)
    if out is None:
        result, lse = _operators.fmha_varlen_fwd(q, k, v, **lengths, **arguments)
    else:
        result, lse = out, _operators.fmha_varlen_fwd_out(q, k, v, out, **lengths, **arguments)
    return (result, lse) if ours.get("return_lse") else result


def _arguments(
    function: str,
    q: torch.Tensor,
    ours: Mapping[str, Any],
    *,
    causal: Any,
    dropout_p: float,
    window_size: Any,
    deterministic: bool,
    return_attn_probs: bool,
    **own: Any,
) -> dict[str, Any]:
    """Return the operators' arguments, by name, for the options of a public function.

    Arguments at their defaults are mostly left out: torch takes a fifth of a microsecond for each argument.
    """
    require_known(function, ours)
    arguments = {name: value for name, value in {**own, **ours}.items() if value is not None}
    for name in ("alibi_slopes", "bias", "sinks"):
        if name in arguments:
            require_tensors(**{name: arguments[name]})
    if "bias" in arguments:
        (arguments["bias"],) = autocast(arguments["bias"])
    for name in ("softmax_scale", "softcap"):
        if name in arguments:
            arguments[name] = real(name, arguments[name])
    dropout_p = real("dropout_p", dropout_p)
    if causal:
        arguments["causal"] = True
    if deterministic:
        arguments["deterministic"] = True
    left, right = window(window_size)
    if left != -1 or right != -1:
        arguments["window_left"], arguments["window_right"] = left, right
    philox = arguments.pop("philox", None)
    if dropout_p:
        arguments["dropout_p"] = dropout_p
        arguments |= _philox_state(philox, q.device)
    if "out_dtype" in arguments:
        arguments["out_dtype"] = output_type(arguments["out_dtype"])
    if "kernel" in arguments:
        arguments["candidate"] = arguments.pop("kernel")
    if return_attn_probs:
        arguments["return_lse"] = True
    return arguments


def _probabilities(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    lengths: dict[str, Any] | None,
    arguments: dict[str, Any],
) -> Any:
    if torch.compiler.is_compiling():
        raise UnsupportedError(
            "return_attn_probs: got True in a compiled graph, expected False: no operator has them; "
            "one can return the log-sum-exp (return_lse=True)"
        )
    if torch._C._are_functorch_transforms_active():
        raise UnsupportedError(
            "return_attn_probs: got True inside a transform of torch.func, expected False: no operator has "
            "them; one can return the log-sum-exp (return_lse=True)"
        )
    of_lengths = None if lengths is None else Lengths(**lengths)
    given = (arguments.get(name) for name in ("bias", "alibi_slopes", "sinks"))
    if not _autograd.is_differentiated(q, k, v, *given):
        return _operators.run_with_s_dmask(q, k, v, out, of_lengths, Arguments(**arguments))
    named = (lengths or {}) | arguments
    if out is not None:
        operator = _operators.fmha_fwd_out if lengths is None else _operators.fmha_varlen_fwd_out
        return operator(q, k, v, out, **named)  # which refuses
    operator = _operators.fmha_fwd if lengths is None else _operators.fmha_varlen_fwd
    results = operator(q, k, v, **named)
    with torch.no_grad():
        *_, s_dmask = _operators.run_with_s_dmask(q, k, v, None, of_lengths, Arguments(**arguments))
    return (*results, s_dmask)


def _philox_state(philox: Any, device: torch.device) -> dict[str, Any]:
    """Return the random state of a call that drops, as the operators' arguments.

    Without one given, seed and offset are drawn on the device by its default generator, so that
    ``torch.manual_seed`` decides them, a captured graph draws new ones whenever it is replayed, and the host
    waits for nothing.
    """
    if philox is None:
        return {"philox": torch.randint(_MOST_INT64, (2,), dtype=torch.int64, device=device)}
    if isinstance(philox, torch.Tensor):
        return {"philox": philox}
    if not isinstance(philox, (tuple, list)) or len(philox) != 2:
        raise InvalidArgumentError(
            f"philox: got {philox!r}, expected (seed, offset), a tensor of these two, or None"
        )
    seed, offset = philox
    return {"philox_seed": _signed(seed), "philox_offset": _signed(offset)}


def _signed(number: int) -> int:
    """Return an unsigned number of 64 bits as the signed one of the same bits, which torch can pass on."""
    if not 0 <= number < _SIZE_UINT64:
        raise InvalidArgumentError(f"philox: got {number}, expected two integers from 0 to 2**64 - 1")
    return number if number <= _MOST_INT64 else number - _SIZE_UINT64
