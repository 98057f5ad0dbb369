# SPDX-License-Identifier: MIT OR Apache-2.0
"""One call of an operator, as the rest of the package describes calls: for real tensors and fakes alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.plan import Request
from pyfa_rocm._runtime.tensor import Tensor
from pyfa_rocm.torch._schema import Lengths, Options
from pyfa_rocm.torch._tensors import dtype_name

__all__ = ["Tensors", "request_of", "tensors_of"]

Tensors = dict[str, "torch.Tensor | None"]
_UINT64 = 2**64 - 1


def tensors_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Lengths | None,
    options: Options,
) -> Tensors:  # fmt: skip
    """Return all tensors of a call by the names of their arguments, q first."""
    tensors: Tensors = {
        "q": q, "k": k, "v": v, "out": out, "bias": options.bias, "alibi_slopes": options.alibi_slopes,
        "philox": options.philox,
    }  # fmt: skip
    if lengths is not None:
        tensors |= zip(Lengths._fields[:4], lengths[:4], strict=True)
    return tensors


def request_of(
    tensors: Tensors, describe: Callable[[torch.Tensor], Tensor], lengths: Lengths | None, options: Options,
    *, with_probabilities: bool = False,
) -> Request:  # fmt: skip
    """Return a call as the public functions of `pyfa_rocm` would have made it."""
    described = {name: describe(tensor) for name, tensor in tensors.items() if tensor is not None}
    q, k, v = (described[name] for name in "qkv")
    out = described.get("out")
    return Request(
        q, k, v, None if out is None else out.layout, _optional(described, lengths is not None, options),
        _plain(lengths, options, with_probabilities),
    )  # fmt: skip


def _optional(described: dict[str, Tensor], is_varlen: bool, o: Options) -> OptionalArguments | None:
    descales = (o.q_descale, o.k_descale, o.v_descale)
    present = len(described) > 3 + ("out" in described) or o.dropout_p or descales != (None, None, None)
    if not present:
        return None
    philox: Any = described.get("philox")
    if philox is None:
        philox = (o.philox_seed & _UINT64, o.philox_offset & _UINT64)
    optional = OptionalArguments(
        described.get("bias"), described.get("alibi_slopes"), o.dropout_p, philox, descales, 0
    )
    if is_varlen:
        for name in Lengths._fields[:4]:
            optional.add(name, described.get(name), 0, name)
    return optional


def _plain(lengths: Lengths | None, o: Options, with_probabilities: bool) -> tuple[Any, ...]:
    """Return what `pyfa_rocm.attention` and `pyfa_rocm.varlen` make plans of."""
    out_dtype = None if o.out_dtype is None else dtype_name(o.out_dtype)
    options = (
        o.softmax_scale, o.causal, (o.window_left, o.window_right), o.top_left, o.dropout_p, o.softcap,
        out_dtype, o.return_lse, with_probabilities, o.candidate,
    )  # fmt: skip
    return options if lengths is None else (*options, lengths.max_seqlen_q, lengths.max_seqlen_k)
