# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code objects that others compiled: how one is loaded, and how a launch of one of its kernels is given."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyfa_rocm._runtime import hip
from pyfa_rocm.errors import UnsupportedError

__all__ = ["Code", "Launch", "hip_call", "loaded"]


class Code:
    """A code object that is loaded on the current device. The caller's words for it are its name."""

    def __init__(self, image: bytes, name: str) -> None:
        self._image, self._name = image, name
        self._module = ctypes.c_void_p()
        hip_call("hipModuleLoadData", ctypes.byref(self._module), image)

    def symbol(self, pattern: bytes) -> str:
        """Return the first symbol of the image that a regular expression finds.

        Raises
        ------
        UnsupportedError
            There is none.
        """
        found = re.search(pattern, self._image)
        if found is None:
            raise UnsupportedError(f"{self._name}: it has no kernel {pattern.decode()}")
        return found.group().decode()

    def function(self, symbol: str) -> ctypes.c_void_p:
        """Return a kernel."""
        function = ctypes.c_void_p()
        hip_call("hipModuleGetFunction", ctypes.byref(function), self._module, symbol.encode())
        return function

    def address(self, symbol: str) -> int:
        """Return where a variable lies."""
        address, nbytes = ctypes.c_void_p(), ctypes.c_size_t()
        hip_call(
            "hipModuleGetGlobal",
            ctypes.byref(address),
            ctypes.byref(nbytes),
            self._module,
            symbol.encode(),
        )
        return address.value or 0


@cache
def loaded(image: bytes, name: str) -> Code:
    """Load a code object once."""
    return Code(image, name)


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel of a code object.

    Attributes
    ----------
    code : Code
        The code object.
    kernel : str
        The kernel's symbol.
    grid : tuple of int
        Workgroups.
    threads : int
        Threads of a workgroup.
    arguments : ctypes.Structure, ctypes.Array or bytes
        The arguments as they lie in memory.
    lds_bytes : int
        LDS of a workgroup beside what the kernel declares.
    """

    code: Code
    kernel: str
    grid: tuple[int, int, int]
    threads: int
    arguments: ctypes.Structure | ctypes.Array[Any] | bytes
    lds_bytes: int = 0

    def enqueue(self) -> None:
        """Launch it on the null stream."""
        given = self.arguments
        memory = ctypes.create_string_buffer(given, len(given)) if isinstance(given, bytes) else given
        nbytes = ctypes.c_size_t(ctypes.sizeof(memory))
        # HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(memory), 2, ctypes.addressof(nbytes), 3)
        function = self.code.function(self.kernel)
        sizes = (*self.grid, self.threads, 1, 1, self.lds_bytes)
        hip_call("hipModuleLaunchKernel", function, *sizes, None, None, extra)


def hip_call(name: str, *args: object) -> None:
    """Call a function of the runtime for what hip-python has no simple form of."""
    status = getattr(ctypes.CDLL(hip.runtime().path), name)(*args)
    if status:
        raise hip.failure(name, status)
