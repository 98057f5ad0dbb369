# SPDX-License-Identifier: MIT OR Apache-2.0
"""The C functions on raw device pointers, one for one."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyfa_rocm._call.backward import BwdParams, bwd_to_c
from pyfa_rocm._call.c_struct import to_c
from pyfa_rocm._call.decode import DecodeParams, decode_to_c
from pyfa_rocm._call.kv_append import KvAppendParams, kv_append_to_c
from pyfa_rocm._call.merge import MergeParams, merge_to_c
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm._call.quantize import QuantizeParams, quantize_to_c
from pyfa_rocm._runtime import hip, library
from pyfa_rocm.device import stream_handle

__all__ = [
    "KernelInfo",
    "fmha_bwd",
    "fmha_bwd_kernel",
    "fmha_bwd_prepare",
    "fmha_bwd_supported",
    "fmha_bwd_workspace_bytes",
    "fmha_decode",
    "fmha_decode_kernel",
    "fmha_decode_prepare",
    "fmha_decode_supported",
    "fmha_decode_workspace_bytes",
    "fmha_fwd",
    "fmha_fwd_kernel",
    "fmha_fwd_prepare",
    "fmha_fwd_supported",
    "fmha_fwd_workspace_bytes",
    "fmha_kv_append",
    "fmha_kv_append_kernel",
    "fmha_kv_append_prepare",
    "fmha_kv_append_supported",
    "fmha_merge",
    "fmha_merge_kernel",
    "fmha_merge_prepare",
    "fmha_merge_supported",
    "fmha_prepare",
    "fmha_quantize",
    "fmha_quantize_kernel",
    "fmha_quantize_prepare",
    "fmha_quantize_supported",
    "fmha_quantize_workspace_bytes",
]


class KernelInfo(NamedTuple):
    """The kernel that a call would run, and what it uses: ``fmha_kernel_info`` of fmha_rocm.h.

    Attributes
    ----------
    vgpr_count, sgpr_count, scratch_bytes : int
        Vector registers of a lane, scalar registers of a wave, private memory of a lane.
    lds_bytes, block_size : int
        Local memory and threads of a workgroup.
    tile_m, tile_n : int
        Query rows of a workgroup, and keys of a step of its main loop.
    grid : (int, int, int)
        Workgroups in x, y, z; zeros if there is nothing to do.
    name, arch, sha256 : str
        Symbol of the kernel, the GPU it is for, and the SHA-256 of its code object.
    candidate, candidate_count : int
        Number of this kernel among those that can do the problem, from 1, the library's choice; and their
        count.
    pipeline : str
        Name of its main loop: ``pingpong`` is our own, ``asm_v3`` AITER's, others are Composable Kernel's.
    step_count : int
        Launches and memsets that the call enqueues, 0 if there is nothing to do.
    why : str
        The reason to choose this kernel and not the next candidate.
    """

    vgpr_count: int
    sgpr_count: int
    scratch_bytes: int
    lds_bytes: int
    block_size: int
    tile_m: int
    tile_n: int
    grid: tuple[int, int, int]
    name: str
    arch: str
    sha256: str
    candidate: int
    candidate_count: int
    pipeline: str
    step_count: int
    why: str


def fmha_fwd(params: FwdParams, stream: int = 0) -> None:
    """Enqueue a forward pass on raw device pointers; returns at once.

    Parameters
    ----------
    params : FwdParams
        What to compute. The memory and the workspace must stay valid until the work is done.
    stream : int
        The hipStream_t; 0 is the null stream. It and the memory belong to the thread's current device.

    Raises
    ------
    InvalidArgumentError, UnsupportedError, HipError
        Nothing was launched and nothing written; the message names argument, got, expected.

    Notes
    -----
    Source: ``fmha_fwd`` of native/include/fmha_rocm.h.
    """
    hip.runtime()
    ffi, lib = library.load()
    status = lib.fmha_fwd(to_c(params), ffi.cast("void *", stream_handle(stream)))
    if status:
        library.check(status)


def fmha_fwd_supported(params: FwdParams) -> None:
    """Raise what `fmha_fwd` would raise on the current device. Addresses of 0 are not read."""
    lib = _library()
    library.check(lib.fmha_fwd_supported(to_c(params)))


def fmha_fwd_kernel(params: FwdParams) -> KernelInfo:
    """Return the kernel that `fmha_fwd` would run, or raise as `fmha_fwd_supported`.

    ``params.kernel`` asks for one of the candidates: 1 to ``candidate_count``, best first.
    """
    lib = _library()
    return _kernel_info(lib.fmha_fwd_kernel, to_c(params))


def _kernel_info(query: Any, c: Any) -> KernelInfo:
    """Return a C function's description of the kernel that a call would run."""
    ffi, _ = library.load()
    info = ffi.new("fmha_kernel_info *")
    info.struct_size = ffi.sizeof("fmha_kernel_info")
    library.check(query(c, info))
    values: dict[str, Any] = {name: getattr(info, name) for name in KernelInfo._fields}
    values["grid"] = tuple(info.grid)
    for name in ("name", "arch", "sha256", "pipeline", "why"):
        # NULL: an older library of the same major version, which does not know the field.
        values[name] = ffi.string(values[name]).decode() if values[name] else ""
    return KernelInfo(**values)


def fmha_fwd_workspace_bytes(params: FwdParams) -> int:
    """Return the bytes of `params.workspace` that make `fmha_fwd` faster, or raise as `fmha_fwd_supported`.

    It is 0 unless workgroups share the keys of long sequences of few heads. It depends on the device and on
    all fields except the addresses of q, k, v and o.
    """
    lib = _library()
    return _workspace_bytes(lib.fmha_fwd_workspace_bytes, to_c(params))


def _workspace_bytes(query: Any, c: Any) -> int:
    """Return the size of the workspace that a C function gives for a call."""
    ffi, _ = library.load()
    nbytes = ffi.new("int64_t *")
    library.check(query(c, nbytes))
    return int(nbytes[0])


def fmha_fwd_prepare(params: FwdParams) -> None:
    """Load the kernel of a problem onto the current device.

    The next such `fmha_fwd` then only launches, which is legal while its stream is being captured into a
    graph. Raises as `fmha_fwd_supported`.
    """
    lib = _library()
    library.check(lib.fmha_fwd_prepare(to_c(params)))


def fmha_prepare(params: FwdParams) -> None:
    """Call `fmha_fwd_prepare`, which is the newer name."""
    fmha_fwd_prepare(params)


def _library() -> Any:
    """Return the C library, with a HIP runtime chosen."""
    hip.runtime()
    return library.load()[1]


def _enqueue(function: Any, c: Any, stream: int) -> None:
    """Call a C function that enqueues work on a stream."""
    ffi, _ = library.load()
    library.check(function(c, ffi.cast("void *", stream_handle(stream))))


def fmha_bwd(params: BwdParams, stream: int = 0) -> None:
    """Enqueue a backward pass on raw device pointers; returns at once.

    Parameters
    ----------
    params : BwdParams
        What to compute. The memory and the workspace must stay valid until the work is done.
    stream : int
        The hipStream_t; 0 is the null stream. It and the memory belong to the thread's current device.

    Raises
    ------
    InvalidArgumentError, UnsupportedError, HipError
        Nothing was launched and nothing written; the message names argument, got, expected.

    Notes
    -----
    Source: ``fmha_bwd`` of native/include/fmha_rocm.h.
    """
    lib = _library()
    c, _kept = bwd_to_c(params)
    _enqueue(lib.fmha_bwd, c, stream)


def fmha_bwd_supported(params: BwdParams) -> None:
    """Raise what `fmha_bwd` would raise on the current device. Addresses of 0 are not read."""
    lib = _library()
    c, _kept = bwd_to_c(params)
    library.check(lib.fmha_bwd_supported(c))


def fmha_bwd_kernel(params: BwdParams) -> KernelInfo:
    """Return the kernel of dK and dV that `fmha_bwd` would run, or raise as `fmha_bwd_supported`."""
    lib = _library()
    c, _kept = bwd_to_c(params)
    return _kernel_info(lib.fmha_bwd_kernel, c)


def fmha_bwd_workspace_bytes(params: BwdParams) -> int:
    """Return the bytes of `params.workspace` that `fmha_bwd` needs, or raise as `fmha_bwd_supported`."""
    lib = _library()
    c, _kept = bwd_to_c(params)
    return _workspace_bytes(lib.fmha_bwd_workspace_bytes, c)


def fmha_bwd_prepare(params: BwdParams) -> None:
    """Load the kernels of a backward problem onto the current device; like `fmha_fwd_prepare`."""
    lib = _library()
    c, _kept = bwd_to_c(params)
    library.check(lib.fmha_bwd_prepare(c))


def fmha_decode(params: DecodeParams, stream: int = 0) -> None:
    """Enqueue attention over a KV cache on raw device pointers; returns at once.

    Parameters
    ----------
    params : DecodeParams
        What to compute. The memory and the workspace must stay valid until the work is done.
    stream : int
        The hipStream_t; 0 is the null stream. It and the memory belong to the thread's current device.

    Raises
    ------
    InvalidArgumentError, UnsupportedError, HipError
        Nothing was launched and nothing written; the message names argument, got, expected.

    Notes
    -----
    Source: ``fmha_decode`` of native/include/fmha_rocm.h.
    """
    lib = _library()
    c, _kept = decode_to_c(params)
    _enqueue(lib.fmha_decode, c, stream)


def fmha_decode_supported(params: DecodeParams) -> None:
    """Raise what `fmha_decode` would raise on the current device.

    Addresses of 0 are not read.
    """
    lib = _library()
    c, _kept = decode_to_c(params)
    library.check(lib.fmha_decode_supported(c))


def fmha_decode_kernel(params: DecodeParams) -> KernelInfo:
    """Return the kernel that `fmha_decode` would run, or raise as `fmha_decode_supported`."""
    lib = _library()
    c, _kept = decode_to_c(params)
    return _kernel_info(lib.fmha_decode_kernel, c)


def fmha_decode_workspace_bytes(params: DecodeParams) -> int:
    """Return the bytes of `params.workspace` that `fmha_decode` needs; raise as `fmha_decode_supported`."""
    lib = _library()
    c, _kept = decode_to_c(params)
    return _workspace_bytes(lib.fmha_decode_workspace_bytes, c)


def fmha_decode_prepare(params: DecodeParams) -> None:
    """Load the kernels of a problem onto the current device; like `fmha_fwd_prepare`."""
    lib = _library()
    c, _kept = decode_to_c(params)
    library.check(lib.fmha_decode_prepare(c))


def fmha_merge(params: MergeParams, stream: int = 0) -> None:
    """Enqueue a merge of partial outputs on raw device pointers; returns at once.

    Parameters
    ----------
    params : MergeParams
        What to merge. The memory must stay valid until the work is done.
    stream : int
        The hipStream_t; 0 is the null stream. It and the memory belong to the thread's current device.

    Raises
    ------
    InvalidArgumentError, UnsupportedError, HipError
        Nothing was launched and nothing written; the message names argument, got, expected.

    Notes
    -----
    Source: ``fmha_merge`` of native/include/fmha_rocm.h.
    """
    _enqueue(_library().fmha_merge, merge_to_c(params), stream)


def fmha_merge_supported(params: MergeParams) -> None:
    """Raise what `fmha_merge` would raise on the current device. Addresses of 0 are not read."""
    library.check(_library().fmha_merge_supported(merge_to_c(params)))


def fmha_merge_kernel(params: MergeParams) -> KernelInfo:
    """Return the kernel that `fmha_merge` would run, or raise as `fmha_merge_supported`."""
    return _kernel_info(_library().fmha_merge_kernel, merge_to_c(params))


def fmha_merge_prepare(params: MergeParams) -> None:
    """Load the kernel of a merge onto the current device; like `fmha_fwd_prepare`."""
    library.check(_library().fmha_merge_prepare(merge_to_c(params)))


def fmha_kv_append(params: KvAppendParams, stream: int = 0) -> None:
    """Enqueue an append to a KV cache on raw device pointers; returns at once.

    Parameters
    ----------
    params : KvAppendParams
        What to append, and where. The memory must stay valid until the work is done.
    stream : int
        The hipStream_t; 0 is the null stream. It and the memory belong to the thread's current device.

    Raises
    ------
    InvalidArgumentError, UnsupportedError, HipError
        Nothing was launched and nothing written; the message names argument, got, expected.

    Notes
    -----
    Source: ``fmha_kv_append`` of native/include/fmha_rocm.h.
    """
    lib = _library()
    c, _kept = kv_append_to_c(params)
    _enqueue(lib.fmha_kv_append, c, stream)


def fmha_kv_append_supported(params: KvAppendParams) -> None:
    """Raise what `fmha_kv_append` would raise on the current device."""
    lib = _library()
    c, _kept = kv_append_to_c(params)
    library.check(lib.fmha_kv_append_supported(c))


def fmha_kv_append_kernel(params: KvAppendParams) -> KernelInfo:
    """Return the kernel that `fmha_kv_append` would run, or raise as `fmha_kv_append_supported`."""
    lib = _library()
    c, _kept = kv_append_to_c(params)
    return _kernel_info(lib.fmha_kv_append_kernel, c)


def fmha_kv_append_prepare(params: KvAppendParams) -> None:
    """Load the kernel of an append onto the current device; like `fmha_fwd_prepare`."""
    lib = _library()
    c, _kept = kv_append_to_c(params)
    library.check(lib.fmha_kv_append_prepare(c))


def fmha_quantize(params: QuantizeParams, stream: int = 0) -> None:
    """Enqueue the making of 8-bit floats on raw device pointers; returns at once.

    Parameters
    ----------
    params : QuantizeParams
        The problem. The memory and the workspace must stay valid until the work is done.
    stream : int
        The hipStream_t; 0 is the null stream. It and the memory belong to the thread's current device.

    Raises
    ------
    InvalidArgumentError, UnsupportedError, HipError
        Nothing was launched and nothing written; the message names argument, got, expected.

    Notes
    -----
    Source: ``fmha_quantize`` of native/include/fmha_rocm.h.
    """
    _enqueue(_library().fmha_quantize, quantize_to_c(params), stream)


def fmha_quantize_supported(params: QuantizeParams) -> None:
    """Raise what `fmha_quantize` would raise on the current device. Addresses of 0 are not read."""
    library.check(_library().fmha_quantize_supported(quantize_to_c(params)))


def fmha_quantize_kernel(params: QuantizeParams) -> KernelInfo:
    """Return the kernel that `fmha_quantize` would run, or raise as `fmha_quantize_supported`."""
    return _kernel_info(_library().fmha_quantize_kernel, quantize_to_c(params))


def fmha_quantize_workspace_bytes(params: QuantizeParams) -> int:
    """Return the bytes that `fmha_quantize` needs, or raise as `fmha_quantize_supported`."""
    return _workspace_bytes(_library().fmha_quantize_workspace_bytes, quantize_to_c(params))


def fmha_quantize_prepare(params: QuantizeParams) -> None:
    """Load the kernel of a quantisation onto the current device; like `fmha_fwd_prepare`."""
    library.check(_library().fmha_quantize_prepare(quantize_to_c(params)))
