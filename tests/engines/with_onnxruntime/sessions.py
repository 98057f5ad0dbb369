# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of one node, and what runs them: our provider and no other, or ONNX Runtime's own for the CPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

Array = npt.NDArray[Any]

PROVIDER = "FmhaRocmExecutionProvider"
LIBRARY = os.environ.get(
    "FMHA_ONNXRUNTIME_LIBRARY",
    str(Path(__file__).resolve().parents[3] / "build/release/libfmha_onnxruntime.so"),
)
DTYPES = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}
_TYPES = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def _widened(value: Array | None) -> Array | None:
    if value is None or value.dtype.name not in ("float16", "bfloat16"):
        return value
    return value.astype(np.float32)


@dataclass
class Case:
    """A node with its inputs: None leaves one out, and a name in `shapes` replaces a size by a symbol.

    Inputs in `constants` are part of the model.
    """

    op: str
    inputs: dict[str, Array | None]
    outputs: Sequence[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = "com.microsoft"
    opset: int = 21
    shapes: dict[str, Sequence[Any]] = field(default_factory=dict)
    constants: Sequence[str] = ()

    def feeds(self) -> dict[str, Array]:
        """The inputs of the model."""
        given = {k: v for k, v in self.inputs.items() if v is not None and k not in self.constants}
        return {k: np.ascontiguousarray(v) for k, v in given.items()}

    def model(self) -> bytes:
        """The model of this node."""
        names = [name if value is not None else "" for name, value in self.inputs.items()]
        while names[-1] == "":
            names.pop()
        node = helper.make_node(
            self.op, names, list(self.outputs), name="node", domain=self.domain, **self.attributes
        )
        graph = helper.make_graph([node], "graph", [*map(self._info, self.feeds())], self._results())
        graph.initializer.extend(self._constant(name) for name in self.constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
        return bytes(model.SerializeToString())

    def widened(self) -> Case:
        """The same in float32, which ONNX Runtime's own provider computes with."""
        inputs = {name: _widened(value) for name, value in self.inputs.items()}
        return replace(self, inputs=inputs)

    def _info(self, name: str) -> onnx.ValueInfoProto:
        value = self.inputs[name]
        assert value is not None
        return helper.make_tensor_value_info(
            name, _TYPES[value.dtype.name], self.shapes.get(name, value.shape)
        )

    def _results(self) -> list[onnx.ValueInfoProto]:
        dtype = next(v.dtype.name for v in self.inputs.values() if v is not None)
        return [
            helper.make_tensor_value_info(name, _TYPES[dtype], self.shapes.get(name))
            for name in self.outputs
            if name
        ]

    def _constant(self, name: str) -> onnx.TensorProto:
        value = self.inputs[name]
        assert value is not None
        return helper.make_tensor(name, _TYPES[value.dtype.name], value.shape, value.tobytes(), raw=True)


def device(number: int = 0) -> ort.OrtEpDevice:
    """Our provider's device of this number."""
    found = [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER]
    return next(d for d in found if d.ep_metadata["hip_device"] == str(number))


def our_session(model: bytes, *, only: bool = True, number: int = 0) -> ort.InferenceSession:
    """A session with our provider; with `only` it is an error if a node runs elsewhere."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if only:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices([device(number)], {})
    return ort.InferenceSession(model, options)


def cpu_session(model: bytes) -> ort.InferenceSession:
    """A session with ONNX Runtime's own provider."""
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def to_value(array: Array) -> ort.OrtValue:
    """A contiguous array in ONNX Runtime's hands, which may go on to use its memory."""
    if array.dtype.name == "bfloat16":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def to_array(value: ort.OrtValue) -> Array:
    """A copy of an array in ONNX Runtime's hands, in the host's memory."""
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    raw = ctypes.string_at(value.data_ptr(), 2 * int(np.prod(shape)))
    return np.frombuffer(raw, ml_dtypes.bfloat16).reshape(shape)


def run(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of a session."""
    values = {name: to_value(array) for name, array in feeds.items()}
    return [to_array(value) for value in session.run_with_ort_values(None, values)]


def ours(case: Case) -> list[Array]:
    """The case on our provider, which takes its node."""
    return run(our_session(case.model()), case.feeds())


def theirs(case: Case) -> list[Array]:
    """The case on ONNX Runtime's own provider, in float32."""
    wide = case.widened()
    return run(cpu_session(wide.model()), wide.feeds())


def is_refused(case: Case) -> bool:
    """Return whether our provider leaves the node to others."""
    try:
        our_session(case.model())
    except Exception as error:
        # There is another provider that takes the node, or there is none.
        refusals = ("fallback to CPU EP has been explicitly disabled", "name 'node' is not set")
        if any(refusal in str(error) for refusal in refusals):
            return True
        raise
    return False
