# SPDX-License-Identifier: MIT OR Apache-2.0
"""com.microsoft MultiHeadAttention in random shapes and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference
from engines.with_onnxruntime.expectations import SIZES, heads_first, judge, pick, randoms
from engines.with_onnxruntime.sessions import DTYPES, Case, is_refused, our_session, ours, run, theirs

Array = npt.NDArray[Any]
LAYOUTS = ("separate", "heads first", "packed kv", "packed qkv")


class Drawn:
    """A problem: tensors (batch, seqlen, nhead, hdim), and the node that has them."""

    def __init__(self, layout: str, dtype: str, seed: int, *, lengths: bool = False) -> None:
        rng = np.random.default_rng([LAYOUTS.index(layout), len(dtype), ord(dtype[0]), seed])
        self.layout, self.dtype = layout, DTYPES[dtype]
        self.batch, self.heads = pick(rng, 1, 2, 3), pick(rng, 1, 2, 5)
        # Packed sequences have kernels of two head dims in the set that tests build.
        self.hdim = pick(rng, 64, 128) if lengths else pick(rng, 8, 40, 64, 104, 128)
        self.seqlen_q, self.seqlen_k = pick(rng, *SIZES), pick(rng, *SIZES)
        self.causal = pick(rng, False, True)
        # The past has no form for keys whose heads come first, and float32 no kernel.
        self.past = pick(rng, 0, pick(rng, *SIZES)) if layout != "heads first" and dtype != "fp32" else 0
        if lengths:
            self.past = 0
        if layout == "packed qkv" or self.causal:  # ONNX Runtime's own wants as many
            self.seqlen_k = self.seqlen_q
        self.hdim_v = self.hdim
        if (
            layout == "separate" and not self.past and not lengths
        ):  # ONNX Runtime's own has equal ones elsewhere
            self.hdim_v = pick(rng, self.hdim, 16)
        self.scale = pick(rng, None, 0.2)
        self.q = randoms(rng, (self.batch, self.seqlen_q, self.heads, self.hdim), self.dtype)
        total = self.past + self.seqlen_k
        self.k = randoms(rng, (self.batch, total, self.heads, self.hdim), self.dtype)
        self.v = randoms(rng, (self.batch, total, self.heads, self.hdim_v), self.dtype)
        self.bias = None
        # Elementwise biases have kernels of these in the set that tests build.
        if dtype == "fp16" and self.hdim == self.hdim_v and not lengths and pick(rng, False, True):
            shape = (pick(rng, 1, self.batch), pick(rng, 1, self.heads), self.seqlen_q, total)
            self.bias = randoms(rng, shape, self.dtype)
        self.lengths = None
        if lengths:
            self.lengths = rng.integers(1, self.seqlen_k + 1, self.batch).astype(np.int32)

    def inputs(self) -> dict[str, Array | None]:
        """The node's inputs."""
        new_k, new_v = self.k[:, self.past :], self.v[:, self.past :]
        query, key, value = (x.reshape(*x.shape[:2], -1) for x in (self.q, new_k, new_v))
        inputs: dict[str, Array | None] = {"query": query, "key": key, "value": value}
        if self.layout == "heads first":
            inputs |= {"key": heads_first(new_k), "value": heads_first(new_v)}
        elif self.layout == "packed kv":
            inputs |= {"key": np.stack([new_k, new_v], 3), "value": None}
        elif self.layout == "packed qkv":
            inputs = {"query": np.stack([self.q, new_k, new_v], 3), "key": None, "value": None}
        inputs |= {"bias": None, "key_padding_mask": self.lengths}
        past = [heads_first(x[:, : self.past]) if self.past else None for x in (self.k, self.v)]
        return inputs | {"attention_bias": self.bias, "past_key": past[0], "past_value": past[1]}

    def case(self, *, dynamic: bool) -> Case:
        """The node. With `dynamic` the model knows no length."""
        inputs = self.inputs()
        attributes: dict[str, Any] = {"num_heads": self.heads, "unidirectional": int(self.causal)}
        if self.scale is not None:
            attributes["scale"] = self.scale
        outputs = ["output", "present_key", "present_value"] if self.past else ["output"]
        shapes: dict[str, Sequence[Any]] = {}
        for name, value in inputs.items() if dynamic else ():
            if value is not None:
                length = 2 if value.ndim == 4 else 1
                known = value.shape[1:length], value.shape[length + 1 :]
                shapes[name] = ["batch", *known[0], f"{name}_length", *known[1]]
                if value.ndim == 1:
                    shapes[name] = ["batch"]
                if name == "attention_bias":
                    shapes[name] = [*value.shape[:2], "queries", "keys"]
        return Case("MultiHeadAttention", inputs, outputs, attributes, shapes=shapes)

    def expected(self) -> reference.Expected:
        """Attention in float64."""
        bias = None if self.bias is None else self.bias.astype(np.float64)
        if self.lengths is not None:
            hidden = np.arange(self.seqlen_k) >= self.lengths[:, None, None, None]
            bias = np.where(hidden, -np.inf, 0.0)
        # Bottom-right is the same: there are as many new keys as queries.
        return reference.attention(
            self.q, self.k, self.v, softmax_scale=self.scale, causal=self.causal, bias=bias
        )


def check(drawn: Drawn, case: Case) -> None:
    """Compare our provider with float64, and with ONNX Runtime's own."""
    results = ours(case)
    output = results[0].reshape(drawn.batch, drawn.seqlen_q, drawn.heads, drawn.hdim_v)
    drawn.layout = "separate"  # ONNX Runtime's own takes no packed ones
    cpu = theirs(drawn.case(dynamic=False))
    judge(output, drawn.expected(), cpu[0])
    for got, want in zip(results[1:], (drawn.k, drawn.v), strict=False):
        np.testing.assert_array_equal(got, heads_first(want))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("seed", range(8))
def test_random(layout: str, dtype: str, seed: int) -> None:
    drawn = Drawn(layout, dtype, seed)
    check(drawn, drawn.case(dynamic=bool(seed % 2)))


@pytest.mark.parametrize("layout", ["separate", "packed kv", "packed qkv"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("seed", range(6))
def test_lengths_of_sequences(layout: str, dtype: str, seed: int) -> None:
    drawn = Drawn(layout, dtype, seed, lengths=True)
    check(drawn, drawn.case(dynamic=bool(seed % 2)))


def simple(**inputs: Any) -> Case:
    """A node that our provider takes, with other inputs."""
    x = np.zeros((2, 5, 3 * 64), np.float16)
    return Case(
        "MultiHeadAttention",
        {"query": x, "key": x, "value": x, "bias": None, "key_padding_mask": None, "attention_bias": None}
        | inputs,
        ["output"],
        {"num_heads": 3},
    )


def test_what_no_kernel_does_is_left_to_others() -> None:
    assert not is_refused(simple())
    assert is_refused(simple(bias=np.zeros(9 * 64, np.float16)))
    assert is_refused(simple(key_padding_mask=np.ones((2, 5), np.int32)))
    assert is_refused(simple(attention_bias=np.zeros((1, 1, 5, 1), np.float16)))
    narrow = np.zeros((2, 5, 3 * 12), np.float16)  # kernels read heads in multiples of eight elements
    assert is_refused(simple(query=narrow, key=narrow, value=narrow))
    assert is_refused(replace(simple(), outputs=["output", "", "", "qk"]))


def test_refused_nodes_run_elsewhere() -> None:
    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    query, key, value = (randoms(rng, (2, 5, 3 * 64), DTYPES["fp32"]) for _ in range(3))
    case = simple(query=query, key=key, value=value, key_padding_mask=mask)
    both = run(our_session(case.model(), only=False), case.feeds())
    np.testing.assert_array_equal(both[0], theirs(case)[0])
