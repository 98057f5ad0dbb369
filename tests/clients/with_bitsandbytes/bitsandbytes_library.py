# SPDX-License-Identifier: MIT OR Apache-2.0
"""bitsandbytes' library for ROCm, opened as its Python code opens it, and the code books of its types."""

from __future__ import annotations

import ctypes
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from clients import stubs
from numpy.typing import NDArray

from pyfa_rocm import DeviceArray

Array = NDArray[Any]
FOLDER = Path(__file__).resolve().parents[3] / "build/clients/bitsandbytes"
# The wheel's library for ROCm 7.2, whose kernels lie in compressed bundles
LIBRARY = FOLDER / "bitsandbytes" / "libbitsandbytes_rocm72.so"

DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
# The values that each code stands for, as the formats define them. A code's sign in FP4 is its highest bit.
_FP4 = [0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
_NF4 = [
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
    *(0.7229568362236023, 1.0),
]
FOUR_BIT = {
    "fp4": np.array([*_FP4, *(-x for x in _FP4)], np.float32),
    "nf4": np.array(_NF4, np.float32),
}


def dynamic_map(signed: bool) -> Array:
    """The 256 values of its 8-bit type: seven decades, each with twice the fractions of the one below."""
    values = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1, 2 ** (i + (0 if signed else 1)) + 1)
        means = 10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2
        values += [*means, *(-means if signed else [])]
    assert len(values) == 256
    return np.sort(np.array(values, np.float32))


@cache
def library() -> ctypes.CDLL:
    """The library, on the software device; stubs stand for hipBLAS and hipBLASLt, which it names too."""
    if not LIBRARY.exists():
        raise FileNotFoundError(f"no {LIBRARY}; `native/tools/test_clients.sh bitsandbytes` puts it there")
    ctypes.CDLL("libamdhip64.so.7", ctypes.RTLD_GLOBAL)  # the library names only what would bring it along
    with tempfile.TemporaryDirectory() as folder:
        for stub in stubs.build(Path(folder), [LIBRARY]):
            ctypes.CDLL(str(stub))
    return ctypes.CDLL(str(LIBRARY))


def call(name: str, *arguments: Any) -> Any:
    """Call a function. Arrays go as their addresses, floats as float, integers as int."""
    return getattr(library(), name)(*map(_argument, arguments))


def _argument(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return ctypes.c_void_p(value.data)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_void_p() if value is None else value


def on_device(array: Array) -> DeviceArray:
    """A copy of an array."""
    return DeviceArray.from_numpy(np.ascontiguousarray(array))


def empty(shape: tuple[int, ...], dtype: Any) -> DeviceArray:
    """Room for what a kernel writes: nothing that it would."""
    return on_device(np.full(shape, 0x5A if np.dtype(dtype).kind in "iu" else np.nan, dtype))


def packed(codes: Array) -> Array:
    """Two 4-bit codes a byte, the first above."""
    return np.asarray(codes[..., ::2] << 4 | codes[..., 1::2], np.uint8)


def unpacked(data: Array) -> Array:
    """The codes of packed bytes."""
    return np.stack([data >> 4, data & 15], -1).reshape(*data.shape[:-1], -1)
