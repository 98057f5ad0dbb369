# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators ``torch.ops.pyfa_rocm.fmha_…``: defined, and joined to what runs for each kind of device.

They are defined with `torch.library.Library` rather than `torch.library.custom_op`, whose wrappers make the
way to a kernel three times as long (measured: 17 µs against 6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyfa_rocm.torch import _fake, _run
from pyfa_rocm.torch._schema import SCHEMAS, Lengths, Options

__all__ = ["fmha_fwd", "fmha_fwd_out", "fmha_varlen_fwd", "fmha_varlen_fwd_out"]

_Run = Callable[[Any, Any, Any, Any, "Lengths | None", Options], tuple[torch.Tensor, torch.Tensor]]
_NAMESPACE = "pyfa_rocm"
_library = torch.library.Library(_NAMESPACE, "DEF")
_LENGTHS = len(Lengths._fields)


def _kernels(run: _Run) -> dict[str, Callable[..., Any]]:
    """Return the functions behind the operators, by name; torch leaves out arguments that are at defaults."""

    def fmha_fwd(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return run(q, k, v, None, None, Options(*rest))

    def fmha_fwd_out(q: Any, k: Any, v: Any, out: Any, *rest: Any) -> Any:
        return run(q, k, v, out, None, Options(*rest))[1]

    def fmha_varlen_fwd(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return run(q, k, v, None, Lengths(*rest[:_LENGTHS]), Options(*rest[_LENGTHS:]))

    def fmha_varlen_fwd_out(q: Any, k: Any, v: Any, out: Any, *rest: Any) -> Any:
        return run(q, k, v, out, Lengths(*rest[:_LENGTHS]), Options(*rest[_LENGTHS:]))[1]

    functions = (fmha_fwd, fmha_fwd_out, fmha_varlen_fwd, fmha_varlen_fwd_out)
    return {function.__name__: function for function in functions}


def _define() -> None:
    # The compiler may not change strides on the way: rows have to stay contiguous, and copies cost. Older
    # versions keep their order alone.
    strides = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    for name, schema in SCHEMAS.items():
        _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, strides))
    for key in ("CPU", "CUDA"):
        for name, kernel in _kernels(_run.run).items():
            _library.impl(name, kernel, key)
    for name, kernel in _kernels(_fake.run).items():
        torch.library.register_fake(f"{_NAMESPACE}::{name}", kernel, lib=_library)


_define()
_ops = getattr(torch.ops, _NAMESPACE)
fmha_fwd = _ops.fmha_fwd.default
fmha_fwd_out = _ops.fmha_fwd_out.default
fmha_varlen_fwd = _ops.fmha_varlen_fwd.default
fmha_varlen_fwd_out = _ops.fmha_varlen_fwd_out.default
