# SPDX-License-Identifier: MIT OR Apache-2.0
"""libfmha_rocm_jax.so: found, connected to libfmha_rocm, and made known to XLA."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import jax

from pyfa_rocm._runtime import hip, library, paths
from pyfa_rocm._runtime.shared_library import open_library
from pyfa_rocm.errors import HipError

__all__ = ["APPEND", "BACKWARD", "DECODE", "FORWARD", "MERGE", "PLATFORMS", "register"]

# Names of the custom calls, and JAX's names of the platforms they are for.
FORWARD = "pyfa_rocm_fmha_fwd"
BACKWARD = "pyfa_rocm_fmha_bwd"
DECODE = "pyfa_rocm_fmha_decode"
APPEND = "pyfa_rocm_fmha_kv_append"
MERGE = "pyfa_rocm_fmha_merge"
PLATFORMS = ("cpu", "rocm")

_DEVICE_FUNCTIONS = (
    "hipHostRegister",
    "hipHostUnregister",
    "hipStreamSynchronize",
    "hipGetLastError",
    "hipGetErrorName",
)
# Functions in the order of ``fmha_jax_library``.
_LIBRARY_FUNCTIONS = (
    "fwd", "fwd_prepare", "fwd_extents", "fwd_workspace_bytes", "bwd", "bwd_prepare", "bwd_extents",
    "decode", "decode_prepare", "decode_extents", "kv_append", "kv_append_prepare", "kv_append_extents",
    "merge", "merge_prepare", "merge_extents", "last_error",
)  # fmt: skip


class _Device(ctypes.Structure):
    """``fmha_jax_device``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in _DEVICE_FUNCTIONS)


_FindDevice = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_Device), ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
)


class _Library(ctypes.Structure):
    """``fmha_jax_library``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _LIBRARY_FUNCTIONS),
        ("find_device", _FindDevice),
    )


def _software_device() -> ctypes.CDLL:
    """Open the HIP runtime in use, which must be the software device."""
    runtime = hip.runtime()
    if not runtime.emulated:
        raise HipError(
            f"got arrays of JAX's platform cpu, but the HIP runtime in use is that of a GPU ({runtime.path}, "
            f"{runtime.reason}): expected arrays of the platform rocm, or PYFA_ROCM_DEVICE=emulator, with "
            "which arrays of the platform cpu run on the software device"
        )
    return ctypes.CDLL(runtime.path)


def _find_device(device: Any, message: Any, message_bytes: int) -> int:
    """Answer libfmha_rocm_jax, which asks on a thread of XLA's at the first call on the platform cpu.

    Not sooner: a runtime bound at import might not be the one that JAX opens for its ROCm platform.
    """
    try:
        library = _software_device()
        for name in _DEVICE_FUNCTIONS:
            setattr(device.contents, name, ctypes.cast(getattr(library, name), ctypes.c_void_p))
    except Exception as error:  # nothing may be raised into C
        text = str(error).encode()[: message_bytes - 1] + b"\0"
        ctypes.memmove(message, text, len(text))
        return 1
    return 0


# Called until the process ends, so it must not go.
_answer = _FindDevice(_find_device)


def _open() -> ctypes.CDLL:
    name = "libfmha_rocm_jax.so"
    path = paths.library_path().with_name(name)
    candidates = [paths._PACKAGE / "lib" / name, path, *(d / name for d in paths._source_build_dirs())]
    return open_library(str(paths._find(name, "PYFA_ROCM_JAX_LIBRARY", candidates)))


@functools.cache
def register() -> ctypes.CDLL:
    """Tell XLA about the custom calls, once.

    Returns
    -------
    ctypes.CDLL
        The library with their handlers, which stays loaded.

    Raises
    ------
    FmhaError
        A library is missing or cannot be opened.
    """
    ffi, lib = library.load()
    functions = [
        int(ffi.cast("uintptr_t", ffi.addressof(lib, f"fmha_{name}"))) for name in _LIBRARY_FUNCTIONS
    ]
    handlers = _open()
    handlers.fmha_jax_connect(ctypes.byref(_Library(*functions, _answer)))
    for target in (FORWARD, BACKWARD, DECODE, APPEND, MERGE):
        _register_target(handlers, target, target.removeprefix("pyfa_rocm_fmha_"))
    return handlers


def _register_target(handlers: ctypes.CDLL, target: str, name: str) -> None:
    """Tell XLA about one custom call, on both platforms."""

    def handler(what: str) -> Any:
        return jax.ffi.pycapsule(getattr(handlers, f"fmha_jax_{name}_{what}"))

    jax.ffi.register_ffi_target(target, handler("cpu"), platform="cpu")
    stages = {"initialize": handler("prepare_rocm"), "execute": handler("rocm")}
    jax.ffi.register_ffi_target(target, stages, platform="ROCM")
