# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parameters of a forward pass: FwdParams are the C struct's, Options the public functions'.

Between the two, `checks` turns options into fields. Signatures that repeat the options (keywords, torch's
operators) are made from `Options`, so a new option is a line in each of the three classes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypedDict

from pyfa_rocm._call.numbers import to_float, to_integer, truth
from pyfa_rocm.errors import InvalidArgumentError

__all__ = [
    "CATALOGUE_TYPES",
    "DTYPES",
    "FP8",
    "MASKS",
    "Bias",
    "FwdParams",
    "Keywords",
    "Lse",
    "Options",
    "RandVal",
    "Strided",
    "number_fields",
]

# The C constants behind the names used here.
DTYPES = {
    "float16": "FMHA_FP16",
    "bfloat16": "FMHA_BF16",
    "float32": "FMHA_FP32",
    "float8_e4m3fnuz": "FMHA_FP8_E4M3_FNUZ",
    "float8_e4m3fn": "FMHA_FP8_E4M3_FN",
}
# The catalogue's names of them, which messages and fmha_build_info() have.
CATALOGUE_TYPES = dict(zip(DTYPES, ("fp16", "bf16", "fp32", "fp8", "fp8fn"), strict=True))
# 8-bit floats, the second OCP's. No device computes with both, and the library refuses the other kind.
FP8 = ("float8_e4m3fnuz", "float8_e4m3fn")
MASKS = {
    "none": "FMHA_MASK_NONE",
    "causal": "FMHA_MASK_CAUSAL",
    "causal_top_left": "FMHA_MASK_CAUSAL_TOP_LEFT",
    "window": "FMHA_MASK_WINDOW",
    "window_top_left": "FMHA_MASK_WINDOW_TOP_LEFT",
}


class Strided(NamedTuple):
    """A (batch, seqlen, nhead, hdim) tensor: device address, and strides in elements (hdim's is 1)."""

    data: int
    stride_batch: int
    stride_seqlen: int
    stride_head: int


class Lse(NamedTuple):
    """A float32 (batch, nhead_q, seqlen_q) tensor: device address, and strides in elements."""

    data: int
    stride_batch: int
    stride_head: int


class Bias(NamedTuple):
    """A (batch, nhead_q, seqlen_q, seqlen_k) tensor of q's dtype: device address, and strides in elements.

    The last dimension's stride is 1; one of 0 broadcasts.
    """

    data: int
    stride_batch: int
    stride_head: int
    stride_seqlen: int


class RandVal(NamedTuple):
    """A uint8 (batch, nhead_q, seqlen_q, seqlen_k) tensor: device address, and strides (seqlen_k's is 1)."""

    data: int
    stride_batch: int
    stride_head: int
    stride_seqlen: int


@dataclass(slots=True)
class FwdParams:
    """Arguments of a forward pass: ``fmha_fwd_params`` of fmha_rocm.h, field for field.

    Addresses are device addresses; 0 is NULL. None or 0 means the default of the C field.

    Attributes
    ----------
    dtype : {"float16", "bfloat16", "float32", "float8_e4m3fnuz", "float8_e4m3fn"}
        Type of q, k and v, and of o unless `o_dtype` says otherwise.
    batch, seqlen_q, seqlen_k, nhead_q, nhead_k, hdim_q, hdim_v : int
        Sizes. With `cu_seqlens_q` the sequence lengths are upper bounds.
    softmax_scale : float
        Factor on the scores.
    q, k, v, o : Strided
        The tensors.
    lse : Lse, optional
        Where to store the log-sum-exp; None: not wanted.
    mask : {"none", "causal", "causal_top_left", "window", "window_top_left"}
        The mask; without "top_left" it is aligned bottom-right.
    window_left, window_right : int
        Keys to the left and right of a query's own column, seqlen_k or more being unlimited; read only
        for the windows.
    o_dtype : str, optional
        Type of o; None: `dtype`.
    softcap : float
        Above 0, up to 819, scores become ``softcap * tanh(score / softcap)``.
    bias : Bias, optional
        Numbers to add to the scaled scores.
    alibi_slopes : int
        Address of float32 slopes (batch, nhead_q), or (nhead_q) if `alibi_stride_batch` is 0.
    alibi_stride_batch : int
        Elements from the slopes of one batch to the next.
    cu_seqlens_q, cu_seqlens_k : int
        Addresses of int32 (batch + 1): where each of the packed sequences starts, and the end.
    seqused_q, seqused_k : int
        Addresses of int32 (batch): rows in use of each packed sequence.
    total_q, total_k : int
        Rows of packed q and k.
    p_drop : float
        Chance to drop an element of the probabilities.
    kernel : int
        0: the library's choice; n: the n-th candidate of `fmha_fwd_kernel`.
    philox_seed, philox_offset : int
        Seed and offset of dropout's random numbers, unsigned 64 bits each.
    philox_seed_offset : int
        Address of two uint64 that are read by the kernel instead of these.
    randval : RandVal, optional
        Where to store the random bytes of dropout; None: not wanted.
    q_descale, k_descale, v_descale : float
        The factor on each element of q, k, v, for 8-bit floats only; 0 means 1.
    workspace, workspace_bytes : int
        Address and size of device memory for intermediate results. `fmha_fwd_workspace_bytes` of the C ABI
        says how much a call is faster with: 0 for most. Without one (0) it does without.
    flags : int
        Bits of the C ABI, 0 or `FMHA_NO_MEMORY_CHECK`.
    sinks : int
        Address of float32 (nhead_q): logits without a value; 0: none.
    """

    dtype: str
    batch: int
    seqlen_q: int
    seqlen_k: int
    nhead_q: int
    nhead_k: int
    hdim_q: int
    hdim_v: int
    softmax_scale: float
    q: Strided
    k: Strided
    v: Strided
    o: Strided
    lse: Lse | None = None
    mask: str = "none"
    window_left: int = 0
    window_right: int = 0
    o_dtype: str | None = None
    softcap: float = 0.0
    bias: Bias | None = None
    alibi_slopes: int = 0
    alibi_stride_batch: int = 0
    cu_seqlens_q: int = 0
    cu_seqlens_k: int = 0
    seqused_q: int = 0
    seqused_k: int = 0
    total_q: int = 0
    total_k: int = 0
    p_drop: float = 0.0
    kernel: int = 0
    philox_seed: int = 0
    philox_offset: int = 0
    philox_seed_offset: int = 0
    randval: RandVal | None = None
    q_descale: float = 0.0
    k_descale: float = 0.0
    v_descale: float = 0.0
    workspace: int = 0
    workspace_bytes: int = 0
    flags: int = 0
    sinks: int = 0


class _Number(NamedTuple):
    """A number that is only passed on.

    Attributes
    ----------
    field : str
        A field of FwdParams.
    convert : callable
        Makes it a number, given the option's name for messages.
    expected : str
        The message for a value that does not fit names this.
    fits : callable
        Returns whether a value will do.
    """

    field: str
    convert: Callable[[str, Any], Any]
    expected: str = ""
    fits: Callable[[Any], bool] = lambda _: True


def _number(default: Any, *description: Any, **more: Any) -> Any:
    """Describe an option by a _Number."""
    return field(default=default, metadata={"number": _Number(*description, **more)})


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the public functions besides q, k, v, lengths, `out` and `stream`; see `flash_attn_func`.

    torch's operators take them in this order, so new ones belong at the end.
    """

    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = _number(
        0.0, "softcap", to_float, "0 (none) or a finite number above", fits=lambda x: 0 <= x < math.inf
    )
    alibi_slopes: Any = None
    bias: Any = None
    top_left: bool = False
    return_lse: bool = False
    dropout_p: float = _number(0.0, "p_drop", to_float, "from 0 to below 1", fits=lambda x: 0 <= x < 1)
    philox: Any = None
    out_dtype: Any = None
    q_descale: float | None = None
    k_descale: float | None = None
    v_descale: float | None = None
    kernel: int = _number(0, "kernel", to_integer)
    return_attn_probs: bool = False
    sinks: Any = None

    def __post_init__(self) -> None:
        for name in ("causal", "top_left", "return_lse", "return_attn_probs", "dropout_p"):
            truth(name, getattr(self, name))

    @property
    def wants_lse(self) -> bool:
        """Tell whether the log-sum-exp is computed."""
        return bool(self.return_lse or self.return_attn_probs)


class Keywords(TypedDict, total=False):
    """The options that are not flash-attention's own, which the public functions take by keyword only."""

    bias: Any
    top_left: bool
    philox: Any
    out_dtype: Any
    q_descale: float | None
    k_descale: float | None
    v_descale: float | None
    return_lse: bool
    kernel: int
    sinks: Any


_NUMBERS = {x.name: x.metadata["number"] for x in fields(Options) if "number" in x.metadata}


def number_fields(options: Options) -> dict[str, Any]:
    """Check the options that are only passed on, and return them as fields of FwdParams."""
    result = {}
    for name, number in _NUMBERS.items():
        value = result[number.field] = number.convert(name, getattr(options, name))
        if not number.fits(value):
            raise InvalidArgumentError(f"{name}: got {value}, expected {number.expected}")
    return result
