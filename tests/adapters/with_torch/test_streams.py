# SPDX-License-Identifier: MIT OR Apache-2.0
"""The stream of torch's tensors and of the array interface; what is no array. CuPy's are in tests/clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyfa_rocm as p
from pyfa_rocm.device import current_stream

SHAPE = (2, 70, 2, 128)


def test_a_cpu_tensor_has_the_null_stream() -> None:
    assert current_stream(torch.zeros(3)) == 0


@pytest.mark.parametrize("stream", [-1, True, "1", 2.0])
def test_stream_of_the_interface_is_checked(stream: object) -> None:
    memory = p.DeviceArray.from_numpy(np.zeros(SHAPE, np.float16))
    interface = memory.__cuda_array_interface__ | {"stream": stream}
    array = type("Array", (), {"__cuda_array_interface__": interface})()
    with pytest.raises(p.InvalidArgumentError, match="q: __cuda_array_interface__ has the stream"):
        p.flash_attn_func(array, array, array)


def test_torch_stream_of_the_tensors_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has no GPU here: its public functions are asked as they would be with one."""
    asked = []

    class Tensor(torch.Tensor):
        is_cuda = property(lambda _: True)

    class Current:
        cuda_stream = 4711

    def current(device: Any) -> Current:
        asked.append(device)
        return Current()

    monkeypatch.setattr(torch.cuda, "current_stream", current)
    tensor = torch.zeros(3).as_subclass(Tensor)
    assert current_stream(tensor) == 4711
    assert asked == [tensor.device]


@pytest.mark.parametrize("q", [torch.nn.Linear(2, 2), torch.Size((1, 2)), torch.float16], ids=str)
def test_what_is_no_array_is_refused_as_such(q: Any) -> None:
    array = p.DeviceArray.from_numpy(np.zeros(SHAPE, np.float16))
    with pytest.raises(TypeError, match=r"q: got \w+, expected a pyfa_rocm\.DeviceArray or"):
        p.flash_attn_func(q, array, array)
