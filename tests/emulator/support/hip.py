# SPDX-License-Identifier: MIT OR Apache-2.0
"""The few HIP calls the instruction tests need, by ctypes on the software device."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .toolchain import emulator_path


class HipError(RuntimeError):
    """A HIP call failed."""

    def __init__(self, call: str, code: int, fault: str) -> None:
        super().__init__(f"{call}: error {code}: {fault}")
        self.code = code
        self.fault = fault


@cache
def lib() -> c.CDLL:
    """The software device, loaded once."""
    handle = c.CDLL(str(emulator_path()))
    for name in ("fmha_emu_last_fault", "hipGetErrorName", "hipGetErrorString"):
        getattr(handle, name).restype = c.c_char_p
    return handle


def last_fault() -> str:
    """Return the software device's message about the last launch that failed."""
    return (lib().fmha_emu_last_fault() or b"").decode()


def call(name: str, *args: object) -> None:
    """Call a HIP function; raise :class:`HipError` unless it returns 0."""
    code = getattr(lib(), name)(*args)
    if code:
        fault = last_fault()
        lib().hipGetLastError()
        raise HipError(name, code, fault)


def recover() -> None:
    """Let the process go on after a fault, as no release of ROCm does."""
    lib().fmha_emu_clear_fault()
    lib().hipGetLastError()


class Buffer:
    """Device memory."""

    def __init__(self, nbytes: int) -> None:
        pointer = c.c_void_p()
        call("hipMalloc", c.byref(pointer), c.c_size_t(nbytes))
        self.address = int(pointer.value or 0)
        self.nbytes = nbytes

    @classmethod
    def of(cls, array: NDArray[np.generic]) -> Buffer:
        """A buffer that holds a copy of `array`."""
        buffer = cls(max(array.nbytes, 4))
        buffer.write(array)
        return buffer

    def write(self, array: NDArray[np.generic]) -> None:
        """Copy `array` to the start of the buffer."""
        data = np.ascontiguousarray(array)
        call(
            "hipMemcpy",
            c.c_void_p(self.address),
            data.ctypes.data_as(c.c_void_p),
            c.c_size_t(data.nbytes),
            c.c_int(1),
        )

    def read(self, dtype: type[np.generic] = np.uint32) -> NDArray[np.generic]:
        """The contents of the buffer."""
        out = np.empty(self.nbytes // np.dtype(dtype).itemsize, dtype)
        call(
            "hipMemcpy",
            out.ctypes.data_as(c.c_void_p),
            c.c_void_p(self.address),
            c.c_size_t(out.nbytes),
            c.c_int(2),
        )
        return out

    def free(self) -> None:
        """Give the memory back."""
        call("hipFree", c.c_void_p(self.address))


class Module:
    """A loaded code object."""

    def __init__(self, image: bytes) -> None:
        self._handle = c.c_void_p()
        call("hipModuleLoadData", c.byref(self._handle), image)

    def function(self, kernel: str) -> c.c_void_p:
        """A kernel's handle."""
        function = c.c_void_p()
        call("hipModuleGetFunction", c.byref(function), self._handle, kernel.encode())
        return function

    def launch_params(
        self,
        kernel: str,
        values: Sequence[object],
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (64, 1, 1),
    ) -> None:
        """Run a kernel, arguments given one by one as ctypes objects (kernelParams)."""
        pointers = (c.c_void_p * len(values))(*(c.cast(c.pointer(v), c.c_void_p) for v in values))  # type: ignore[type-var]
        call(
            "hipModuleLaunchKernel",
            self.function(kernel),
            *map(c.c_uint, grid),
            *map(c.c_uint, block),
            c.c_uint(0),
            None,
            pointers,
            None,
        )
        call("hipDeviceSynchronize")

    def launch(
        self,
        kernel: str,
        args: bytes,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (64, 1, 1),
        dynamic_lds: int = 0,
    ) -> None:
        """Run a kernel to its end, arguments given through `extra`."""
        function = self.function(kernel)
        size = c.c_size_t(len(args))
        block_of_args = c.create_string_buffer(args, len(args))
        extra = (c.c_void_p * 5)(1, c.addressof(block_of_args), 2, c.addressof(size), 3)
        call(
            "hipModuleLaunchKernel",
            function,
            *map(c.c_uint, grid),
            *map(c.c_uint, block),
            c.c_uint(dynamic_lds),
            None,
            None,
            extra,
        )
        call("hipDeviceSynchronize")

    def unload(self) -> None:
        """Unload the code object."""
        call("hipModuleUnload", self._handle)
