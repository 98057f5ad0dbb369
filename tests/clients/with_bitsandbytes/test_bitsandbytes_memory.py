# SPDX-License-Identifier: MIT OR Apache-2.0
"""bitsandbytes' paged arrays, which are managed memory, and its elementwise kernels."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from clients.with_bitsandbytes.bitsandbytes_library import Array, call, empty, library, on_device

COUNT = 5000


@pytest.fixture
def paged() -> Array:
    """An array in managed memory, which host and device share. Its memory lives as long as the process."""
    library().cget_managed_ptr.restype = ctypes.c_void_p
    address = call("cget_managed_ptr", ctypes.c_size_t(4 * COUNT))
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (COUNT,))


def synchronize() -> None:
    assert ctypes.CDLL("libamdhip64.so.7").hipDeviceSynchronize() == 0


def elementwise(kind: str, x: Any, y: Any, value: Any) -> None:
    call(f"c{kind}", x, y, value, ctypes.c_int64(COUNT))


def test_elementwise() -> None:
    x, y = (np.random.default_rng(n).standard_normal(COUNT).astype(np.float32) for n in (0, 1))
    a = on_device(x)
    elementwise("_mul_fp32", a, on_device(y), 0.0)
    np.testing.assert_array_equal(a.to_numpy(), x * y)
    elementwise("arange_fp32", a, None, 0.0)
    np.testing.assert_array_equal(a.to_numpy(), np.arange(COUNT, dtype=np.float32))
    elementwise("fill_fp32", a, None, 1.25)
    np.testing.assert_array_equal(a.to_numpy(), 1.25)
    filled = empty((COUNT,), np.uint8)
    elementwise("fill_uint8", filled, None, 7)
    np.testing.assert_array_equal(filled.to_numpy(), 7)


def test_paged(paged: Array) -> None:
    """The host writes what a kernel reads, and reads what it wrote, without a copy."""
    x = np.random.default_rng(2).standard_normal(COUNT).astype(np.float32)
    paged[:] = x
    here = ctypes.c_void_p(paged.ctypes.data)
    call("cprefetch", here, ctypes.c_size_t(paged.nbytes), 0)
    elementwise("_mul_fp32", here, on_device(x), 0.0)
    synchronize()
    np.testing.assert_array_equal(paged, x * x)
