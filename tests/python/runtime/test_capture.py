# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention under graph capture: recorded once, replayed on what the same memory holds then."""

from __future__ import annotations

import math

import numpy as np
import pytest
from capture import Graph, upload

import pyfa_rocm as p

_SHAPE = (1, 90, 2, 128)


@pytest.mark.parametrize("causal", [False, True])
def test_replays_compute_on_new_data(causal: bool) -> None:
    """Bit for bit what the call gives, for each new set of inputs."""
    rng = np.random.default_rng(4)
    q, k, v, o = (p.DeviceArray.from_numpy(np.zeros(_SHAPE, np.float16)) for _ in range(4))
    scale = 1 / math.sqrt(_SHAPE[-1])

    def attend(stream: p.Stream) -> None:
        p.flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, out=o, stream=stream)

    with p.Stream() as stream, Graph(attend, stream) as graph:
        for _ in range(2):
            for array in (q, k, v):
                upload(array, rng.standard_normal(_SHAPE).astype(np.float16))
            graph.replay()
            replayed = o.to_numpy()
            attend(stream)
            stream.synchronize()
            assert np.abs(replayed.astype(np.float32)).max() > 0
            np.testing.assert_array_equal(o.to_numpy(), replayed)


def test_replays_drop_anew() -> None:
    """Seed and offset in device memory: a replay takes what is there then, as a call by value would."""
    shape = (1, 90, 2, 64)
    host = np.random.default_rng(5).standard_normal(shape, np.float32).astype(p.bfloat16)
    q, o = p.DeviceArray.from_numpy(host), p.DeviceArray.from_numpy(np.zeros(shape, p.bfloat16))
    philox = p.DeviceArray.from_numpy(np.array([1, 0], np.uint64))

    def attend(stream: p.Stream) -> None:
        p.flash_attn_func(q, q, q, 0.3, philox=philox, out=o, stream=stream)

    results = set()
    with p.Stream() as stream, Graph(attend, stream) as graph:
        for seed, offset in ((1, 0), (1, 2**40), (2**64 - 1, 0), (1, 0)):
            upload(philox, np.array([seed, offset], np.uint64))
            graph.replay()
            replayed = o.to_numpy().tobytes()
            assert replayed == p.flash_attn_func(q, q, q, 0.3, philox=(seed, offset)).to_numpy().tobytes()
            results.add(replayed)
    assert len(results) == 3


def test_replays_of_a_step_with_gradients() -> None:
    """Forward and backward in one graph, with several rounds of launches; bit for bit what the calls give."""
    rng = np.random.default_rng(6)
    shapes = ((1, 90, 2, 64), (1, 1300, 2, 64), (1, 1300, 2, 64), (1, 90, 2, 64))
    q, k, v, dout = arrays = [p.DeviceArray.from_numpy(np.zeros(shape, np.float16)) for shape in shapes]
    grads = dq, dk, dv = [p.DeviceArray.from_numpy(np.zeros(shape, np.float16)) for shape in shapes[:3]]

    def step(stream: p.Stream) -> None:
        out, lse = p.flash_attn_func(q, k, v, return_lse=True, stream=stream)
        p.flash_attn_bwd(dout, q, k, v, out, lse, deterministic=True, dq=dq, dk=dk, dv=dv, stream=stream)

    with p.Stream() as stream, Graph(step, stream) as graph:
        for _ in range(2):
            for array, shape in zip(arrays, shapes, strict=True):
                upload(array, rng.standard_normal(shape).astype(np.float16))
            graph.replay()
            replayed = [array.to_numpy() for array in grads]
            step(stream)
            stream.synchronize()
            for array, before in zip(grads, replayed, strict=True):
                assert np.abs(before.astype(np.float32)).max() > 0
                np.testing.assert_array_equal(array.to_numpy(), before)


def test_replays_of_packed_sequences_take_new_lengths() -> None:
    """The lengths are device memory too; only the bounds, here 80 rows, are of the recorded call."""
    rng = np.random.default_rng(6)
    q = p.DeviceArray.from_numpy(rng.standard_normal((100, 2, 64), np.float32).astype(np.float16))
    o = p.DeviceArray.from_numpy(np.zeros((100, 2, 64), np.float16))
    slopes = p.DeviceArray.from_numpy(np.array([0.5, 0.25], np.float32))
    starts = p.DeviceArray.from_numpy(np.array([0, 40, 100], np.int32))

    def attend(stream: p.Stream) -> None:
        p.flash_attn_varlen_func(
            q, q, q, starts, starts, 80, 80, causal=True, alibi_slopes=slopes, out=o, stream=stream
        )

    results = set()
    with p.Stream() as stream, Graph(attend, stream) as graph:
        for middle in (40, 70, 20):
            upload(starts, np.array([0, middle, 100], np.int32))
            graph.replay()
            replayed = o.to_numpy().tobytes()
            attend(stream)
            stream.synchronize()
            assert replayed == o.to_numpy().tobytes()
            results.add(replayed)
    assert len(results) == 3
