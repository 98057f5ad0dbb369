# SPDX-License-Identifier: MIT OR Apache-2.0
"""The kernels that the clock can time: the library's kernels, and AITER's code objects from a folder.

Arrays have their real sizes; memory of the software device costs nothing until it is touched. The heads that
sampled workgroups read hold normal numbers, so that code which looks at its data takes its usual branches.
"""

from __future__ import annotations

import ctypes
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyfa_rocm import array, fmha
from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm._runtime import hip
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.clock.cards import played
from pyfa_rocm.clock.code import Code, Launch, loaded
from pyfa_rocm.device import devices
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.oracle.params import candidates, forward_params
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.rounding import P_SCALES

__all__ = [
    "ROUNDINGS",
    "Aiter",
    "AiterBackward",
    "AiterBackwardObject",
    "AiterForward",
    "CompositeKernel",
    "Enqueue",
    "Ours",
    "Peer",
    "ProblemArrays",
    "Subject",
    "subjects",
]

ROUNDINGS = ("rtz", "rtna", "rtne")
# Rows of normal numbers; longer heads repeat them.
_ROWS = 1024
# Query rows of a workgroup's tile, and threads of a workgroup, of AITER's forward kernels.
_AITER_TILE, _AITER_THREADS = 256, 512
# Keys of a workgroup's tile, and threads of a workgroup, of its backward kernels for this head dim.
_AITER_TILE_KEYS, _AITER_BACKWARD_THREADS = 192, 256
# Part of the name of the kernel that makes dQ of its float32 sums.
_SUM_OF_DQ = "_bwd_sum_"
_AITER_HDIM = 128
_AITER_DOES = ("forward", _AITER_HDIM, "bfloat16")
# Names of main loops: how those of Composable Kernel begin, forward and backward, and of AITER's objects.
_CK_PIPELINES = ("qr", "kr")
_AITER_PIPELINE = "asm_v3"
_ELEMENT_BYTES = 2
_XCDS = 8
# Where a checkout has AITER's objects for an MI300X; an installed package has none.
_UNPACKED = Path(__file__).parents[2] / "build" / "toolchain" / "ck" / "objects"
_OBJECTS = next(_UNPACKED.glob("*/fmha_v3_fwd/MI300"), _UNPACKED)


def _representatives(n: int) -> list[int]:
    """The first, the last and those in the middle of n: where the clock samples."""
    return sorted({0, (n - 1) // 2, n // 2, n - 1})


def _sampled_heads(batch: int, nhead: int) -> set[int]:
    """The query heads, counted through all batches, that samples of a grid read.

    Grids have batches and heads as axes, or one of all heads, or two of them: XCDs, and the heads of each.
    """
    heads = {b * nhead + h for b in _representatives(batch) for h in _representatives(nhead)}
    total = batch * nhead
    if total % _XCDS == 0:
        each = total // _XCDS
        heads |= {xcd * each + each // 2 for xcd in _representatives(_XCDS)}
        heads |= {_XCDS // 2 * each + head for head in _representatives(each)}
    return heads | set(_representatives(total))


class ProblemArrays:
    """q, k, v, O and LSE of a problem, (batch, nhead, seqlen, hdim); LSE has no hdim."""

    def __init__(self, shape: Problem) -> None:
        self.shape = shape
        o_dtype = "bfloat16" if shape.dtype in P_SCALES else shape.dtype
        self.q, self.o = self._array(shape.nhead_q, shape.dtype), self._array(shape.nhead_q, o_dtype)
        self.k, self.v = (self._array(shape.nhead_k, shape.dtype) for _ in "kv")
        self.lse = DeviceArray.empty((shape.batch, shape.nhead_q, shape.seqlen), np.float32)
        rng = np.random.default_rng(0)
        for tensor in (self.q, self.k, self.v):
            self._fill(tensor, rng)
        self._scratch: list[DeviceArray] = []

    def scratch(self, shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        """Return a further array, which lives as long as these."""
        return self._hold(DeviceArray.empty(shape, dtype))

    def _hold(self, array: DeviceArray) -> DeviceArray:
        self._scratch.append(array)
        return array

    def _array(self, nhead: int, dtype: str) -> DeviceArray:
        shape = self.shape
        return DeviceArray.empty((shape.batch, nhead, shape.seqlen, shape.hdim), dtype)

    def _fill(self, tensor: DeviceArray, rng: np.random.Generator) -> None:
        """Write the heads that samples read."""
        nhead_q, nhead = self.shape.nhead_q, tensor.shape[1]
        heads = {divmod(head, nhead_q) for head in _sampled_heads(self.shape.batch, nhead_q)}
        self._write(tensor, rng, {batch * nhead + head * nhead // nhead_q for batch, head in heads})

    def _write(self, tensor: DeviceArray, rng: np.random.Generator, heads: set[int]) -> None:
        """Write normal numbers to heads, counted through all batches."""
        shape = self.shape
        rows = rng.standard_normal((_ROWS, shape.hdim), np.float32).astype(array.dtype_of(shape.dtype))
        host = np.resize(rows, (shape.seqlen, shape.hdim))
        kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
        for head in sorted(heads):
            hip.call("hipMemcpy", tensor.data + head * host.nbytes, host.ctypes.data, host.nbytes, kind)

    def fill_all(self) -> None:
        """Write all heads of q, k and v: a card reads them."""
        rng = np.random.default_rng(0)
        for tensor in (self.q, self.k, self.v):
            self._write(tensor, rng, set(range(tensor.shape[0] * tensor.shape[1])))

    def fill_heads(self, heads: set[int]) -> None:
        """Write further heads of q, k and v, which have as many; they count through all batches."""
        rng = np.random.default_rng(1)
        for tensor in (self.q, self.k, self.v):
            self._write(tensor, rng, heads)

    def params(self) -> FwdParams:
        """Describe the forward pass to the library, which wants (batch, seqlen, nhead, hdim)."""
        tensors = {"q": self.q, "k": self.k, "v": self.v, "out": self.o}
        arrays = {name: x.transpose(0, 2, 1, 3) for name, x in tensors.items()} | {"lse": self.lse}
        if self.shape.lengths:
            starts = self._hold(DeviceArray.from_numpy(self.shape.starts()))
            arrays = {name: x[0] for name, x in arrays.items()}
            arrays |= dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), starts)
        return forward_params(self.shape, **arrays)


@dataclass(frozen=True)
class Enqueue:
    """A problem that is ready: the name of the kernel that it runs, and what enqueues its launches.

    Launches whose kernels have one of the words of `untimed` in their names do not count.
    """

    kernel: str
    call: Callable[[], None]
    untimed: tuple[str, ...] = ()


class Subject(ABC):
    """A way to compute attention."""

    name: str
    directions: tuple[str, ...] = ("forward", "backward")  # that it may do

    def variants(self) -> Sequence[Subject]:
        """Return the ways of which the fastest is taken, as one that tunes itself does on a card."""
        return (self,)

    @abstractmethod
    def prepare(self, shape: Problem, direction: str) -> AbstractContextManager[Enqueue]:
        """Hold a problem's arrays for a block; UnsupportedError: it cannot be done this way."""


class Peer(Subject):
    """A way to compute attention by launches of others' code objects, beside ours."""

    @abstractmethod
    def launches(self, arrays: ProblemArrays, direction: str) -> list[Launch]:
        """Return what runs, in order, on a problem's arrays; UnsupportedError: it cannot be done this way."""

    @contextmanager
    def prepare(self, shape: Problem, direction: str) -> Iterator[Enqueue]:
        """See Subject."""
        arrays = ProblemArrays(shape)
        launches = self.launches(arrays, direction)

        def call() -> None:
            for each in launches:
                each.enqueue()

        yield Enqueue(self.name, call)


class Ours(Subject):
    """The library's own choice."""

    name = "pyfa_rocm"

    def choose(self, params: FwdParams | BwdParams, info: Callable[[Any], fmha.KernelInfo]) -> None:
        """Set `params.kernel`."""

    @contextmanager
    def prepare(self, shape: Problem, direction: str) -> Iterator[Enqueue]:
        """See Subject."""
        arrays = ProblemArrays(shape)
        yield self._forward(arrays) if direction == "forward" else self._backward(arrays)

    def _forward(self, arrays: ProblemArrays) -> Enqueue:
        params = arrays.params()
        self.choose(params, fmha.fmha_fwd_kernel)
        workspace = _workspace(params, fmha.fmha_fwd_workspace_bytes(params))
        fmha.fmha_fwd_prepare(params)

        def call(held: object = workspace) -> None:
            fmha.fmha_fwd(params)

        return Enqueue(fmha.fmha_fwd_kernel(params).name, call)

    def _backward(self, arrays: ProblemArrays) -> Enqueue:
        gradients = [DeviceArray.empty(x.shape, x.dtype) for x in (arrays.q, arrays.k, arrays.v)]
        fwd = arrays.params()
        dq, dk, dv = (
            x._replace(data=to.data) for x, to in zip((fwd.q, fwd.k, fwd.v), gradients, strict=True)
        )
        params = BwdParams(fwd, fwd.o, dq, dk, dv)
        self.choose(params, fmha.fmha_bwd_kernel)
        workspace = _workspace(params, fmha.fmha_bwd_workspace_bytes(params))
        fmha.fmha_bwd_prepare(params)

        def call(held: object = (gradients, workspace)) -> None:
            fmha.fmha_bwd(params)

        return Enqueue(fmha.fmha_bwd_kernel(params).name, call)


def _workspace(params: FwdParams | BwdParams, nbytes: int) -> DeviceArray:
    """Allocate a workspace and name it in the parameters."""
    workspace = DeviceArray.empty((nbytes,), np.uint8)
    params.workspace, params.workspace_bytes = workspace.data if nbytes else 0, nbytes
    return workspace


def _choose_pipeline(
    params: FwdParams | BwdParams, info: Callable[[Any], fmha.KernelInfo], pipelines: tuple[str, ...]
) -> bool:
    """Set `params.kernel` to the best candidate whose main loop's name begins so; False: there is none."""
    return any(kernel.pipeline.startswith(pipelines) for kernel in candidates(params, info))


class CompositeKernel(Ours):
    """The library's best kernel from Composable Kernel, as flash-attention compiles them."""

    name = "ck"

    def choose(self, params: FwdParams | BwdParams, info: Callable[[Any], fmha.KernelInfo]) -> None:
        """See Ours."""
        if not _choose_pipeline(params, info, _CK_PIPELINES):
            raise UnsupportedError("the library has no kernel of Composable Kernel for this problem")


class _EmbeddedAiter(Ours):
    """Kernels of AITER that the library embeds."""

    def choose(self, params: FwdParams | BwdParams, info: Callable[[Any], fmha.KernelInfo]) -> None:
        """See Ours."""
        if not _choose_pipeline(params, info, (_AITER_PIPELINE,)):
            raise UnsupportedError(
                f"the library has no kernel of AITER for this problem{_why_not_embedded(params)}"
            )


def _why_not_embedded(params: FwdParams | BwdParams) -> str:
    """Say what is wrong with a kernel of AITER that native/kernels/prebuilt leaves out, if it is a race."""
    fwd = params.fwd if isinstance(params, BwdParams) else params
    races = "MI355X" in devices()[0].name and fwd.hdim_q == _AITER_HDIM and fwd.mask == "causal"
    return ": for this card its causal ones of head dim 128 race for LDS" if races else ""


class AiterBackward(_EmbeddedAiter):
    """AITER's backward kernels with a float32 dQ, as the library embeds them.

    Query heads that share a key head: every query head has gradients of its own, as in AITER's own program,
    which times no sum of them. Here it also has keys and values of its own.
    """

    name = "aiter backward a32"
    directions = ("backward",)

    @contextmanager
    def prepare(self, shape: Problem, direction: str) -> Iterator[Enqueue]:
        """See Subject."""
        if direction != "backward":
            raise UnsupportedError(f"AITER's backward kernels: got direction {direction!r}")
        with super().prepare(replace(shape, nhead_k=shape.nhead_q), direction) as enqueue:
            yield enqueue


class AiterBackwardObject(AiterBackward):
    """AITER's backward kernels for an MI300X that truncate, and add up dQ in a type: "a32" or "a16".

    The folder has their code objects. The library launches the kernels around its own kernel of AITER's: they
    make D, and dQ of float32 sums. They count, and its own does not.
    """

    def __init__(self, folder: Path, sums: str) -> None:
        self.name = f"aiter backward {sums} rtz"
        self._folder, self._float = folder, sums == "a32"

    def path(self, causal: bool) -> Path:
        """Return the code object of a mask."""
        kind = "a32_rtz_psskddv" if self._float else "a16_rtz"
        return self._folder / f"bwd_hd{_AITER_HDIM}_bf16_{'causal_' if causal else ''}{kind}.co"

    def _backward(self, arrays: ProblemArrays) -> Enqueue:
        shape = arrays.shape
        around = super()._backward(arrays)
        code, kernel = _aiter_code(self.path(shape.causal))
        sums = DeviceArray.empty(arrays.q.shape, np.float32 if self._float else shape.dtype)
        dk, dv = (DeviceArray.empty(x.shape, x.dtype) for x in (arrays.k, arrays.v))
        tensors = (sums, dk, dv, arrays.q, arrays.k, arrays.v, arrays.o, arrays.lse, arrays.lse)
        words = self._arguments(shape, arrays.q, tensors)
        tiles = -(-shape.seqlen // _AITER_TILE_KEYS)
        grid = (-(-tiles // 2) if shape.causal else tiles, shape.nhead_q, shape.batch)

        own = Launch(code, kernel, grid, _AITER_BACKWARD_THREADS, words)

        def call(held: object = tensors) -> None:
            around.call()
            own.enqueue()

        untimed = ("_rtne_",) if self._float else ("_rtne_", _SUM_OF_DQ)
        return Enqueue(self.name, call, untimed)

    def _arguments(
        self, shape: Problem, q: DeviceArray, tensors: tuple[DeviceArray, ...]
    ) -> ctypes.Array[Any]:
        """Return the argument struct; its slots have 8 bytes for "a32", and 16 for "a16".

        All tensors have the strides of `q`.
        """
        batch, head, row, _ = (stride * _ELEMENT_BYTES for stride in q.strides)
        strides, n = (head, batch, row), shape.seqlen
        scale, log2e = (int(np.float32(x).view(np.uint32)) for x in (shape.hdim**-0.5, math.log2(math.e)))
        addresses = [x.data for x in tensors]
        if self._float:
            values = [*addresses, scale, log2e, 1, n, n, shape.hdim, shape.nhead_q, *strides * 6]
            return (ctypes.c_uint64 * len(values))(*values)
        tile = _AITER_TILE_KEYS * row
        values = [*addresses, scale, log2e, n, tile, *strides, 1, *strides, row, shape.hdim]
        return (_Word * len(values))(*(_Word(value, 0) for value in values))


class AiterForward(_EmbeddedAiter):
    """AITER's forward kernels as the library embeds them, for cards of which `Aiter` has no objects."""

    name = "aiter"
    directions = ("forward",)

    @contextmanager
    def prepare(self, shape: Problem, direction: str) -> Iterator[Enqueue]:
        """See Subject."""
        if direction != "forward":
            raise UnsupportedError(f"AITER's forward kernels: got direction {direction!r}")
        with super().prepare(shape, direction) as enqueue:
            yield enqueue


class _Word(ctypes.Structure):
    """A number or an address in AITER's argument structs, in 16 bytes."""

    _fields_ = (("value", ctypes.c_uint64), ("unused", ctypes.c_uint64))


def _aiter_code(path: Path) -> tuple[Code, str]:
    """Load one of AITER's code objects; return it, and its kernel, which has the file's name."""
    try:
        image = path.read_bytes()
    except OSError as error:
        raise UnsupportedError(f"AITER's object: {error.filename}: {error.strerror}") from error
    name = f"fmha_{path.stem}"
    return loaded(image, str(path)), f"_ZN5aiter{len(name)}{name}E"


class Aiter(Peer):
    """AITER's forward kernels for an MI300X with one rounding, from the folder that has its code objects."""

    directions = ("forward",)

    def __init__(self, folder: Path, rounding: str) -> None:
        if rounding not in ROUNDINGS:
            raise InvalidArgumentError(f"rounding: got {rounding!r}, expected one of {', '.join(ROUNDINGS)}")
        self.name = f"aiter {rounding}"
        self.folder, self._rounding = folder, rounding

    def launches(self, arrays: ProblemArrays, direction: str) -> list[Launch]:
        """See Peer."""
        shape = arrays.shape
        got = (direction, shape.hdim, shape.dtype)
        if got != _AITER_DOES:
            texts = ("{} of head dim {} in {}".format(*what) for what in (got, _AITER_DOES))
            raise UnsupportedError("AITER's objects: got {}, expected {}".format(*texts))
        mask = "causal_" if shape.causal else ""
        code, kernel = _aiter_code(self.folder / f"fwd_hd128_bf16_{mask}{self._rounding}.co")
        tiles = -(-shape.seqlen // _AITER_TILE)
        grid = (-(-tiles // 2) if shape.causal else tiles, shape.nhead_q, shape.batch)
        return [Launch(code, kernel, grid, _AITER_THREADS, self._arguments(arrays))]

    def _arguments(self, arrays: ProblemArrays) -> ctypes.Array[_Word]:
        """Return the argument struct: addresses, the scale, and sizes and strides in bytes, 16 bytes each."""
        shape = arrays.shape
        scale = int(np.float32(shape.hdim**-0.5).view(np.uint32))

        def bytes_of(tensor: DeviceArray) -> tuple[int, int, int]:
            batch, head, row, _ = (stride * _ELEMENT_BYTES for stride in tensor.strides)
            return row, head, batch

        q, k, v, o = (bytes_of(x) for x in (arrays.q, arrays.k, arrays.v, arrays.o))
        # How it walks the tiles of a causal problem: its host code takes 5 unless heads are no multiple of 8
        # or the sequence is longer than 16384.
        order = 3 if shape.causal and (shape.nhead_q % 8 or shape.seqlen > 16384) else 5
        values = [
            *(x.data for x in (arrays.o, arrays.q, arrays.k, arrays.v, arrays.lse)),
            scale, shape.seqlen, q[0], _AITER_TILE * q[0], *q[1:], shape.nhead_q // shape.nhead_k,
            *k, order, 0, shape.seqlen, shape.hdim, shape.hdim, shape.nhead_q, *v, *o,
            0, 0, shape.seqlen * 4, 0, 0,
        ]  # fmt: skip
        return (_Word * len(values))(*(_Word(value, 0) for value in values))


def subjects(folder: Path | None = None) -> dict[str, Subject]:
    """Return what can be modelled, by name.

    Ours, Composable Kernel's, and AITER's where its objects are: in `folder`, or where a checkout has them.

    Raises
    ------
    InvalidArgumentError
        A folder was given that has none.
    """
    if "Radeon" in devices()[0].name:  # there are no kernels but ours
        return {Ours.name: Ours()}
    ways: list[Subject] = [Ours(), CompositeKernel(), AiterBackward()]
    place = folder or _OBJECTS
    own = played() == "mi300x"
    names = {rounding: place / f"fwd_hd128_bf16_{rounding}.co" for rounding in ROUNDINGS if own}
    found = [rounding for rounding, path in names.items() if path.is_file()]
    if folder is not None and not found:
        raise InvalidArgumentError(
            f"--aiter: got {folder}, expected a folder with fwd_hd128_bf16_rtna.co and the like"
        )
    ways += [] if own else [AiterForward()]
    ways += [Aiter(place, rounding) for rounding in found]
    backward = [AiterBackwardObject(place.parents[1] / "fmha_v3_bwd", sums) for sums in ("a32", "a16") if own]
    ways += [way for way in backward if way.path(causal=False).is_file()]
    return {way.name: way for way in ways}
