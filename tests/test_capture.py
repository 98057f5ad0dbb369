# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention under graph capture: recorded once, replayed on what the same memory holds then."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pyfa_rocm as p
from pyfa_rocm import _hip

_SHAPE = (1, 90, 2, 128)


def _upload(target: p.DeviceArray, host: np.ndarray) -> None:
    kind = _hip.module().hipMemcpyKind.hipMemcpyHostToDevice
    _hip.call("hipMemcpy", target.data, host.ctypes.data, host.nbytes, kind)


@pytest.mark.parametrize("causal", [False, True])
def test_replays_compute_on_new_data(causal: bool) -> None:
    """Bit for bit what the call gives, for each new set of inputs."""
    rng = np.random.default_rng(4)
    q, k, v, o = (p.DeviceArray.from_numpy(np.zeros(_SHAPE, np.float16)) for _ in range(4))
    scale = 1 / math.sqrt(_SHAPE[-1])

    def attend(stream: p.Stream) -> None:
        p.flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, out=o, stream=stream)

    with p.Stream() as stream:
        attend(stream)  # loads the kernel
        stream.synchronize()
        _hip.call("hipStreamBeginCapture", stream.handle, _hip.module().hipStreamCaptureMode(0))
        attend(stream)
        graph = _hip.call("hipStreamEndCapture", stream.handle)
        executable = _hip.call("hipGraphInstantiateWithFlags", graph, 0)
        for _ in range(2):
            for array in (q, k, v):
                _upload(array, rng.standard_normal(_SHAPE).astype(np.float16))
            _hip.call("hipGraphLaunch", executable, stream.handle)
            stream.synchronize()
            replayed = o.to_numpy()
            attend(stream)
            stream.synchronize()
            assert np.abs(replayed.astype(np.float32)).max() > 0
            np.testing.assert_array_equal(o.to_numpy(), replayed)
        _hip.call("hipGraphExecDestroy", executable)
        _hip.call("hipGraphDestroy", graph)
