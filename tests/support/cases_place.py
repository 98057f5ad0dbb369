# SPDX-License-Identifier: MIT OR Apache-2.0
"""A case's tensors on the device.

Every tensor lives inside a larger buffer filled with NaN (0xFF bytes if it is of integers): a kernel that
reads beyond its tensors gives NaN, and the canary around the outputs must stay as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from cases_types import DTYPES, Array, Bools, Case, Layout
from strict import only_initialized, read_only

import pyfa_rocm
from pyfa_rocm import DeviceArray, FwdParams, Lse, Strided

# A stride that no tensor has: the library says that it does not read it, and would refuse it.
NOT_READ = 12345
_OUTPUTS = ("o", "lse", "randval")
_WORKSPACE = Layout(start=256)


def canary(size: int, dtype: npt.DTypeLike) -> Array:
    """A 1-d array of NaN, or of bytes 0xFF."""
    dtype = np.dtype(dtype)
    byte = 0x80 if "fnuz" in dtype.name else 0xFF
    return np.full(size * dtype.itemsize, byte, np.uint8).view(dtype)


def bits(array: Array) -> Array:
    """The same bytes, which compare equal where NaNs would not."""
    return np.ascontiguousarray(array).view(np.uint8)


@dataclass
class Placed:
    """A tensor inside its canary-filled buffer, on both sides. `used`: which elements are the tensor's."""

    layout: Layout
    shape: tuple[int, ...]
    host: Array
    buffer: DeviceArray
    used: Bools

    @classmethod
    def put(
        cls,
        layout: Layout,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        data: Array | None,
        used: Bools | None = None,
    ) -> Placed:
        host = canary(layout.size(shape), dtype)
        used = np.broadcast_to(True if used is None else used, shape)
        if data is not None:
            layout.view(host, shape)[used] = data[used]
        return cls(layout, shape, host, DeviceArray.from_numpy(host), used)

    @property
    def array(self) -> DeviceArray:
        view = self.layout.view(self.buffer, self.shape)
        assert isinstance(view, DeviceArray)
        return view

    def strided(self) -> Strided:
        return Strided(self.array.data, *self.array.strides[:3])

    def watch(self, holds_input: bool) -> None:
        """Have the software device report a kernel that reads of the buffer what is not input."""
        written = np.zeros(self.host.size, np.bool_)
        if holds_input:
            self.layout.view(written, self.shape)[self.used] = True
        only_initialized(self.buffer.data, self.host.nbytes, np.repeat(written, self.host.itemsize))

    def unchanged(self) -> bool:
        return bool(np.array_equal(bits(self.buffer.to_numpy()), bits(self.host)))

    def take(self) -> Array:
        """Return what was written to the tensor, after checking that nothing else was."""
        now = self.buffer.to_numpy()
        result = np.array(self.layout.view(now, self.shape))
        view, before = (self.layout.view(x, self.shape) for x in (now, self.host))
        view[self.used] = before[self.used]
        assert np.array_equal(bits(now), bits(self.host)), "bytes outside the output were written"
        return result


def _row(data: Array, layout: Layout | None = None) -> Placed:
    """A small tensor of one or two dimensions."""
    shape = (1, *data.shape[:-1], 1, data.shape[-1]) if data.ndim == 2 else (1, 1, 1, data.shape[-1])
    return Placed.put(layout or Layout(), shape, data.dtype, data.reshape(shape))


class Placement:
    """All tensors of a case on the device."""

    def __init__(self, case: Case, inputs: list[Array] | None = None) -> None:
        self.case = case
        self.inputs = case.inputs() if inputs is None else inputs
        self.tensors: dict[str, Placed] = {}
        self._put_inputs()
        self._put_features()
        self._put_outputs()
        self.workspace: Placed | None = None

    def __getattr__(self, name: str) -> Placed:
        try:
            return self.tensors[name]
        except KeyError:
            raise AttributeError(name) from None

    def _put_inputs(self) -> None:
        case, dtype = self.case, DTYPES[self.case.dtype]
        rows_q, rows_k = case.rows_in_use()
        shapes, rows = (case.q_shape, case.k_shape, case.v_shape), (rows_q, rows_k, rows_k)
        for name, layout, shape, data, used in zip(
            "qkv", case.layouts[:3], shapes, self.inputs, rows, strict=True
        ):
            held = (
                shape
                if name == "q"
                else (_one(shape[0], case, 0), shape[1], _one(shape[2], case, 1), shape[3])
            )
            data = data[: held[0], :, : held[2]]
            self.tensors[name] = Placed.put(layout, held, dtype, data, used[:, None, None])

    def _put_features(self) -> None:
        case, varlen, dropout = self.case, self.case.varlen, self.case.dropout
        if case.bias is not None:
            used = np.broadcast_to(self._bias_used(), case.bias_shape)
            dtype = DTYPES[case.dtype]
            self.tensors["bias"] = Placed.put(
                case.bias.layout, case.bias_shape, dtype, case.bias_data(), used
            )
        if case.alibi:
            self.tensors["slopes"] = _row(case.slopes(), Layout(gaps=(0, 0, 0, 3)))
        if case.sinks:
            self.tensors["sinks"] = _row(case.sink_data())
        if varlen is not None:
            self.tensors["cu_q"], self.tensors["cu_k"] = (
                _row(np.array(x, np.int32)) for x in (varlen.cu_q, varlen.cu_k)
            )
            if varlen.slack_q is not None:
                self.tensors["used_q"] = _row(np.array(varlen.lengths_q, np.int32))
            if varlen.slack_k is not None:
                self.tensors["used_k"] = _row(np.array(varlen.lengths_k, np.int32))
        if dropout is not None and dropout.on_device:
            self.tensors["philox"] = _row(np.array([dropout.seed, dropout.offset], np.uint64))

    def _bias_used(self) -> Bools:
        """Return which elements of a bias belong to a row and a key; (slots, 1, rows, keys)."""
        case = self.case
        used = np.zeros((case.slots, 1, case.total_q, case.seqlen_k), np.bool_)
        for _, slot, rows, keys in case.sequences():
            used[slot, :, rows, : keys.stop - keys.start] = True
        assert case.bias is not None
        shared = tuple(dim for dim in (0, 2) if not case.bias.dims[dim])
        return np.asarray(used.any(axis=shared, keepdims=True)) if shared else used

    def _put_outputs(self) -> None:
        case, layout = self.case, self.case.layouts[3]
        rows = case.rows_in_use()[0]
        self.tensors["o"] = Placed.put(
            layout, case.o_shape, DTYPES[case.out_dtype], None, rows[:, None, None]
        )
        # The LSE has no fourth dimension; its gaps are those of O's batch, head and rows.
        shape = (case.slots, case.nhead_q, case.total_q, 1)
        gaps = (layout.gaps[0], layout.gaps[2], layout.gaps[1], 0)
        self.tensors["lse"] = Placed.put(Layout((0, 1, 2), gaps), shape, "float32", None, rows[:, None])
        if case.dropout is not None and case.dropout.randval:
            shape = (case.slots, case.nhead_q, case.total_q, case.seqlen_k)
            used = np.zeros((case.slots, 1, *shape[2:]), np.bool_)
            for _, slot, of_q, of_k in case.sequences():
                used[slot, :, of_q, : of_k.stop - of_k.start] = True
            gaps = (layout.gaps[0], layout.gaps[2], layout.gaps[1], layout.gaps[3] + 3)
            self.tensors["randval"] = Placed.put(
                Layout(layout.order, gaps), shape, np.uint8, None, np.broadcast_to(used, shape)
            )

    def params(self) -> FwdParams:
        """Arguments of the raw functions."""
        case = self.case
        q, k, v, o = (self._strides(name) for name in ("q", "k", "v", "o"))
        if case.varlen is not None:
            q, k, v, o = (x._replace(stride_batch=NOT_READ) for x in (q, k, v, o))
        hdim_v = case.hdim_v or case.hdim
        fields: dict[str, Any] = dict(
            dtype=case.dtype, batch=case.batch, seqlen_q=case.seqlen_q, seqlen_k=case.seqlen_k,
            nhead_q=case.nhead_q, nhead_k=case.nhead_k, hdim_q=case.hdim, hdim_v=hdim_v,
            softmax_scale=case.hdim**-0.5 if case.scale is None else case.scale, q=q, k=k, v=v, o=o,
            lse=self._lse(), kernel=case.kernel, softcap=case.softcap, **case.mask_fields(),
        )  # fmt: skip
        if case.sinks:
            fields["sinks"] = self.tensors["sinks"].array.data
        if case.o_dtype:
            fields["o_dtype"] = case.o_dtype
        if case.descale != (1.0, 1.0, 1.0):
            fields |= dict(zip(("q_descale", "k_descale", "v_descale"), case.descale, strict=True))
        return FwdParams(**fields, **self._bias_fields(), **self._varlen_fields(), **self._dropout_fields())

    def add_workspace(self, params: FwdParams) -> int:
        """Give a call a workspace of the size that it asks for, of which it says how much."""
        nbytes = pyfa_rocm.fmha_fwd_workspace_bytes(params)
        if nbytes:
            self.workspace = Placed.put(_WORKSPACE, (1, 1, 1, nbytes), np.uint8, None)
            params.workspace, params.workspace_bytes = self.workspace.array.data, nbytes
        return nbytes

    def _strides(self, name: str) -> Strided:
        """Strides of a tensor, 0 where K and V are shared."""
        strides = self.tensors[name].strided()
        if name in "kv":
            batch, head = self.case.broadcast_kv
            strides = strides._replace(**({"stride_batch": 0} if batch else {}))
            strides = strides._replace(**({"stride_head": 0} if head else {}))
        return strides

    def flash(self, name: str) -> DeviceArray:
        """A tensor as flash-attention's functions take it: with the sizes of dimensions that are shared."""
        array = self.tensors[name].array
        case = self.case
        if name not in "kv" or not any(case.broadcast_kv):
            return array
        shape = (case.slots, array.shape[1], case.nhead_k, array.shape[3])
        return array._view(0, shape, (*self._strides(name)[1:], 1))

    def _lse(self) -> Lse | None:
        if not self.case.lse:
            return None
        array = self.tensors["lse"].array
        return Lse(array.data, NOT_READ if self.case.varlen else array.strides[0], array.strides[1])

    def _bias_fields(self) -> dict[str, Any]:
        case = self.case
        if case.bias is not None:
            array = self.tensors["bias"].array
            strides = [n if has else 0 for n, has in zip(array.strides[:3], case.bias.dims, strict=True)]
            if case.varlen:
                strides[0] = NOT_READ
            return {"bias": pyfa_rocm.Bias(array.data, *strides)}
        if case.alibi:
            array = self.tensors["slopes"].array
            return {
                "alibi_slopes": array.data,
                "alibi_stride_batch": array.strides[1] if case.alibi == 2 else 0,
            }
        return {}

    def _varlen_fields(self) -> dict[str, Any]:
        if self.case.varlen is None:
            return {}
        names = {"cu_q": "cu_seqlens_q", "cu_k": "cu_seqlens_k", "used_q": "seqused_q", "used_k": "seqused_k"}
        fields = {
            field: self.tensors[name].array.data for name, field in names.items() if name in self.tensors
        }
        return fields | {"total_q": self.case.total_q, "total_k": self.case.total_k}

    def _dropout_fields(self) -> dict[str, Any]:
        dropout = self.case.dropout
        if dropout is None:
            return {}
        fields: dict[str, Any] = {"p_drop": dropout.p}
        if dropout.on_device:
            fields["philox_seed_offset"] = self.tensors["philox"].array.data
        else:
            fields |= {"philox_seed": dropout.seed, "philox_offset": dropout.offset}
        if dropout.randval:
            array = self.tensors["randval"].array
            strides = array.strides[:3]
            batch = NOT_READ if self.case.varlen else strides[0]
            fields["randval"] = pyfa_rocm.RandVal(array.data, batch, *strides[1:])
        return fields

    @contextmanager
    def watched(self) -> Iterator[None]:
        """On the software device, kernels launched inside may read the inputs, but not write them."""
        for name, placed in self.tensors.items():
            placed.watch(holds_input=name not in _OUTPUTS)
        if self.workspace is not None:
            self.workspace.watch(holds_input=False)
        inputs = [placed for name, placed in self.tensors.items() if name not in _OUTPUTS]
        with read_only((placed.buffer.data, placed.host.nbytes) for placed in inputs):
            yield

    def unchanged(self) -> bool:
        """Tell whether the device's memory is what was put there, outputs included."""
        return all(placed.unchanged() for placed in self.tensors.values())

    def results(self) -> tuple[Array, Array | None]:
        """O and LSE of the rows in use, after checking that inputs and surroundings are as they were."""
        for name, placed in self.tensors.items():
            assert name in _OUTPUTS or placed.unchanged(), f"{name} was written"
        if self.workspace is not None:
            self.workspace.take()
        rows = self.case.rows_in_use()[0]
        o, lse = self.o.take()[:, rows], self.lse.take()[..., 0][..., rows]
        if self.case.lse:
            return o, lse
        assert self.lse.unchanged(), "the LSE was written though it was not asked for"
        return o, None


def _one(n: int, case: Case, which: int) -> int:
    """Size that a dimension of K and V has in memory."""
    return min(n, 1) if case.broadcast_kv[which] else n


def without_lse(case: Case) -> Case:
    return replace(case, lse=False)
