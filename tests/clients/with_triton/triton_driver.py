# SPDX-License-Identifier: MIT OR Apache-2.0
"""Triton without torch: its AMD driver with HIP's current device and null stream, and arrays for its kernels.

Triton compiles with the LLVM and lld that are in its wheel. At run time it needs libamdhip64, which it takes
from LD_LIBRARY_PATH or TRITON_LIBHIP_PATH, and a C compiler with Python.h for its extension module.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from functools import cache
from typing import Any

import numpy as np

from pyfa_rocm._runtime import paths

# Before Triton is imported. Its default changes with the next release, of which it warns.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("TRITON_LIBHIP_PATH", str(paths.emulator_path()))

import triton
from triton.backends.amd.driver import HIPDriver, HIPLauncher, HIPUtils

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2


@cache
def _runtime() -> ctypes.CDLL:
    """The libamdhip64 that Triton has loaded."""
    hip = ctypes.CDLL(os.environ["TRITON_LIBHIP_PATH"])
    hip.hipGetErrorString.restype = ctypes.c_char_p
    return hip


def _call(function: str, *arguments: Any) -> None:
    status = getattr(_runtime(), function)(*arguments)
    assert status == 0, f"{function}: {_runtime().hipGetErrorString(status).decode()}"


def _current_device() -> int:
    index = ctypes.c_int()
    _call("hipGetDevice", ctypes.byref(index))
    return index.value


class Driver(HIPDriver):
    """Triton's driver; what it asks torch for comes from HIP."""

    def __init__(self) -> None:  # not the parent's, which imports torch
        self.utils = HIPUtils()
        self.launcher_cls = HIPLauncher
        self.get_current_device = _current_device
        self.get_current_stream = lambda _device: 0
        self.set_current_device = lambda device: _call("hipSetDevice", device)


def use() -> None:
    """Make Triton compile for the software device, and run there."""
    triton.runtime.driver.set_active(Driver())


def arch() -> str:
    """Return the arch that the device plays, as Triton reads it from the device's properties."""
    return str(triton.runtime.driver.active.get_current_target().arch)


class Array:
    """A copy of a NumPy array in device memory; Triton wants `data_ptr()` and `dtype`.

    The dtype is a name: Triton remembers dtypes by their hash, which ml_dtypes' kinds of fp8 share.
    """

    def __init__(self, host: np.ndarray) -> None:
        host = np.ascontiguousarray(host)
        self._like, self.dtype = np.empty_like(host), host.dtype.name
        pointer = ctypes.c_void_p()
        _call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(max(host.nbytes, 1)))
        self._pointer = pointer
        weakref.finalize(self, _call, "hipFree", pointer)
        _call(
            "hipMemcpy",
            pointer,
            host.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(host.nbytes),
            _HOST_TO_DEVICE,
        )

    def data_ptr(self) -> int:
        """Address on the device."""
        return int(self._pointer.value or 0)

    def numpy(self) -> np.ndarray:
        """A copy on the host, after all launches."""
        host = np.empty_like(self._like)
        _call("hipDeviceSynchronize")
        size = ctypes.c_size_t(host.nbytes)
        _call("hipMemcpy", host.ctypes.data_as(ctypes.c_void_p), self._pointer, size, _DEVICE_TO_HOST)
        return host
