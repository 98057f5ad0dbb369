# SPDX-License-Identifier: MIT OR Apache-2.0
"""A stream's calls as a graph that tests replay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import pyfa_rocm as p
from pyfa_rocm._runtime import hip


def upload(target: p.DeviceArray, host: np.ndarray) -> None:
    kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
    hip.call("hipMemcpy", target.data, host.ctypes.data, host.nbytes, kind)


class Graph:
    """The work that a function enqueues on a stream, recorded after a first run that loads its kernel."""

    def __init__(self, enqueue: Callable[[p.Stream], object], stream: p.Stream) -> None:
        enqueue(stream)
        stream.synchronize()
        hip.call("hipStreamBeginCapture", stream.handle, hip.module().hipStreamCaptureMode(0))
        enqueue(stream)
        self._graph = hip.call("hipStreamEndCapture", stream.handle)
        self._executable = hip.call("hipGraphInstantiateWithFlags", self._graph, 0)
        self._stream = stream

    def replay(self) -> None:
        hip.call("hipGraphLaunch", self._executable, self._stream.handle)
        self._stream.synchronize()

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *exception: object) -> None:
        hip.call("hipGraphExecDestroy", self._executable)
        hip.call("hipGraphDestroy", self._graph)
