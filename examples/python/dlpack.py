# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arrays of another library, without a copy, both ways, through DLPack.

The other library is `Foreign`: some lines that own device memory and speak the protocol, as CuPy, JAX and
torch do. With those, pass their arrays as they are, and take results by their `from_dlpack`. NumPy is no such
library: it has no device memory.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from check import Array, finish, is_right, ok, say_what_runs
from rocm.bindings import hip

import pyfa_rocm as fa

ROCM, BFLOAT16 = 10, 4  # kDLROCM, kDLBfloat


class DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h, its device and dtype written out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""

    _fields_ = (("tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
new_capsule.restype = ctypes.py_object
get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
get_pointer.restype = ctypes.c_void_p


class Foreign:
    """An array of a library that pyfa_rocm does not know: bfloat16 memory of its own, and DLPack.

    It keeps what its capsules point to, and outlives them, so that they need neither deleter nor destructor.
    """

    def __init__(self, host: Array) -> None:
        self.address = int(ok(hip.hipMalloc(host.nbytes)))
        source = np.ascontiguousarray(host)
        kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
        ok(hip.hipMemcpy(self.address, source.ctypes.data, source.nbytes, kind))
        self._shape = (ctypes.c_int64 * host.ndim)(*host.shape)
        tensor = DLTensor(self.address, ROCM, 0, host.ndim, BFLOAT16, 16, 1, self._shape, None, 0)
        self._managed = DLManagedTensor(tensor, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where it is."""
        return ROCM, 0

    def __dlpack__(self, *, stream: int | None = None) -> object:
        """Lend it. `hipMemcpy` has returned, so no consumer's stream has to wait for anything."""
        return new_capsule(ctypes.addressof(self._managed), b"dltensor", None)

    def free(self) -> None:
        """Give the memory back, once nobody uses it."""
        ok(hip.hipFree(self.address))


def adopt(array: Any) -> tuple[int, tuple[int, ...]]:
    """Address and shape of somebody's array: the other direction, as a library's `from_dlpack` begins."""
    capsule = array.__dlpack__(stream=0)  # ordered before what is enqueued on the null stream
    tensor = DLManagedTensor.from_address(get_pointer(capsule, b"dltensor")).tensor
    assert (tensor.device_type, tensor.code, tensor.bits) == (ROCM, BFLOAT16, 16)
    return tensor.data + tensor.byte_offset, tuple(tensor.shape[: tensor.ndim])


def main() -> bool:
    """Attention over a foreign library's arrays, into one of its own, and the result handed to it."""
    say_what_runs()  # chooses the HIP runtime, for hip-python as well: before hip-python's first call
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, n, 4, 128), np.float32).astype(fa.bfloat16) for n in (60, 90, 90))
    arrays = [Foreign(x) for x in (q, k, v, np.zeros_like(q))]
    try:
        o, lse = fa.flash_attn_func(*arrays[:3], causal=True, return_lse=True)
        right = is_right("inputs by DLPack", q, k, v, o.to_numpy(), lse.to_numpy(), (-1, 0))

        fa.flash_attn_func(*arrays[:3], causal=True, out=arrays[3])  # written where the library has it
        fa.synchronize()
        host = np.empty_like(q)
        kind = hip.hipMemcpyKind.hipMemcpyDeviceToHost
        ok(hip.hipMemcpy(host.ctypes.data, arrays[3].address, host.nbytes, kind))
        right &= is_right("output by DLPack", q, k, v, host, lse.to_numpy(), (-1, 0))

        address, shape = adopt(o)
        print(f"adopted without a copy: {address == o.data}, {shape}")
        right &= address == o.data and shape == q.shape
    finally:
        for array in arrays:
            array.free()
    return right


if __name__ == "__main__":
    finish(main())
