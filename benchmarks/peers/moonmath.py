# SPDX-License-Identifier: MIT OR Apache-2.0
"""moonmath-attention as a subject of the clock: its kernels from a checkout, or as a code object.

Three kernels: one turns V into blocks whose columns are contiguous, one is the attention, and if the last
round of workgroups would leave compute units idle, that round's blocks of queries are split along the keys
and a third one merges them. The launch rules are those of csrc/attention_kernel.hip at the commit of
sources.json.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyfa_rocm.clock.cards import played
from pyfa_rocm.clock.code import Code, Launch, hip_call
from pyfa_rocm.clock.subjects import ROUNDINGS, Peer, ProblemArrays, Subject
from pyfa_rocm.device import current_device, devices
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Moonmath", "TailSplit", "peers"]

# Query rows of a workgroup, keys of a step, threads.
_TILE, _KEYS, _THREADS, _SMALL_THREADS = 384, 64, 512, 256
_UNITS, _XCDS, _MOST_PARTS = 304, 8, 608
# A split is not tried below so many steps; a part has at least so many; and a merge costs as much as so many.
_LEAST_STEPS, _LEAST_PART, _MERGE_STEPS = 48, 4, 3
# Workgroups that merge a block of queries: four floats a thread.
_MERGERS = _TILE * 128 // 4 // _SMALL_THREADS
_TOOLCHAIN = Path(__file__).parents[2] / "build" / "toolchain"


@dataclass(frozen=True)
class TailSplit:
    """How the last round of workgroups is split.

    Attributes
    ----------
    whole : int
        Workgroups that go over all keys.
    tail : int
        Blocks of queries that are split; 0: none.
    ways : int
        Parts of each.
    """

    whole: int
    tail: int
    ways: int

    @staticmethod
    def of(workgroups: int, steps: int) -> TailSplit:
        """Choose the split for so many workgroups of so many steps."""
        tail = workgroups % _UNITS
        if tail == 0 or tail > _UNITS * 19 // 20 or steps < _LEAST_STEPS:
            return TailSplit(workgroups, 0, 1)

        def span(ways: int) -> int:
            rounds = 1 if ways == 1 else -(-tail * ways // _UNITS)
            return rounds * -(-steps // ways) + _MERGE_STEPS

        most = min(_MOST_PARTS // tail, steps // _LEAST_PART)
        ways = min(range(1, max(most, 1) + 1), key=span)
        return TailSplit(workgroups, 0, 1) if ways == 1 else TailSplit(workgroups - tail, tail, ways)

    def schedule(self, blocks: int) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
        """Return what the kernels read: rows of (block, head, first part, parts), parts first."""
        rows = np.zeros((2 * _MOST_PARTS, 4), np.int32)
        for i in range(self.tail):
            head, block = divmod(self.whole + i, blocks)
            rows[i * self.ways : (i + 1) * self.ways, :2] = block, head
            rows[_MOST_PARTS + i] = block, head, i * self.ways, self.ways
        return rows


class _Transpose(ctypes.Structure):
    _fields_ = (
        ("v", ctypes.c_uint64),
        ("out", ctypes.c_uint64),
        ("seqlen", ctypes.c_int32),
        ("heads", ctypes.c_int32),
    )


class _Forward(ctypes.Structure):
    _fields_ = (
        ("q", ctypes.c_uint64),
        ("k", ctypes.c_uint64),
        ("v", ctypes.c_uint64),
        ("out", ctypes.c_uint64),
        ("seqlen_q", ctypes.c_int32),
        ("seqlen_k", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("heads", ctypes.c_int32),
        ("skips", ctypes.c_uint64 * 3),
        ("threshold", ctypes.c_float),
        ("phase", ctypes.c_int32),
        ("parts", ctypes.c_uint64),
        ("blocks", ctypes.c_int32),
        ("ways", ctypes.c_int32),
        ("order", ctypes.c_uint64),
    )


class _Merge(ctypes.Structure):
    _fields_ = (
        ("out", ctypes.c_uint64),
        ("seqlen", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("parts", ctypes.c_uint64),
    )


class Moonmath(Peer):
    """Its forward pass with one rounding; arrays are (batch, heads, seqlen, hdim)."""

    def __init__(self, path: Path, rounding: str) -> None:
        self.name = f"moonmath {rounding}"
        self._path, self._rounding = path, rounding
        self._code: Code | None = None

    def _load(self) -> Code:
        if self._code is None:
            image = self._path.read_bytes() if self._path.is_file() else _compile(self._path, self._rounding)
            self._code = Code(image, str(self._path))
        return self._code

    def launches(self, arrays: ProblemArrays, direction: str) -> list[Launch]:
        """See Peer."""
        shape = arrays.shape
        got = (direction, shape.hdim, shape.dtype, shape.causal, shape.nhead_q == shape.nhead_k)
        if got != ("forward", 128, "bfloat16", False, True):
            raise UnsupportedError(
                f"moonmath: got {direction}, {shape}, {shape.dtype}, expected forward, hdim 128, bfloat16, "
                "no mask, as many key heads as query heads"
            )
        code = self._load()
        heads, steps = shape.batch * shape.nhead_q, -(-shape.seqlen // _KEYS)
        blocks = -(-shape.seqlen // _TILE)
        split = TailSplit.of(blocks * heads, steps)
        arrays.fill_heads(_sampled_heads(blocks, heads, split))
        turned = arrays.scratch((heads, steps * _KEYS, shape.hdim), shape.dtype)
        parts = arrays.scratch((_MOST_PARTS, _TILE, shape.hdim + 2), np.float32)
        transpose = _Transpose(arrays.v.data, turned.data, shape.seqlen, shape.nhead_q)
        forward = _Forward(
            q=arrays.q.data, k=arrays.k.data, v=turned.data, out=arrays.o.data, seqlen_q=shape.seqlen,
            seqlen_k=shape.seqlen, scale=np.log2(np.e) / shape.hdim**0.5, heads=shape.nhead_q,
        )  # fmt: skip
        turn, attend = _symbol(code, b"v_transpose_kernel_16x16ILb0E"), _symbol(code, _forward_symbol(False))
        found = [Launch(code, turn, (heads * steps, 1, 1), _SMALL_THREADS, transpose)]
        if not split.tail:
            found.append(Launch(code, attend, (blocks, heads, 1), _THREADS, forward))
            return found
        rows = split.schedule(blocks)
        schedule = code.address(_symbol(code, b"tail_sched"))
        hip_call("hipMemcpy", ctypes.c_void_p(schedule), rows.ctypes, rows.nbytes, 1)
        forward.blocks = blocks
        if split.whole:
            whole = _Forward.from_buffer_copy(forward)
            found.append(Launch(code, attend, (split.whole, 1, 1), _THREADS, whole))
        forward.parts, forward.ways = parts.data, split.ways
        part, merger = _symbol(code, _forward_symbol(True)), _symbol(code, b"merge_partsILb0E")
        found.append(Launch(code, part, (split.tail * split.ways, 1, 1), _THREADS, forward))
        merge = _Merge(arrays.o.data, shape.seqlen, shape.nhead_q, parts.data)
        found.append(Launch(code, merger, (split.tail * _MERGERS, 1, 1), _SMALL_THREADS, merge))
        return found


def _symbol(code: Code, pattern: bytes) -> str:
    """Find a symbol of its anonymous namespace: the types in it differ between compilers."""
    return code.symbol(rb"_ZN12_GLOBAL__N_1\d+" + pattern + rb"\w*")


def _forward_symbol(split: bool) -> bytes:
    """Return the attention kernel for (batch, heads, seqlen, hdim) that skips nothing."""
    return b"attention_forwardILb0ELb0ELb%dE" % split


def _sampled_heads(blocks: int, heads: int, split: TailSplit) -> set[int]:
    """Return the heads that the first, middle and last workgroups of its launches read."""
    if split.tail:
        firsts = [(0, split.whole), (split.whole, split.tail)]
        return {
            min(first + n, first + count - 1) // blocks
            for first, count in firsts
            if count
            for n in (0, (count - 1) // 2, count // 2, count - 1)
        }
    found = set()
    for y in {0, (heads - 1) // 2, heads // 2, heads - 1}:
        for x in {0, (blocks - 1) // 2, blocks // 2, blocks - 1}:
            number = y * blocks + x
            # Heads go to the XCDs in turn, as far as all of these get one.
            if number < blocks * heads // (_XCDS * blocks) * _XCDS * blocks:
                chunk, xcd = number // _XCDS // blocks, number % _XCDS
                number = (chunk * _XCDS + xcd) * blocks
            found.add(number // blocks)
    return found


def _compiler() -> list[str]:
    """Return the command that compiles HIP: $HIPCC, hipcc, or clang with a checkout's toolchain."""
    hipcc = os.environ.get("HIPCC") or shutil.which("hipcc")
    if hipcc:
        return [hipcc]
    clang = shutil.which("clang++-19") or shutil.which("clang++")
    if clang is None or not _TOOLCHAIN.is_dir():
        raise UnsupportedError("--peer moonmath: needs hipcc on PATH or in HIPCC to compile the checkout")
    paths = {"rocm-path": "hip", "hip-path": "hip", "rocm-device-lib-path": "bitcode"}
    return [clang, "-x", "hip", *(f"--{option}={_TOOLCHAIN / folder}" for option, folder in paths.items())]


def _compile(checkout: Path, rounding: str) -> bytes:
    """Compile a rounding's kernels, with the options of its Makefile."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.co"
        arch = list(devices())[current_device()].arch
        command = [
            *_compiler(), f"--offload-arch={arch}", "--cuda-device-only", "--no-gpu-bundle-output",
            "-std=c++20", "-O3", "-ffast-math", "-fno-math-errno", "-mllvm", "-amdgpu-early-inline-all=true",
            "-c", str(checkout / "csrc" / f"attention_{rounding}.hip"), "-o", str(out),
        ]  # fmt: skip
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise UnsupportedError(f"--peer moonmath: {command[0]} failed:\n{ran.stderr[-2000:]}")
        return out.read_bytes()


def peers(path: str) -> list[Subject]:
    """Return a subject for each rounding that `path` has: a checkout, or a code object that names one.

    The first is its default.

    Raises
    ------
    InvalidArgumentError
        It is neither, or the card is not an MI300X.
    """
    if played() != "mi300x":
        raise InvalidArgumentError(f"--peer moonmath: got {devices()[0].name}, expected an MI300X")
    place = Path(path)
    if place.is_file():
        found = [rounding for rounding in ROUNDINGS if rounding in place.name]
    else:
        found = [r for r in ROUNDINGS if (place / "csrc" / f"attention_{r}.hip").is_file()]
    if not found or (place.is_file() and len(found) > 1):
        raise InvalidArgumentError(
            f"--peer moonmath: got {path or 'no path'}, expected a checkout of moonmath-ai/amd-kernels, or a "
            f"code object of it with one of {', '.join(ROUNDINGS)} in its name"
        )
    return [Moonmath(place, rounding) for rounding in reversed(found)]
