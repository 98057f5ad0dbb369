# SPDX-License-Identifier: MIT OR Apache-2.0
"""FwdParams, the arguments of a forward pass on raw device pointers, and the C struct made from it."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from pyfa_rocm._runtime import library
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["DTYPES", "MASKS", "Bias", "FwdParams", "Lse", "RandVal", "Strided", "fill", "new", "to_c"]

# The C constants behind the names used here.
DTYPES = {
    "float16": "FMHA_FP16",
    "bfloat16": "FMHA_BF16",
    "float32": "FMHA_FP32",
    "float8_e4m3fnuz": "FMHA_FP8_E4M3_FNUZ",
}
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

    Addresses are device addresses; 0 is NULL. What None or 0 means is the default of the C field.

    Attributes
    ----------
    dtype : {"float16", "bfloat16", "float32", "float8_e4m3fnuz"}
        Of q, k and v, and of o unless `o_dtype` says otherwise.
    batch, seqlen_q, seqlen_k, nhead_q, nhead_k, hdim_q, hdim_v : int
        Sizes. With `cu_seqlens_q` the sequence lengths are upper bounds.
    softmax_scale : float
        Factor on the scores.
    q, k, v, o : Strided
        The tensors.
    lse : Lse, optional
        Where to store the log-sum-exp; None: not wanted.
    mask : {"none", "causal", "causal_top_left", "window", "window_top_left"}
        Which keys a query sees; without "top_left" aligned bottom-right.
    window_left, window_right : int
        Keys to the left and right of a query's own column, seqlen_k or more being unlimited; read for
        the windows alone.
    o_dtype : str, optional
        Of o; None: `dtype`.
    softcap : float
        Above 0, up to 819, scores become ``softcap * tanh(score / softcap)``.
    bias : Bias, optional
        What is added to the scaled scores.
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
        What the random numbers of dropout are a function of, unsigned 64 bits each.
    philox_seed_offset : int
        Address of two uint64 that are read by the kernel instead of these.
    randval : RandVal, optional
        Where to store the random bytes of dropout; None: not wanted.
    q_descale, k_descale, v_descale : float
        "float8_e4m3fnuz" alone: what an element of q, k, v is to be multiplied with; 0 means 1.
    workspace, workspace_bytes : int
        Address and size of device memory for intermediate results. `fmha_fwd_workspace_bytes` of the C ABI
        says how much a call needs: 0 in this version.
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


_NO_LSE = (0, 0, 0)
_NO_TENSOR = (0, 0, 0, 0)
_STRUCT_NAME = "fmha_fwd_params"
# A field of a struct as the struct module packs it, by its C type; pointers are "Q".
_CODES = {"float": "f", "int32_t": "i", "int64_t": "q", "uint32_t": "I", "uint64_t": "Q"}


def _walk(ctype: Any, prefix: str = "", base: int = 0) -> list[tuple[str, int, str]]:
    """List the plain fields of a C struct: dotted name, offset, and code of the struct module."""
    found = []
    for name, field in ctype.fields:
        if field.type.kind == "struct":
            found += _walk(field.type, f"{prefix}{name}.", base + field.offset)
        else:
            code = "Q" if field.type.kind == "pointer" else _CODES[field.type.cname]
            found.append((prefix + name, base + field.offset, code))
    return found


class CLayout:
    """Layout of ``fmha_fwd_params`` as the installed header has it, and the constants it is filled with.

    Attributes
    ----------
    packer : struct.Struct
        Packs all plain fields in the header's order.
    offsets : dict
        Bytes from the start to each plain field, by dotted name ("q.data").
    constants : dict
        Values of the C constants behind the names of dtypes and masks, None being 0.
    """

    def __init__(self) -> None:
        self.ffi, lib = library.load()
        self.size = int(self.ffi.sizeof(_STRUCT_NAME))
        plain = _walk(self.ffi.typeof(_STRUCT_NAME))
        self.offsets = {name: offset for name, offset, _ in plain}
        code = "="
        end = 0
        for _, offset, item in plain:
            code += "x" * (offset - end) + item
            end = offset + struct.calcsize("=" + item)
        self.packer = struct.Struct(code + "x" * (self.size - end))
        self.constants: dict[str | None, int] = {
            name: int(getattr(lib, constant)) for name, constant in (DTYPES | MASKS).items()
        }
        self.constants[None] = 0


@functools.cache
def c_layout() -> CLayout:
    """Return the layout, read from the header once."""
    return CLayout()


def new() -> tuple[Any, memoryview]:
    """Return a zeroed ``fmha_fwd_params *`` and its bytes."""
    ffi = c_layout().ffi
    c = ffi.new(_STRUCT_NAME + " *")
    return c, memoryview(ffi.buffer(c))


def fill(view: memoryview, p: FwdParams) -> None:
    """Write parameters to the bytes of an ``fmha_fwd_params``; the order is the header's."""
    layout = c_layout()
    constants = layout.constants
    try:
        layout.packer.pack_into(
            view, 0, layout.size, constants[p.dtype], p.batch, p.seqlen_q, p.seqlen_k, p.nhead_q, p.nhead_k,
            p.hdim_q, p.hdim_v, p.softmax_scale, constants[p.mask], p.window_left, p.window_right,
            *p.q, *p.k, *p.v, *p.o, *(p.lse or _NO_LSE), constants[p.o_dtype], p.softcap,
            *(p.bias or _NO_TENSOR), p.alibi_slopes, p.alibi_stride_batch, p.cu_seqlens_q, p.cu_seqlens_k,
            p.seqused_q, p.seqused_k, p.total_q, p.total_k, p.p_drop, p.kernel, p.philox_seed,
            p.philox_offset, p.philox_seed_offset, *(p.randval or _NO_TENSOR), p.q_descale, p.k_descale,
            p.v_descale, 0, p.workspace, p.workspace_bytes,
        )  # fmt: skip
    except (KeyError, OverflowError, TypeError, struct.error) as error:
        raise _bad_field(p) from error
    if p.dtype not in DTYPES or p.mask not in MASKS or (p.o_dtype and p.o_dtype not in DTYPES):
        raise _bad_field(p)


def to_c(p: FwdParams) -> Any:
    """Return parameters as a new ``fmha_fwd_params *``."""
    c, view = new()
    fill(view, p)
    return c


def _bad_field(p: FwdParams) -> InvalidArgumentError:
    """Find the field that a C struct cannot hold, and say so."""
    for name, names in (("dtype", DTYPES), ("o_dtype", DTYPES), ("mask", MASKS)):
        value = getattr(p, name)
        if value not in names and not (name == "o_dtype" and value is None):
            return InvalidArgumentError(f"{name}: got {value!r}, expected one of {', '.join(names)}")
    codes: dict[str, str] = {}
    for dotted, _, code in _walk(c_layout().ffi.typeof(_STRUCT_NAME)):
        name = dotted.partition(".")[0]
        codes[name] = codes.get(name, "=") + code
    for field in fields(p):
        value = getattr(p, field.name)
        if field.name in ("dtype", "o_dtype", "mask") or value is None:
            continue
        try:
            items = value if isinstance(value, tuple) else (value,)
            struct.pack(codes[field.name], *items)
        except (OverflowError, TypeError, struct.error) as error:
            return InvalidArgumentError(
                f"{field.name}: got {value!r}, expected a value of the C field ({error})"
            )
    return InvalidArgumentError(f"params: got {p!r}, expected values of the C struct")
