# SPDX-License-Identifier: MIT OR Apache-2.0
"""Generation with a cache that stays on the device: past and present are the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
import reference
from engines.with_onnxruntime.expectations import randoms
from engines.with_onnxruntime.sessions import Case, is_refused, our_session, ours

Array = npt.NDArray[Any]
AMD = 0x1002
BATCH, HEADS, HEADS_K, HDIM, CAPACITY = 2, 4, 2, 64, 40


class Server:
    """A batch of sequences that grow by some tokens a step."""

    def __init__(self, *, shared: bool, fixed: bool = True) -> None:
        self.rng, self.shared, self.length = np.random.default_rng(5), shared, 0
        self.keys = [np.zeros((BATCH, 0, HEADS_K, HDIM), np.float16) for _ in range(2)]
        self.session = our_session(self._case(1, fixed).model())
        self.cache = [self._on_device() for _ in range(2)]

    def _on_device(self) -> ort.OrtValue:
        # NaN shows what reads tokens that nobody has stored.
        empty = np.full((BATCH, HEADS_K, CAPACITY, HDIM), np.nan, np.float16)
        return ort.OrtValue.ortvalue_from_numpy(empty, "gpu", 0, AMD)

    def _case(self, new: int, fixed: bool) -> Case:
        q = np.zeros((BATCH, new, HEADS * HDIM), np.float16)
        k = np.zeros((BATCH, new, HEADS_K * HDIM), np.float16)
        past = np.zeros((BATCH, HEADS_K, CAPACITY, HDIM), np.float16)
        cache: Sequence[Any] = [BATCH, HEADS_K, "capacity", HDIM]
        present = cache if fixed else [BATCH, HEADS_K, "total", HDIM]
        return Case(
            "GroupQueryAttention",
            {
                "query": q,
                "key": k,
                "value": k,
                "past_key": past,
                "past_value": past,
                "seqlens_k": np.zeros(BATCH, np.int32),
                "total_sequence_length": np.array(1, np.int32),
            },
            ["output", "present_key", "present_value"],
            {"num_heads": HEADS, "kv_num_heads": HEADS_K},
            shapes={
                "query": [BATCH, "new", HEADS * HDIM],
                "key": [BATCH, "new", HEADS_K * HDIM],
                "value": [BATCH, "new", HEADS_K * HDIM],
                "past_key": cache,
                "past_value": cache,
                "present_key": present,
                "present_value": present,
            },
        )

    def step(self, new: int) -> tuple[Array, Array]:
        """Attend `new` tokens; return the output, and the queries."""
        q = randoms(self.rng, (BATCH, new, HEADS, HDIM), np.dtype(np.float16))
        tokens = [randoms(self.rng, (BATCH, new, HEADS_K, HDIM), np.dtype(np.float16)) for _ in range(2)]
        self.keys = [np.concatenate([a, b], 1) for a, b in zip(self.keys, tokens, strict=True)]
        self.length += new
        binding = self.session.io_binding()
        for name, value in {
            "query": q.reshape(BATCH, new, -1),
            "key": tokens[0].reshape(BATCH, new, -1),
            "value": tokens[1].reshape(BATCH, new, -1),
            "seqlens_k": np.full(BATCH, self.length - 1, np.int32),
            "total_sequence_length": np.array(self.length, np.int32),
        }.items():
            binding.bind_cpu_input(name, value)
        binding.bind_output("output")
        present = self.cache if self.shared else [self._on_device() for _ in range(2)]
        for i, name in enumerate(("key", "value")):
            binding.bind_ortvalue_input(f"past_{name}", self.cache[i])
            binding.bind_ortvalue_output(f"present_{name}", present[i])
        self.session.run_with_iobinding(binding)
        self.cache = present
        return binding.copy_outputs_to_cpu()[0].reshape(BATCH, new, HEADS, HDIM), q


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("fixed", [True, False])
def test_generate(shared: bool, fixed: bool) -> None:
    server = Server(shared=shared, fixed=fixed)
    addresses = [value.data_ptr() for value in server.cache]
    for new in (11, 1, 1, 5, 1):  # a prompt, tokens, and several tokens at once
        got, q = server.step(new)
        if not shared:  # a new cache has nothing but what was stored
            assert not server.cache[0].numpy()[:, :, server.length :].any()
        want = reference.attention(q, *server.keys, causal=True)
        assert (np.abs(got.astype(np.float64) - want.o) <= want.o_tolerance).all()
    assert ([value.data_ptr() for value in server.cache] == addresses) == shared


def test_device_memory_comes_from_the_provider() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    value = ort.OrtValue.ortvalue_from_numpy(x, "gpu", 0, AMD)
    assert value.device_name() == "hip"
    np.testing.assert_array_equal(value.numpy(), x)


def test_positions() -> None:
    rng = np.random.default_rng(1)
    x = randoms(rng, (1, 3, 64), np.dtype(np.float16))
    angles = np.outer(np.arange(50), 1e4 ** -(np.arange(32) / 32))
    tables = [function(angles).astype(np.float16) for function in (np.cos, np.sin)]
    outputs = []
    for positions in (None, np.arange(3), np.arange(3) + 20):
        case = Case(
            "GroupQueryAttention",
            {
                "query": x,
                "key": x,
                "value": x,
                "past_key": None,
                "past_value": None,
                "seqlens_k": np.array([2], np.int32),
                "total_sequence_length": np.array(3, np.int32),
                "cos_cache": tables[0],
                "sin_cache": tables[1],
                "position_ids": None if positions is None else positions[None].astype(np.int64),
            },
            ["output", "present_key", "present_value"],
            {"num_heads": 1, "kv_num_heads": 1, "do_rotary": 1},
        )
        outputs.append(ours(case))
    for a, b in zip(outputs[0], outputs[1], strict=True):
        np.testing.assert_array_equal(a, b)
    # Rotation keeps the angle between a query and a key: the keys differ, the output hardly.
    assert np.abs(outputs[0][1].astype(np.float64) - outputs[2][1]).max() > 0.1
    np.testing.assert_allclose(outputs[2][0].astype(np.float64), outputs[0][0], atol=0.01)


def gqa(**inputs: Any) -> Case:
    """A node that our provider takes, with other inputs."""
    x = np.zeros((1, 3, 64), np.float16)
    given: dict[str, Array | None] = {
        "query": x,
        "key": x,
        "value": x,
        "past_key": None,
        "past_value": None,
        "seqlens_k": np.array([2], np.int32),
        "total_sequence_length": np.array(3, np.int32),
        "cos_cache": None,
        "sin_cache": None,
        "position_ids": None,
        "attention_bias": None,
        "head_sink": None,
    }
    attributes = {k: inputs.pop(k) for k in list(inputs) if k not in given}
    return Case(
        "GroupQueryAttention",
        given | inputs,
        ["output", "present_key", "present_value"],
        {"num_heads": 1, "kv_num_heads": 1} | attributes,
    )


def test_what_no_kernel_does_is_left_to_others() -> None:
    assert not is_refused(gqa())
    assert is_refused(gqa(attention_bias=np.zeros((1, 1, 3, 3), np.float16)))
    assert is_refused(gqa(head_sink=np.zeros(1, np.float16)))  # of the run, not of the model
    assert is_refused(gqa(qk_output=0, causal=0))
    wide = np.zeros((1, 3, 64), np.float32)
    assert is_refused(gqa(query=wide, key=wide, value=wide))


def test_errors_name_argument_got_and_expected() -> None:
    with pytest.raises(Exception, match="node node: seqlens_k: got 2 numbers, expected 1"):
        ours_with(seqlens_k=np.array([2, 2], np.int32))
    with pytest.raises(Exception, match="total_sequence_length: got 2, expected at least the 3 new tokens"):
        ours_with(total_sequence_length=np.array(2, np.int32))


def ours_with(**inputs: Array) -> None:
    """Run the node with inputs that its model does not tell of."""
    case = gqa(**inputs)
    case.shapes = {"seqlens_k": ["batch"]}
    ours(case)
