# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators' arguments: their schemas, and the same as Python sees it.

Both are made from `Options`, the package's one description of what a call takes. `out` is an argument of
operators of their own, since torch has to know what an operator writes to.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from pyfa_rocm._call.params import Options

__all__ = [
    "ARGUMENTS",
    "BWD_ARGUMENTS",
    "BWD_SCHEMAS",
    "LENGTHS",
    "SCHEMAS",
    "Argument",
    "Arguments",
    "BwdArguments",
    "BwdOutArguments",
    "Lengths",
    "forward_arguments",
    "is_plain",
    "options_of_operator",
]


class Argument(NamedTuple):
    """An argument of an operator: its name, its type in torch's schema, and its default."""

    name: str
    type: str
    default: Any


# Options that torch has under other names or types. Sizes and seeds that change from call to call may be
# symbols (SymInt): a compiled graph then serves them all. Windows are constants of it, like all masks. Seeds,
# read only without `philox`, are unsigned numbers in signed ones of 64 bits. `kernel` is a name that Inductor
# keeps to itself. No operator computes probabilities.
_SPECIAL = {
    "window_size": [Argument("window_left", "int", -1), Argument("window_right", "int", -1)],
    "alibi_slopes": [Argument("alibi_slopes", "Tensor?", None)],
    "bias": [Argument("bias", "Tensor?", None)],
    "philox": [
        Argument("philox", "Tensor?", None),
        Argument("philox_seed", "SymInt", 0),
        Argument("philox_offset", "SymInt", 0),
    ],
    "out_dtype": [Argument("out_dtype", "ScalarType?", None)],
    "kernel": [Argument("candidate", "int", 0)],
    "return_attn_probs": [],
    "sinks": [],  # behind them: a program that torch.export stored has arguments by position
}
# torch's types of the others, by Python's.
_TYPES = {"bool": "bool", "int": "int", "float": "float", "float | None": "float?"}


def _arguments() -> Iterator[Argument]:
    for x in fields(Options):
        if x.name in _SPECIAL:
            yield from _SPECIAL[x.name]
        else:
            yield Argument(x.name, _TYPES[str(x.type)], x.default)
    yield Argument("deterministic", "bool", False)  # of the backward call
    yield Argument("sinks", "Tensor?", None)


def _tuple_type(name: str, defaults: dict[str, Any]) -> Any:
    """Return the type of named tuples with these fields and defaults."""
    names, values = list(defaults), list(defaults.values())
    return namedtuple(name, names, defaults=values)


ARGUMENTS = tuple(_arguments())
# Where packed sequences are; as in `pyfa_rocm.flash_attn_varlen_func`.
LENGTHS = {
    "cu_seqlens_q": "Tensor",
    "cu_seqlens_k": "Tensor",
    "seqused_q": "Tensor?",
    "seqused_k": "Tensor?",
    "max_seqlen_q": "SymInt",
    "max_seqlen_k": "SymInt",
}
# torch hands arguments over by position, and leaves out those at the end that are at their defaults.
Arguments: Any = _tuple_type("Arguments", {x.name: x.default for x in ARGUMENTS})
Lengths: Any = _tuple_type("Lengths", dict.fromkeys(LENGTHS))

# A backward call has forward's arguments, but for those about the types of its results and about 8-bit
# floats, which no backward kernel takes, and for sinks, which the log-sum-exp counts. `candidate` is one of
# the backward kernels.
_NOT_BACKWARD = ("return_lse", "out_dtype", "q_descale", "k_descale", "v_descale", "sinks")
BWD_ARGUMENTS = tuple(x for x in ARGUMENTS if x.name not in _NOT_BACKWARD)
# Arguments of operators that allocate the gradients, and of those that are given them.
_NEW = (Argument("grad_dtype", "ScalarType?", None), Argument("bias_grad", "bool", False))
_GIVEN = (Argument("accumulate", "bool", False), Argument("dbias", "Tensor(d!)?", None))
BwdArguments: Any = _tuple_type("BwdArguments", {x.name: x.default for x in (*BWD_ARGUMENTS, *_NEW)})
BwdOutArguments: Any = _tuple_type("BwdOutArguments", {x.name: x.default for x in (*BWD_ARGUMENTS, *_GIVEN)})

_inputs, _out = "Tensor q, Tensor k, Tensor v", "Tensor(a!) out"
_options = ", ".join(f"{x.type} {x.name}={x.default}" for x in ARGUMENTS)
_lengths = ", ".join(f"{kind} {name}" for name, kind in LENGTHS.items())
_results = "Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse"
_grads = "Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv"
_new, _given = (
    ", ".join(f"{x.type} {x.name}={x.default}" for x in (*BWD_ARGUMENTS, *more)) for more in (_NEW, _GIVEN)
)
SCHEMAS = {
    "fmha_fwd": f"({_inputs}, {_options}) -> (Tensor out, Tensor lse)",
    "fmha_fwd_out": f"({_inputs}, {_out}, {_options}) -> Tensor lse",
    "fmha_varlen_fwd": f"({_inputs}, {_lengths}, {_options}) -> (Tensor out, Tensor lse)",
    "fmha_varlen_fwd_out": f"({_inputs}, {_out}, {_lengths}, {_options}) -> Tensor lse",
}
# dbias has no elements if it is not wanted.
BWD_SCHEMAS = {
    "fmha_bwd": f"({_results}, {_new}) -> (Tensor dq, Tensor dk, Tensor dv, Tensor dbias)",
    "fmha_bwd_out": f"({_results}, {_grads}, {_given}) -> ()",
    "fmha_varlen_bwd": f"({_results}, {_lengths}, {_new}) -> (Tensor dq, Tensor dk, Tensor dv, Tensor dbias)",
    "fmha_varlen_bwd_out": f"({_results}, {_grads}, {_lengths}, {_given}) -> ()",
}


def forward_arguments(arguments: Any) -> Any:
    """Return the Arguments of the forward call behind a backward one's."""
    same = {x.name: getattr(arguments, x.name) for x in BWD_ARGUMENTS}
    return Arguments(**same | {"candidate": 0, "return_lse": True})


def options_of_operator(arguments: Any, out_dtype: str | None, return_attn_probs: bool) -> Options:
    """Return an operator's Arguments as the public functions of `pyfa_rocm` would have been given them."""
    same = {x.name: getattr(arguments, x.name) for x in fields(Options) if x.name not in _SPECIAL}
    return Options(
        **same,
        window_size=(arguments.window_left, arguments.window_right),
        out_dtype=out_dtype,
        alibi_slopes=arguments.alibi_slopes,
        bias=arguments.bias,
        sinks=arguments.sinks,
        philox=arguments.philox,
        kernel=arguments.candidate,
        return_attn_probs=return_attn_probs,
    )


def is_plain(arguments: Any) -> bool:
    """Tell whether an operator's Arguments have no tensors, nor numbers that differ from call to call."""
    a = arguments
    return (
        a.bias is None and a.alibi_slopes is None and a.philox is None and not a.dropout_p
        and a.sinks is None and a.q_descale is None and a.k_descale is None and a.v_descale is None
    )  # fmt: skip
