# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory that arrays give back: kept, used again when nobody uses it any more, freed on demand."""

from __future__ import annotations

import _thread
import ctypes
import functools
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from capture import Graph
from inner import ROOT, ok

import pyfa_rocm as p
from pyfa_rocm import attention
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.plan import Plan
from pyfa_rocm._runtime import dlpack
from pyfa_rocm._runtime.tensor import contiguous

_SHAPE = (1, 40, 1, 64)


def normal(seed: int = 0, shape: tuple[int, ...] = _SHAPE) -> p.DeviceArray:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return p.DeviceArray.from_numpy(values.astype(np.float16))


def address_of_output(q: p.DeviceArray, stream: p.Stream | None = None) -> int:
    """Return the address of a call's output, which is dropped."""
    return int(p.flash_attn_func(q, q, q, stream=stream).address)


def test_a_loop_neither_allocates_nor_frees(calls_of_hip: list[str]) -> None:
    """The log-sum-exp reuses memory too, though two outputs live at a time."""
    q = normal()
    want = p.flash_attn_func(q, q, q).to_numpy().tobytes()
    for turn in range(12):
        o, lse = p.flash_attn_func(q, q, q, return_lse=True)
        if turn == 3:
            calls_of_hip.clear()
    assert calls_of_hip == []
    assert o.to_numpy().tobytes() == want
    assert np.isfinite(lse.to_numpy()).all()


def test_a_workspace_is_not_freed(monkeypatch: pytest.MonkeyPatch, calls_of_hip: list[str]) -> None:
    ask = Plan.ask

    def ask_for_one(plan: Plan, *arguments: Any) -> None:
        ask(plan, *arguments)
        plan.workspace = contiguous((4096,), "uint8", 0)

    monkeypatch.setattr(Plan, "ask", ask_for_one)
    monkeypatch.setattr(attention, "_plans", {})
    q = normal()
    out = p.DeviceArray.empty(_SHAPE, np.float16)
    for _ in range(5):
        p.flash_attn_func(q, q, q, out=out)
    assert calls_of_hip.count("allocate") == 2 + 1  # q and out
    assert "free" not in calls_of_hip


def test_the_same_stream_has_it_at_once() -> None:
    q = normal()
    with p.Stream() as stream:
        assert address_of_output(q) == address_of_output(q)
        assert address_of_output(q, stream) == address_of_output(q, stream)


def test_another_stream_does_not() -> None:
    q = normal()
    with p.Stream() as one, p.Stream() as other:
        first = address_of_output(q, one)
        assert address_of_output(q, other) != first
        assert p.DeviceArray.empty(_SHAPE, np.float16).address != first
        assert normal().address != first


def _as_data(x: p.DeviceArray) -> object:
    return x.data


def _as_dlpack(x: p.DeviceArray) -> object:
    return x.__dlpack__()


def _as_cuda_array(x: p.DeviceArray) -> object:
    return x.__cuda_array_interface__


def _as_view(x: p.DeviceArray) -> object:
    return x[:, 10:].data


def _as_input_elsewhere(x: p.DeviceArray) -> object:
    with p.Stream() as stream:
        return p.flash_attn_func(x, x, x, stream=stream)


def _as_output_elsewhere(x: p.DeviceArray) -> object:
    q = normal()
    with p.Stream() as stream:
        return p.flash_attn_func(q, q, q, out=x, stream=stream) is x


@pytest.mark.parametrize(
    "show",
    [_as_data, _as_dlpack, _as_cuda_array, _as_view, _as_input_elsewhere, _as_output_elsewhere],
)
def test_what_others_may_use_is_not_used_again(show: Callable[[p.DeviceArray], object]) -> None:
    q = normal()
    array = p.flash_attn_func(q, q, q)
    address = array.address
    shown = show(array)
    del array, shown
    kept = [p.flash_attn_func(q, q, q) for _ in range(4)]
    assert address not in [x.address for x in kept]


def test_optional_arrays_are_used_too() -> None:
    slopes = p.DeviceArray.from_numpy(np.ones(2, np.float32))
    address = slopes.address
    optional = OptionalArguments(0)
    optional.add("alibi_slopes", slopes)
    del slopes, optional
    assert p.DeviceArray.empty((2,), np.float32).address != address


def test_a_lent_capsule_holds_it() -> None:
    q = normal()
    array = p.flash_attn_func(q, q, q)
    address, export = array.address, dlpack.read(array.__dlpack__(), "x")
    del array
    before = p.memory.live_bytes
    assert address_of_output(q) != address
    del export
    dlpack.take_back()
    assert p.memory.live_bytes < before


def test_inputs_dropped_while_they_are_read() -> None:
    """Several streams run at once, each with its own sizes and values: none gets what another still reads."""
    shapes = [(1, n, 1, 64) for n in (17, 40, 64)]
    want = {}
    for seed, shape in enumerate(shapes):
        x = normal(seed, shape)
        want[shape] = p.flash_attn_func(x, x, x, causal=True).to_numpy().tobytes()
    with p.Stream() as one, p.Stream() as two:
        results = []
        for turn in range(9):
            seed = turn % len(shapes)
            x = normal(seed, shapes[seed])
            results.append(p.flash_attn_func(x, x, x, causal=True, stream=(None, one, two)[turn % 3 - 1]))
            y = normal(99, shapes[seed])  # might be where x was
            results.append(p.flash_attn_func(x, x, x, causal=True, stream=(one, two)[turn % 2]))
            del x, y
        for x in results:
            assert x.to_numpy().tobytes() == want[x.shape]


def test_an_array_in_a_cycle() -> None:
    """Its end is that of a garbage collection."""
    gc.collect()
    before = p.memory.live_bytes
    cycle: list[Any] = [normal()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert p.memory.live_bytes == before


def test_threads_share_it() -> None:
    """Nothing is given out twice, and in the end all is counted."""
    q = normal()
    p.flash_attn_func(q, q, q)
    before = p.memory.live_bytes
    failures: list[int] = []

    def work(seed: int) -> None:
        x = normal(seed)
        want = p.flash_attn_func(x, x, x).to_numpy().tobytes()
        with p.Stream() as stream:
            for _ in range(4):
                kept = [p.flash_attn_func(x, x, x, stream=stream) for _ in range(3)]
                stream.synchronize()
                failures.extend(1 for o in kept if o.to_numpy().tobytes() != want)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert p.memory.live_bytes == before


def test_most_that_is_kept(monkeypatch: pytest.MonkeyPatch, calls_of_hip: list[str]) -> None:
    """Beyond it some is freed, which waits: the others may then be used anywhere."""
    monkeypatch.setattr(p.memory, "most_kept_bytes", 2100)
    arrays = [p.DeviceArray.empty((1000,), np.uint8) for _ in range(4)]
    addresses = {x.data for x in arrays}
    del arrays
    calls_of_hip.clear()
    p.DeviceArray.empty((7,), np.uint8)
    assert calls_of_hip == ["free", "free", "allocate"]
    assert p.memory.kept_bytes == 2007
    again = [p.DeviceArray.empty((1000,), np.uint8) for _ in range(2)]
    assert {x.address for x in again} < addresses


def test_nothing_is_kept_if_so_wished(monkeypatch: pytest.MonkeyPatch, calls_of_hip: list[str]) -> None:
    monkeypatch.setattr(p.memory, "most_kept_bytes", 0)
    for _ in range(3):
        p.DeviceArray.empty((1000,), np.uint8)
    assert calls_of_hip == ["allocate", "free", "allocate", "free", "allocate"]


def test_release(calls_of_hip: list[str]) -> None:
    q = normal()
    address_of_output(q)
    assert p.memory.kept_bytes == q.nbytes
    live = p.memory.live_bytes
    p.memory.release()
    assert (p.memory.kept_bytes, p.memory.live_bytes) == (0, live)
    assert calls_of_hip == ["allocate", "allocate", "free"]


def test_memory_runs_out() -> None:
    """If memory runs out, kept blocks are given back, and the call works."""
    code = """
import numpy as np, pyfa_rocm as p
kept = p.DeviceArray.empty((1000,), np.uint8).nbytes
print(p.memory.kept_bytes)
x = p.DeviceArray.empty((2000,), np.uint8)
print(p.memory.kept_bytes, p.memory.live_bytes)
"""
    assert ok(code, PYFA_ROCM_DEVICE="emulator", FMHA_EMU_FAIL_ALLOC="2").split("\n") == ["1000", "0 2000"]


def test_capture_of_calls_that_allocate() -> None:
    """Memory that captured calls allocate belongs to the graph, though the program drops it."""
    q = normal()
    want = p.flash_attn_func(*[p.flash_attn_func(q, q, q)] * 3).to_numpy()
    outputs: list[p.DeviceArray] = []

    def attend(stream: p.Stream) -> None:
        hidden = p.flash_attn_func(q, q, q, stream=stream)
        outputs[:] = [p.flash_attn_func(hidden, hidden, hidden, stream=stream)]

    with p.Stream() as stream, Graph(attend, stream) as graph:
        for seed in range(3):  # these must not lie where hidden is
            others = [normal(seed) for _ in range(3)]
            before = [x.to_numpy().tobytes() for x in others]
            graph.replay()
            np.testing.assert_array_equal(outputs[0].to_numpy(), want)
            assert [x.to_numpy().tobytes() for x in others] == before
        assert p.memory.kept_bytes >= q.nbytes
    del outputs[:], others
    p.memory.release()
    assert p.memory.kept_bytes == 0


def test_memory_is_freed_beside_a_capture(monkeypatch: pytest.MonkeyPatch, calls_of_hip: list[str]) -> None:
    """hipFree and hipMalloc leave a graph valid while it is recorded."""
    q, o = normal(), p.DeviceArray.empty(_SHAPE, np.float16)
    dropped = [p.DeviceArray.empty((1000,), np.uint8)]

    def attend(stream: p.Stream) -> None:
        p.flash_attn_func(q, q, q, out=o, stream=stream)
        dropped[:] = [p.DeviceArray.empty((1000,), np.uint8)]

    monkeypatch.setattr(p.memory, "most_kept_bytes", 0)
    with p.Stream() as stream, Graph(attend, stream) as graph:
        graph.replay()
        assert np.abs(o.to_numpy().astype(np.float32)).max() > 0
    assert calls_of_hip.count("free") >= 1


def _with_an_interrupt(call: Callable[[], object]) -> None:
    """Run something, in C only, while a Ctrl-C is pending."""
    run: Any = functools.partial.__call__
    list(map(run, [functools.partial(_thread.interrupt_main), functools.partial(call)]))


@pytest.mark.usefixtures("takes_ctrl_c")
def test_an_interrupt_survives_the_end_of_an_array(recwarn: pytest.WarningsRecorder) -> None:
    """The array is dropped, or its DLPack consumer is done with it."""
    for _ in range(3):
        arrays = [p.DeviceArray.empty((8,), np.float16)]
        with pytest.raises(KeyboardInterrupt):
            _with_an_interrupt(arrays.clear)
        capsule = p.DeviceArray.empty((8,), np.float16).__dlpack__()
        managed = dlpack._Managed.from_address(dlpack._get_pointer(capsule, b"dltensor"))
        delete = functools.partial(dlpack._Deleter(managed.deleter), ctypes.addressof(managed))
        with pytest.raises(KeyboardInterrupt):
            _with_an_interrupt(delete)
    assert not recwarn.list


_LOOP = """
import numpy as np
import pyfa_rocm as p
q = p.DeviceArray.from_numpy(np.ones((1, 8, 1, 64), np.float16))
o = p.flash_attn_func(q, q, q)
for _ in range(3):
    print("loop", flush=True)
    try:
        while True:
            o = p.flash_attn_func(q, q, q)
    except KeyboardInterrupt:
        pass
print("stopped", o.shape)
"""


@pytest.mark.usefixtures("takes_ctrl_c")
def test_ctrl_c_stops_a_loop() -> None:
    """Each time, wherever it arrives."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LOOP], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("stopped"):
                break
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert line == "stopped (1, 8, 1, 64)\n"
    assert "Exception ignored" not in errors
