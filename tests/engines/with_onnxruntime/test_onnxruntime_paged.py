# SPDX-License-Identifier: MIT OR Apache-2.0
"""com.microsoft PagedAttention. ONNX Runtime's own provider for the CPU has none: the oracle is float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
import reference
from engines.with_onnxruntime.expectations import (
    assert_within_ulp,
    pick,
    randoms,
    rotated,
    window_of,
    with_sinks,
)
from engines.with_onnxruntime.sessions import DTYPES, Case, is_refused, our_session, ours

Array = npt.NDArray[Any]
POSITIONS, AMD = 300, 0x1002


class Drawn:
    """A batch of packed sequences that begin, go on, or have nothing to do, over shuffled pages."""

    def __init__(self, dtype: str, seed: int) -> None:
        rng = np.random.default_rng([ord(dtype[0]), seed])
        self.dtype, self.batch = DTYPES[dtype], pick(rng, 1, 2, 3, 5)
        self.heads_k = pick(rng, 1, 2, 3)
        self.heads, self.hdim = self.heads_k * pick(rng, 1, 2, 5), pick(rng, 32, 64, 128)
        self.past = rng.integers(0, 120, self.batch)
        self.new = np.array([pick(rng, 0, 1, 1, 7, 67) for _ in range(self.batch)])
        self.new[0] = max(self.new[0], 1)
        self.page = pick(rng, 16, 32)
        self.packed, self.window = pick(rng, False, True), pick(rng, -1, -1, 13)
        self.softcap = pick(rng, 0.0, 20.0)
        self.causal = self.window > 0 or pick(rng, True, True, False)
        self.sinks = pick(rng, False, True) if not self.softcap else False
        self.rotary = pick(rng, None, "halves", "interleaved")
        self.starts = np.concatenate([[0], np.cumsum(self.new)]).astype(np.int32)
        tokens, most = int(self.starts[-1]), int(-(-(self.past + self.new).max() // self.page)) + 1
        self.table = rng.permutation(self.batch * most).reshape(self.batch, most).astype(np.int32)
        shape = (self.batch * most, self.page, self.heads_k, self.hdim)
        self.caches = [randoms(rng, shape, self.dtype) for _ in range(2)]
        self.q = randoms(rng, (tokens, self.heads, self.hdim), self.dtype)
        self.k, self.v = (randoms(rng, (tokens, self.heads_k, self.hdim), self.dtype) for _ in range(2))
        self.sink = randoms(rng, (self.heads,), self.dtype)
        angles = np.outer(np.arange(POSITIONS), 1e4 ** -(np.arange(self.hdim // 2) / (self.hdim / 2)))
        self.cos, self.sin = np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)

    def case(self) -> Case:
        """The node."""
        q, k, v = (x.reshape(len(x), -1) for x in (self.q, self.k, self.v))
        inputs: dict[str, Array | None] = {"query": q, "key": k, "value": v}
        if self.packed:
            inputs = {"query": np.concatenate([q, k, v], 1), "key": None, "value": None}
        inputs |= {"key_cache": self.caches[0], "value_cache": self.caches[1]}
        inputs |= {"cumulative_sequence_length": self.starts, "past_seqlens": self.past.astype(np.int32)}
        inputs |= {"block_table": self.table}
        tables = (self.cos, self.sin) if self.rotary else (None, None)
        inputs |= {"cos_cache": tables[0], "sin_cache": tables[1], "slot_mapping": None}
        inputs |= {"head_sink": self.sink if self.sinks else None}
        attributes = {
            "num_heads": self.heads,
            "kv_num_heads": self.heads_k,
            "local_window_size": self.window,
            "softcap": self.softcap,
            "is_causal": int(self.causal),
            "do_rotary": int(self.rotary is not None),
            "rotary_interleaved": int(self.rotary == "interleaved"),
        }
        shape = self.caches[0].shape
        return Case(
            "PagedAttention",
            inputs,
            ["output", "key_cache_out", "value_cache_out"],
            attributes,
            shapes={"key_cache_out": shape, "value_cache_out": shape},
            constants=["head_sink"] if self.sinks else [],
        )

    def stored(self, b: int) -> tuple[slice, tuple[Array, Array]]:
        """The rows of a sequence's queries, and the page and the place in it of each of its tokens."""
        at = np.arange(int(self.past[b] + self.new[b]))
        return slice(self.starts[b], self.starts[b + 1]), (self.table[b][at // self.page], at % self.page)

    def expected(self, b: int, results: list[Array]) -> tuple[slice, reference.Expected]:
        """The rows of a sequence's queries, and its attention in float64 over what is in the caches."""
        rows, places = self.stored(b)
        q = self.q[rows]
        if self.rotary:
            q = rotated(q, int(self.past[b]), self.cos, self.sin, self.rotary == "interleaved")
        keys, values = (x[places] for x in results[1:])
        window = window_of(self.window)
        want = reference.attention(
            q[None], keys[None], values[None], causal=self.causal, softcap=self.softcap, window_size=window
        )
        return rows, with_sinks(want, self.sink) if self.sinks else want

    def check(self, results: list[Array]) -> None:
        """Compare each sequence's output and tokens, and that no other token has changed."""
        output = results[0].reshape(self.q.shape)
        others = np.ones(self.caches[0].shape[:2], np.bool_)
        for b in range(self.batch):
            past, (rows, places) = int(self.past[b]), self.stored(b)
            others[tuple(x[past:] for x in places)] = False
            k = self.k[rows]
            if self.rotary:
                k = rotated(k, past, self.cos, self.sin, self.rotary == "interleaved")
            keys, values = (x[places] for x in results[1:])
            assert_within_ulp(keys[past:], k.astype(np.float64))
            np.testing.assert_array_equal(values[past:], self.v[rows])
            _, want = self.expected(b, results)
            assert (np.abs(output[rows].astype(np.float64) - want.o[0]) <= want.o_tolerance[0]).all()
        for before, after in zip(self.caches, results[1:], strict=True):
            np.testing.assert_array_equal(before[others], after[others])


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("seed", range(10))
def test_random(dtype: str, seed: int) -> None:
    drawn = Drawn(dtype, seed)
    drawn.check(ours(drawn.case()))


def test_caches_are_written_in_place() -> None:
    drawn = Drawn("fp16", 0)
    case = drawn.case()
    binding = (session := our_session(case.model())).io_binding()
    caches = {
        name: ort.OrtValue.ortvalue_from_numpy(x, "gpu", 0, AMD)
        for name, x in zip(("key_cache", "value_cache"), drawn.caches, strict=True)
    }
    for name, value in case.feeds().items():
        if name not in caches:
            binding.bind_cpu_input(name, value)
    binding.bind_output("output")
    for name, cache in caches.items():
        binding.bind_ortvalue_input(name, cache)
        binding.bind_ortvalue_output(f"{name}_out", cache)
    session.run_with_iobinding(binding)
    drawn.check([binding.copy_outputs_to_cpu()[0], *(cache.numpy() for cache in caches.values())])


def test_slots_say_where_tokens_go() -> None:
    drawn = Drawn("fp16", 1)
    drawn.rotary, drawn.batch = None, 1
    drawn.past, drawn.new = np.array([0]), np.array([2])
    drawn.starts, drawn.table = np.array([0, 2], np.int32), drawn.table[:1]
    drawn.q, drawn.k, drawn.v = (np.repeat(x[:1], 2, 0) for x in (drawn.q, drawn.k, drawn.v))
    case = drawn.case()
    free = int(drawn.table[0, 1]) * drawn.page + 3
    case.inputs["slot_mapping"] = np.array([free, -1], np.int32)
    _, keys, values = ours(case)
    for before, after, token in ((drawn.caches[0], keys, drawn.k[0]), (drawn.caches[1], values, drawn.v[0])):
        expected = before.copy()
        expected.reshape(-1, *before.shape[2:])[free] = token
        np.testing.assert_array_equal(after, expected)


def test_what_no_kernel_does_is_left_to_others() -> None:
    case = Drawn("fp16", 0).case()
    assert not is_refused(case)
    norm = np.ones(case.inputs["key_cache"].shape[3], np.float16)  # type: ignore[union-attr]
    names = ("cos_cache", "sin_cache", "slot_mapping", "head_sink")
    inputs = case.inputs | {name: case.inputs.get(name) for name in names}
    for other in (
        replace(case, inputs=inputs | {"q_norm_weight": norm, "k_norm_weight": norm}),
        replace(case, attributes=case.attributes | {"rotary_offset": 16}),
        replace(case, attributes=case.attributes | {"is_causal": 0, "local_window_size": 3}),
        replace(case, outputs=["output"]),
    ):
        assert is_refused(other)


def test_errors_name_argument_got_and_expected() -> None:
    case = Drawn("fp16", 0).case()
    case.inputs["past_seqlens"] = np.full_like(case.inputs["past_seqlens"], 10_000)
    with pytest.raises(Exception, match=r"sequence 0: got 10000 past tokens and .* expected at most"):
        ours(case)
