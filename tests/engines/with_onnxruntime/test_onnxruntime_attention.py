# SPDX-License-Identifier: MIT OR Apache-2.0
"""ONNX's own Attention, of opsets 23 to 25, in random shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference
from engines.with_onnxruntime.expectations import SIZES, heads_first, judge, pick, randoms
from engines.with_onnxruntime.sessions import DTYPES, Case, is_refused, ours, theirs

Array = npt.NDArray[Any]


class Drawn:
    """A problem: tensors (batch, seqlen, nhead, hdim), and the node that has them."""

    def __init__(self, rank: int, dtype: str, seed: int) -> None:
        rng = np.random.default_rng([rank, ord(dtype[0]), len(dtype), seed])
        self.rank, self.dtype, self.opset = rank, DTYPES[dtype], pick(rng, 23, 24, 25)
        self.batch, self.heads_k = pick(rng, 1, 2, 3), pick(rng, 1, 2, 3)
        self.heads = self.heads_k * pick(rng, 1, 2, 5)
        self.hdim = pick(rng, 8, 40, 64, 104, 128)
        self.hdim_v = pick(rng, self.hdim, self.hdim, 16)
        self.seqlen_q, self.new = pick(rng, *SIZES), pick(rng, *SIZES)
        self.past = pick(rng, 0, *SIZES) if dtype != "fp32" else 0
        self.causal, self.scale = pick(rng, False, True), pick(rng, None, 0.2)
        total = self.past + self.new
        self.q = randoms(rng, (self.batch, self.seqlen_q, self.heads, self.hdim), self.dtype)
        self.k = randoms(rng, (self.batch, total, self.heads_k, self.hdim), self.dtype)
        self.v = randoms(rng, (self.batch, total, self.heads_k, self.hdim_v), self.dtype)
        self.mask, self.softcap = None, 0.0
        extra = pick(rng, None, "mask", "softcap")
        # Kernels with masks and softcaps are these in the set that tests build.
        if dtype == "fp16" and extra == "mask" and self.hdim == self.hdim_v:
            shape = (pick(rng, 1, self.batch), pick(rng, 1, self.heads), pick(rng, 1, self.seqlen_q), total)
            self.mask = randoms(rng, shape[pick(rng, 0, 1, 2) :], self.dtype)
        elif dtype == "fp16" and extra == "softcap" and 64 < self.hdim == self.hdim_v:
            self.softcap = 5.0

    def _place(self, x: Array) -> Array:
        return heads_first(x) if self.rank == 4 else x.reshape(*x.shape[:2], -1)

    def case(self, *, dynamic: bool = False) -> Case:
        """The node. With `dynamic` the model knows no length."""
        new = [self._place(x[:, self.past :]) for x in (self.k, self.v)]
        inputs: dict[str, Array | None] = {"Q": self._place(self.q), "K": new[0], "V": new[1]}
        past = [heads_first(x[:, : self.past]) if self.past else None for x in (self.k, self.v)]
        inputs |= {"attn_mask": self.mask, "past_key": past[0], "past_value": past[1]}
        attributes: dict[str, Any] = {"is_causal": int(self.causal), "softcap": self.softcap}
        if self.rank == 3:
            attributes |= {"q_num_heads": self.heads, "kv_num_heads": self.heads_k}
        if self.scale is not None:
            attributes["scale"] = self.scale
        shapes: dict[str, Sequence[Any]] = {}
        for name in ("Q", "K", "V") if dynamic else ():
            value = inputs[name]
            assert value is not None
            length = "queries" if name == "Q" else "keys"
            shapes[name] = ["batch", *value.shape[1:-2], length, value.shape[-1]]
        outputs = ["Y", "present_key", "present_value"] if self.past else ["Y"]
        return Case("Attention", inputs, outputs, attributes, domain="", opset=self.opset, shapes=shapes)

    def expected(self) -> reference.Expected:
        """Attention in float64: a query sees the past, and of the new keys those up to its own number."""
        bias = None if self.mask is None else self.mask.astype(np.float64)
        if self.causal and self.new != self.seqlen_q:
            hidden = np.arange(self.past + self.new) > np.arange(self.seqlen_q)[:, None] + self.past
            causal = np.where(hidden, -np.inf, 0.0)
            bias = causal if bias is None else bias + causal
        square = self.causal and self.new == self.seqlen_q
        return reference.attention(
            self.q, self.k, self.v, softmax_scale=self.scale, causal=square, bias=bias, softcap=self.softcap
        )


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("seed", range(8))
def test_random(rank: int, dtype: str, seed: int) -> None:
    drawn = Drawn(rank, dtype, seed)
    results = ours(drawn.case(dynamic=bool(seed % 2)))
    y = heads_first(results[0]) if rank == 4 else results[0].reshape(*drawn.q.shape[:3], -1)
    cpu = theirs(drawn.case())[0]
    judge(y, drawn.expected(), heads_first(cpu) if rank == 4 else cpu)
    for got, want in zip(results[1:], (drawn.k, drawn.v), strict=False):
        np.testing.assert_array_equal(got, heads_first(want))


def plain(opset: int = 23, **others: Any) -> Case:
    """A node that our provider takes, with other inputs or attributes."""
    x = np.zeros((2, 3, 5, 64), np.float16)
    given: dict[str, Array | None] = {"Q": x, "K": x, "V": x, "attn_mask": None}
    given |= {"past_key": None, "past_value": None}
    given |= {"nonpad_kv_seqlen": None} if opset > 23 else {}
    attributes = {name: others.pop(name) for name in list(others) if name not in given}
    return Case("Attention", given | others, ["Y"], attributes, domain="", opset=opset)


def test_what_no_kernel_does_is_left_to_others() -> None:
    assert not is_refused(plain())
    assert is_refused(plain(attn_mask=np.ones((5, 5), np.bool_)))
    assert is_refused(plain(attn_mask=np.ones((5, 1), np.float16)))
    assert is_refused(plain(attn_mask=np.ones((5, 5), np.float16), softcap=3.0))
    assert is_refused(plain(softmax_precision=11))
    assert is_refused(plain(24, nonpad_kv_seqlen=np.array([3, 5], np.int64)))
    assert is_refused(plain(25, left_window_size=2))
