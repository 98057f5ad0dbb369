# SPDX-License-Identifier: MIT OR Apache-2.0
"""DeviceArray, and taking other people's arrays: DLPack in both versions, __cuda_array_interface__."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyfa_rocm
from pyfa_rocm import DeviceArray, InvalidArgumentError, Stream, flash_attn_func
from pyfa_rocm._runtime import dlpack
from pyfa_rocm._runtime.tensor import as_tensor

DTYPES = [
    np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fnuz, np.float32, np.int64, np.int32, np.uint64,
    np.uint8, np.bool_, np.complex64,
]  # fmt: skip


class Foreign:
    """Another library's array: what it exports, and which arguments it was asked with."""

    def __init__(self, array: DeviceArray, **overrides: Any) -> None:
        self.array = array
        self.overrides = overrides
        self.asked: dict[str, Any] = {}

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.overrides.get("device", self.array.__dlpack_device__())
        return device

    def __dlpack__(self, **kwargs: Any) -> object:
        self.asked = kwargs
        if error := self.overrides.get("error"):
            raise error
        capsule = self.array.__dlpack__(stream=-1, max_version=kwargs.get("max_version"))
        for field, value in self.overrides.get("managed", {}).items():
            address = dlpack._get_pointer(capsule, b"dltensor_versioned")
            setattr(dlpack._ManagedVersioned.from_address(address), field, value)
        return capsule


class OldForeign(Foreign):
    """One from before DLPack 1.0: no max_version."""

    def __dlpack__(self, *, stream: int | None = None) -> object:  # type: ignore[override]
        return super().__dlpack__(stream=stream)


class CudaArray:
    """An array with only __cuda_array_interface__."""

    def __init__(self, array: DeviceArray, **overrides: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | overrides


def _ramp(shape: tuple[int, ...], dtype: Any = np.float16) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) % 100).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(dtype: Any) -> None:
    host = _ramp((3, 5, 7), dtype)
    array = DeviceArray.from_numpy(host)
    assert array.dtype == host.dtype
    assert array.nbytes == host.nbytes
    back = array.to_numpy()
    assert back.dtype == host.dtype
    assert back.tobytes() == host.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalar_and_empty(shape: tuple[int, ...]) -> None:
    host = np.ones(shape, np.float32)
    array = DeviceArray.from_numpy(host)
    assert array.shape == shape
    assert array.to_numpy().shape == shape
    assert (array.to_numpy() == host).all()


_slices = st.slices(6).filter(lambda s: s.step is None or s.step > 0)


@given(
    keys=st.lists(_slices | st.integers(-6, 5), max_size=3),
    axes=st.permutations((0, 1, 2)),
    dots=st.none() | st.integers(0, 3),
)
def test_views_are_numpys(keys: list[Any], axes: list[int], dots: int | None) -> None:
    if dots is not None:
        keys.insert(dots, ...)
    host = _ramp((6, 6, 6), np.int64).transpose(axes)
    view = DeviceArray.from_numpy(_ramp((6, 6, 6), np.int64)).transpose(*axes)[tuple(keys)]
    np.testing.assert_array_equal(view.to_numpy(), host[tuple(keys)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a[0, 0, 0], "3 indices"),
        (lambda a: a[4], "index 0: got 4"),
        (lambda a: a[:, ::-1], "index 1: got step -1"),
        (lambda a: a[..., ...], "index 1: got Ellipsis, expected an integer or a slice"),
        (lambda a: a["x"], "index 0: got 'x', expected"),
    ],
)
def test_bad_index(call: Any, message: str) -> None:
    with pytest.raises(IndexError, match=message):
        call(DeviceArray.from_numpy(np.zeros((4, 4))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.reshape(5, 5), "shape: got"),
        (lambda a: a.transpose(1, 0).reshape(16), "contiguous"),
        (lambda a: a.transpose(0, 0), "axes: got"),
        (lambda _: DeviceArray.empty((-1, 2), np.float16), "shape: got"),
        (lambda _: DeviceArray.empty((2,), "U5"), "dtype: got"),
    ],
)
def test_bad_shape(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call(DeviceArray.from_numpy(np.zeros((4, 4))))


def test_memory_is_counted_and_freed() -> None:
    gc.collect()
    before = pyfa_rocm.memory.live_bytes
    array = DeviceArray.empty((1000,), np.float32)
    view = array[10:20]
    assert pyfa_rocm.memory.live_bytes == before + 4000
    del array
    gc.collect()
    assert pyfa_rocm.memory.live_bytes == before + 4000  # the view holds it
    del view
    gc.collect()
    assert pyfa_rocm.memory.live_bytes == before
    assert pyfa_rocm.memory.peak_bytes >= before + 4000


def test_capsule_holds_the_memory() -> None:
    gc.collect()
    before = pyfa_rocm.memory.live_bytes
    for versioned in (False, True):
        array = DeviceArray.from_numpy(_ramp((4, 6)))
        capsule = array.__dlpack__(max_version=(1, 0) if versioned else None)
        export = dlpack.read(capsule, "x")
        del array
        gc.collect()
        assert pyfa_rocm.memory.live_bytes == before + 48
        assert (export.shape, export.strides, export.dtype) == ((4, 6), (6, 1), "float16")
        del export, capsule  # nobody consumed it: the next allocation takes it back
        assert DeviceArray.empty((1,), np.int8).nbytes == 1
        assert pyfa_rocm.memory.live_bytes == before


def test_refused_capsule() -> None:
    """NumPy refuses device memory, and drops the capsule with its exception set: the exception survives."""
    before = pyfa_rocm.memory.live_bytes
    array: Any = DeviceArray.empty((4,), np.float32)
    for _ in range(3):
        with pytest.raises((BufferError, RuntimeError, ValueError), match=r"(?i)device"):
            np.from_dlpack(array)
    del array
    assert DeviceArray.empty((1,), np.int8).nbytes == 1
    assert pyfa_rocm.memory.live_bytes == before


def test_consumed_capsule_is_the_consumers() -> None:
    """A consumer renames the capsule, and calls the deleter when done."""
    gc.collect()
    before = pyfa_rocm.memory.live_bytes
    capsule = DeviceArray.empty((8,), np.float16).__dlpack__()
    managed = dlpack._Managed.from_address(dlpack._get_pointer(capsule, b"dltensor"))
    set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_SetName", ctypes.pythonapi)
    )
    used = b"used_dltensor"
    set_name(capsule, used)
    with pytest.raises(InvalidArgumentError, match="used_dltensor"):
        dlpack.read(capsule, "x")
    del capsule
    gc.collect()
    assert pyfa_rocm.memory.live_bytes == before + 16
    dlpack._Deleter(managed.deleter)(ctypes.addressof(managed))
    gc.collect()
    assert pyfa_rocm.memory.live_bytes == before


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cls", [Foreign, OldForeign])
def test_dlpack_in(cls: type[Foreign], dtype: Any) -> None:
    array = DeviceArray.from_numpy(_ramp((2, 3, 4), dtype)).transpose(2, 0, 1)
    tensor = as_tensor(cls(array), "x", 0)
    assert (tensor.data, tensor.shape, tensor.strides) == (array.data, array.shape, array.strides)
    assert tensor.dtype == np.dtype(dtype).name
    assert tensor.device == array.device


def test_dlpack_stream_is_handed_over() -> None:
    """0 is ROCm's default stream; a pinned host array takes no stream."""
    array = DeviceArray.from_numpy(_ramp((4,)))
    foreign = Foreign(array)
    as_tensor(foreign, "x", 0)
    assert foreign.asked == {"stream": 0, "max_version": (1, 1)}
    as_tensor(foreign, "x", 4711)
    assert foreign.asked["stream"] == 4711
    host = Foreign(array, device=(dlpack.ROCM_HOST, 0))
    as_tensor(host, "x", 4711)
    assert host.asked["stream"] is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"device": (2, 0)}, "x: got an array in CUDA memory"),
        ({"device": (1, 0)}, "x: got an array in CPU memory, .*from_numpy"),
        ({"device": (99, 0)}, "device type 99"),
        ({"error": BufferError("requires grad")}, "refused .requires grad"),
        ({"managed": {"major": 2}}, "DLPack version 2.1, expected 1.x"),
        ({"managed": {"flags": 2}}, "gave a copy"),
    ],
)
def test_dlpack_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        as_tensor(Foreign(DeviceArray.from_numpy(_ramp((4,))), **overrides), "x", 0)


def test_read_only_out_is_refused() -> None:
    array = DeviceArray.from_numpy(_ramp((1, 64, 1, 64)))
    out = DeviceArray.from_numpy(_ramp((1, 64, 1, 64)))
    read_only = Foreign(out, managed={"flags": 1})
    flash_attn_func(Foreign(array, managed={"flags": 1}), array, array)
    with pytest.raises(InvalidArgumentError, match="out: got a read-only array"):
        flash_attn_func(array, array, array, out=read_only)
    assert out.to_numpy().tobytes() == _ramp((1, 64, 1, 64)).tobytes()


def test_export_arguments() -> None:
    array = DeviceArray.from_numpy(_ramp((4,)))
    with pytest.raises(BufferError, match="copy: got True"):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="dl_device"):
        array.__dlpack__(dl_device=(1, 0))
    assert array.__dlpack_device__() == (10, array.device)


@pytest.mark.parametrize("producer", [None, 1, 0])
def test_cuda_array_interface_in(producer: int | None) -> None:
    array = DeviceArray.from_numpy(_ramp((2, 3, 4))).transpose(2, 0, 1)
    with Stream() as stream:
        tensor = as_tensor(CudaArray(array, stream=producer), "x", stream.handle)
    assert (tensor.data, tensor.shape, tensor.strides) == (array.data, array.shape, array.strides)
    assert (tensor.dtype, tensor.device) == ("float16", array.device)
    contiguous = as_tensor(CudaArray(DeviceArray.from_numpy(_ramp((2, 3))), strides=None), "x", 0)
    assert contiguous.strides == (3, 1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"data": (np.zeros(4).ctypes.data, False)}, "x: got address 0x.*expected device memory"),
        ({"typestr": "nonsense"}, "malformed"),
        ({"data": None}, "malformed"),
        ({"mask": object()}, "mask"),
        ({"strides": (3,)}, "multiples of 2"),
    ],
)
def test_cuda_array_interface_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        as_tensor(CudaArray(DeviceArray.from_numpy(_ramp((4,))), **overrides), "x", 0)


@pytest.mark.parametrize("dtype", [pyfa_rocm.bfloat16, pyfa_rocm.float8_e4m3fnuz])
def test_types_without_a_cuda_array_interface(dtype: Any) -> None:
    array = DeviceArray.from_numpy(_ramp((4,), dtype))
    assert not hasattr(array, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match=f"cannot say {dtype.name}: use __dlpack__"):
        array.__cuda_array_interface__  # noqa: B018
    assert DeviceArray.empty((4,), dtype.name).dtype == dtype


@pytest.mark.parametrize(
    ("asked", "version"), [(None, None), ((0, 8), None), ((1, 0), (1, 0)), ((1, 1), (1, 1)), ((2, 0), (1, 1))]
)
def test_dlpack_version(asked: tuple[int, int] | None, version: tuple[int, int] | None) -> None:
    """The newest that consumer and producer both know; None: from before there were versions."""
    capsule = DeviceArray.empty((4,), "float8_e4m3fnuz").__dlpack__(max_version=asked)
    if version is None:
        tensor = dlpack._Managed.from_address(dlpack._get_pointer(capsule, b"dltensor")).dl_tensor
    else:
        address = dlpack._get_pointer(capsule, b"dltensor_versioned")
        managed = dlpack._ManagedVersioned.from_address(address)
        assert (managed.major, managed.minor) == version
        tensor = managed.dl_tensor
    # dlpack.h: kDLFloat8_e4m3fnuz is 11.
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (11, 8, 1)


def test_dlpack_type_names() -> None:
    """dlpack.h's codes, by the names NumPy and ml_dtypes have for the types."""
    names = {
        (2, 16): "float16",
        (4, 16): "bfloat16",
        (1, 8): "uint8",
        (6, 8): "bool",
        (10, 8): "float8_e4m3fn",
    }
    for (code, bits), name in names.items():
        assert dlpack._dtype_name(dlpack._DataType(code, bits, 1)) == name
    assert dlpack._dtype_name(dlpack._DataType(2, 32, 4)) == "float32x4"
    assert dlpack._dtype_name(dlpack._DataType(17, 4, 2)) == "type code 17 4x2"


@pytest.mark.parametrize("wrap", [Foreign, OldForeign, CudaArray])
def test_attention_on_foreign_arrays(wrap: Any) -> None:
    """Any wrapper gives the same bits, with `out` and without."""
    rng = np.random.default_rng(5)
    hosts = [rng.standard_normal((1, 70, 2, 64), np.float32).astype(np.float16) for _ in range(3)]
    q, k, v = (DeviceArray.from_numpy(host) for host in hosts)
    want = flash_attn_func(q, k, v, causal=True).to_numpy()
    got = flash_attn_func(wrap(q), wrap(k), wrap(v), causal=True)
    assert isinstance(got, DeviceArray)
    assert got.to_numpy().tobytes() == want.tobytes()
    out = DeviceArray.from_numpy(np.zeros((1, 70, 2, 64), np.float16))
    wrapped = wrap(out)
    assert flash_attn_func(q, k, v, causal=True, out=wrapped) is wrapped
    assert out.to_numpy().tobytes() == want.tobytes()


def test_result_is_ready_on_the_consumers_stream() -> None:
    """Exporting an output waits for the kernel, unless the consumer uses the very stream it runs on."""
    q = DeviceArray.from_numpy(np.ones((1, 300, 2, 64), np.float16))
    with Stream() as stream:
        out = flash_attn_func(q, q, q, stream=stream)
        assert out._buffer.written_on == stream.handle
        out.__dlpack__(stream=stream.handle)
        assert out._buffer.written_on == stream.handle
        out.__dlpack__(stream=-1)
        assert out._buffer.written_on == stream.handle
        out.__dlpack__(stream=0)
        assert out._buffer.written_on is None
        out, lse = flash_attn_func(q, q, q, stream=stream, return_lse=True)
        assert lse.__cuda_array_interface__["stream"] is None
        assert lse._buffer.written_on is None
        assert (out.to_numpy() == 1).all()
