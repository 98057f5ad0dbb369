# SPDX-License-Identifier: MIT OR Apache-2.0
"""DLPack, both ways, in both capsule versions, through ctypes: no compiled extension is needed for it.

Source: the DLPack C structures (dlpack.h, versions 0 and 1) and the Python array API standard, which says
how streams are handed over: for ROCm 0 is the default stream and -1 asks for no synchronisation.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyfa_rocm.errors import InvalidArgumentError

CPU, CUDA, ROCM, ROCM_HOST = 1, 2, 10, 11
_DEVICE_NAMES = {
    1: "CPU",
    2: "CUDA",
    3: "CUDA host",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    9: "VPI",
    10: "ROCm",
    11: "ROCm host",
    13: "CUDA managed",
    14: "oneAPI",
}
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
# Types whose name says more than kind and bits: (code, bits) by NumPy's name of them (ml_dtypes).
_NAMED = {
    "bool": (6, 8),
    "bfloat16": (4, 16),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
_NAME_OF = {value: name for name, value in _NAMED.items()}
_FLAG_READ_ONLY, _FLAG_COPIED = 1, 2
_OLD, _VERSIONED = b"dltensor", b"dltensor_versioned"
# Version of the structures below; a producer of another major version is not readable. 8-bit floats: 1.1.
VERSION = (1, 1)


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("dl_tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _DLTensor),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Export:
    """A capsule's contents; the memory lives at least as long as the capsule. Strides are in elements."""

    data: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    readonly: bool
    copied: bool
    capsule: object


def require_rocm(device_type: int, name: str) -> None:
    """Raise unless a DLPack device type is memory that a ROCm device can read."""
    if device_type in (ROCM, ROCM_HOST):
        return
    got = _DEVICE_NAMES.get(device_type, f"device type {device_type}")
    hint = "; copy it with pyfa_rocm.DeviceArray.from_numpy" if device_type == CPU else ""
    raise InvalidArgumentError(f"{name}: got an array in {got} memory, expected ROCm device memory{hint}")


def consumer(handle: int) -> int:
    """Return how the array API writes a hipStream_t in ``__dlpack__(stream=...)`` for ROCm.

    It is the handle itself. HIP's handles 1 and 2, the legacy and the per-thread default stream, are not
    allowed there: 0 says the first, and the second waits for what the null stream waits for.
    """
    return 0 if handle in (1, 2) else handle


def request(obj: Any, name: str, stream: int | None) -> Export:
    """Ask an object for its capsule and read it. It stays unconsumed: its own destructor ends the loan."""
    try:
        try:
            capsule = obj.__dlpack__(stream=stream, max_version=VERSION)
        except TypeError:  # a producer from before max_version existed
            capsule = obj.__dlpack__(stream=stream)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name}: {type(obj).__name__}.__dlpack__ refused ({error}), expected an array it can export"
        ) from error
    return read(capsule, name)


def read(capsule: object, name: str) -> Export:
    """Read an unconsumed capsule of either version."""
    try:
        kind = _get_name(capsule)
    except ValueError as error:  # ctypes' for what is no capsule
        raise InvalidArgumentError(
            f"{name}: __dlpack__ gave {type(capsule).__name__}, expected a capsule"
        ) from error
    if kind == _VERSIONED:
        managed = _ManagedVersioned.from_address(_get_pointer(capsule, kind))
        if managed.major != VERSION[0]:
            raise InvalidArgumentError(
                f"{name}: got DLPack version {managed.major}.{managed.minor}, expected {VERSION[0]}.x"
            )
        flags, tensor = managed.flags, managed.dl_tensor
    elif kind == _OLD:
        flags, tensor = 0, _Managed.from_address(_get_pointer(capsule, kind)).dl_tensor
    else:
        raise InvalidArgumentError(f"{name}: got a capsule named {kind!r}, expected an unused dltensor")
    return Export(
        data=(tensor.data or 0) + tensor.byte_offset,
        shape=tuple(tensor.shape[: tensor.ndim]),
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None,
        dtype=_dtype_name(tensor.dtype),
        readonly=bool(flags & _FLAG_READ_ONLY),
        copied=bool(flags & _FLAG_COPIED),
        capsule=capsule,
    )


def _dtype_name(dtype: Any) -> str:
    lanes = f"x{dtype.lanes}" if dtype.lanes != 1 else ""
    if name := _NAME_OF.get((dtype.code, dtype.bits)):
        return name + lanes
    return f"{_KINDS.get(dtype.code, f'type code {dtype.code} ')}{dtype.bits}{lanes}"


# Loans by address of the managed struct: that struct, what it points to, and last the capsule.
lent: dict[int, tuple[Any, ...]] = {}


def _holders(export: tuple[Any, ...]) -> int:
    return sys.getrefcount(export[-1])


_ONLY_US = _holders((object(),))


def take_back() -> None:
    """Forget capsules that were dropped before a consumer took over what they hold.

    Capsules have no destructor that would do it: a consumer that refuses one may drop it with an exception
    set, NumPy does, and a destructor in Python would lose the exception.
    """
    for address, export in list(lent.items()):
        if _holders(export) == _ONLY_US and _get_name(export[-1]) in (_OLD, _VERSIONED):
            lent.pop(address, None)


# Made once and kept: C code holds its address. It is no Python: a Ctrl-C that arrives there would be lost.
_forget = _Deleter(lent.pop)


def _address(callback: Any) -> int | None:
    return ctypes.cast(callback, ctypes.c_void_p).value


def _data_type(dtype: str) -> _DataType:
    """Inverse of _dtype_name."""
    if dtype in _NAMED:
        return _DataType(*_NAMED[dtype], 1)
    numpy_dtype = np.dtype(dtype)
    code = {"i": 0, "u": 1, "f": 2, "c": 5}[numpy_dtype.kind]
    return _DataType(code, 8 * numpy_dtype.itemsize, 1)


def make_capsule(
    data: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
    device: int,
    *,
    max_version: tuple[int, int] | None,
    owner: object,
) -> object:
    """Export device memory as a capsule that keeps `owner` alive until its consumer is done.

    If nobody consumes it, it keeps `owner` alive until the next export or allocation after it was dropped.

    `max_version` is the newest one that the consumer understands; None: from before there were versions.
    """
    int64s = ctypes.c_int64 * max(len(shape), 1)
    shape_array, strides_array = int64s(*shape), int64s(*strides)
    tensor = _DLTensor(
        data,
        _Device(ROCM, device),
        len(shape),
        _data_type(dtype),
        ctypes.cast(shape_array, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(strides_array, ctypes.POINTER(ctypes.c_int64)),
        0,
    )
    managed: _Managed | _ManagedVersioned
    versioned = max_version is not None and max_version[0] >= VERSION[0]
    if max_version is not None and versioned:
        managed = _ManagedVersioned(*min(VERSION, max_version), None, _address(_forget), 0, tensor)
    else:
        managed = _Managed(tensor, None, _address(_forget))
    take_back()
    address = ctypes.addressof(managed)
    capsule = _new_capsule(address, _VERSIONED if versioned else _OLD, None)
    lent[address] = (managed, shape_array, strides_array, owner, capsule)
    return capsule
