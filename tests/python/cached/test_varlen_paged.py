# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_varlen_func` with a block table, against float64, and what does not go with one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases_types import Array
from decoding import Decoding, Problem, run_judged
from hypothesis import given, settings
from hypothesis import strategies as st
from strict import forgiven

from pyfa_rocm import DeviceArray, InvalidArgumentError, UnsupportedError, flash_attn_varlen_func


class Packed(Decoding):
    """Packed queries over pages, by the public function; tokens that no query sees are unwritten."""

    def __init__(self, p: Problem, *, by_used: bool = False, own_out: bool = True) -> None:
        super().__init__(replace(p, packed=True))
        self.by_used, self.own_out = by_used, own_out

    def run(self) -> list[tuple[Array, Array]]:
        """O and the LSE of each sequence."""
        p, params = self.p, self.params()
        fwd, cache = params.fwd, params.cache
        assert cache.k is not None
        assert cache.v is not None
        held = {x.data: x for x in self.kept}
        tensors = [held[x.data] for x in (fwd.q, cache.k, cache.v)]
        q, k, v = (x[:, :, :, :hdim] for x, hdim in zip(tensors, (p.hdim, p.hdim, self.hdim_v), strict=True))
        if p.heads_first:
            k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
        lengths = np.array(p.lengths, np.int32)
        starts = DeviceArray.from_numpy(np.append(np.int32(0), np.cumsum(lengths, dtype=np.int32)))
        given = self.o[0, :, :, : self.hdim_v]
        with forgiven():
            out, lse = flash_attn_varlen_func(
                q[0], k, v, held[fwd.cu_seqlens_q], None if self.by_used else starts, fwd.seqlen_q,
                fwd.seqlen_k, 0.0, None, p.causal, p.window, p.softcap,
                None if self.slopes is None else held[fwd.alibi_slopes], False, False,
                held[cache.block_table], seqused_k=held[fwd.seqused_k] if self.by_used else None,
                return_lse=True, out=None if self.own_out else given,
            )  # fmt: skip
        assert self.own_out or out is given
        o, log = out.to_numpy(), lse.to_numpy()
        assert (o.shape, log.shape) == (given.shape, (given.shape[1], given.shape[0]))
        rows = [slice(*self.starts[b : b + 2]) for b in range(self.batch)]
        return [(o[None, at], log[None, :, at]) for at in rows]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    batch = draw(st.integers(1, 3))
    lengths, queries = (
        tuple(draw(st.lists(st.integers(0, n), min_size=batch, max_size=batch))) for n in (200, 20)
    )
    return Problem(
        lengths=lengths, seqlens_q=queries, dtype=draw(st.sampled_from(("float16", "bfloat16"))),
        nhead_k=draw(st.integers(1, 2)), ratio=draw(st.sampled_from((1, 3))),
        hdim=64 - 8 * draw(st.integers(0, 2)), hdim_v=64 - 8 * draw(st.integers(0, 2)),
        page_size=draw(st.sampled_from((1, 16, 64))), heads_first=draw(st.booleans()),
        causal=draw(st.booleans()), window=draw(st.sampled_from(((-1, -1), (50, 0), (7, 3)))),
        shared=draw(st.integers(0, min(lengths))), seed=draw(st.integers(0, 2**32)),
    )  # fmt: skip


@settings(max_examples=100)
@given(problem=problems(), by_used=st.booleans(), own_out=st.booleans())
def test_random(problem: Problem, by_used: bool, own_out: bool) -> None:
    run_judged(Packed(problem, by_used=by_used, own_out=own_out))


@pytest.mark.parametrize("change", [{"softcap": 15.0}, {"alibi": True, "causal": True}], ids=str)
def test_features(change: dict[str, Any]) -> None:
    """Prompts, a chunk of one and single tokens, in one call."""
    p = Problem(lengths=(30, 200, 77, 0), seqlens_q=(30, 1, 12, 0), hdim=64, **change)
    by_starts, by_used = (run_judged(Packed(p, by_used=used)) for used in (False, True))
    for a, b in zip(by_starts, by_used, strict=True):
        assert all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def test_vectorised() -> None:
    """The same bits of a cache as servers lay it out for loads of 16 bytes."""
    rng = np.random.default_rng(2)
    k, v = rng.standard_normal((2, 6, 16, 2, 64), np.float32).astype(np.float16)
    q, starts = rng.standard_normal((13, 4, 64), np.float32).astype(np.float16), (0, 12, 13)
    pages, lengths = np.array([[4, 0, 0], [5, 1, 2]], np.int32), np.array([16, 33], np.int32)
    keys = k.reshape(6, 16, 2, 8, 8).transpose(0, 2, 3, 1, 4)
    put, results = DeviceArray.from_numpy, []
    for cache in ((k, v), (keys, v.transpose(0, 2, 3, 1))):
        k_cache, v_cache = (put(np.ascontiguousarray(x)) for x in cache)
        out = flash_attn_varlen_func(
            put(q), k_cache, v_cache, put(np.array(starts, np.int32)), None, 12, 33, causal=True,
            block_table=put(pages), seqused_k=put(lengths),
        )  # fmt: skip
        results.append(out.to_numpy().tobytes())
    assert results[0] == results[1]


def zeros(*shape: int, dtype: Any = np.float16) -> DeviceArray:
    return DeviceArray.from_numpy(np.zeros(shape, dtype))


def call(**changes: Any) -> Any:
    """Two sequences of a query and a page each, but for what is changed."""
    starts = DeviceArray.from_numpy(np.array([0, 1, 2], np.int32))
    arguments: dict[str, Any] = {
        "q": zeros(2, 4, 64),
        "k": zeros(3, 16, 2, 64),
        "v": zeros(3, 16, 2, 64),
        "cu_seqlens_q": starts,
        "cu_seqlens_k": starts,
        "max_seqlen_q": 1,
        "max_seqlen_k": 16,
        "return_lse": False,
        "block_table": zeros(2, 1, dtype=np.int32),
    }
    return flash_attn_varlen_func(**arguments | changes)


WITH_PAGES = "got a value with block_table, expected none: .* gather keys and values"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dropout_p": ({"dropout_p": 0.5, "philox": (1, 2)}, WITH_PAGES),
    "bias": ({"bias": zeros(4, 2, 16)}, WITH_PAGES),
    "top_left": ({"top_left": True}, WITH_PAGES),
    "out_dtype": ({"out_dtype": "float32"}, WITH_PAGES),
    "k_descale": ({"k_descale": 0.5}, WITH_PAGES),
    "seqused_q": ({"seqused_q": zeros(2, dtype=np.int32)}, ".*expected None: cu_seqlens_q has the lengths"),
    "return_attn_probs": ({"return_attn_probs": True}, ".*expected False: return_lse gives the log-sum-exp"),
}


@pytest.mark.parametrize(("name", "change", "said"), [(x, *y) for x, y in REFUSED.items()], ids=REFUSED)
def test_refused(name: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^{name}: {said}"):
        call(**change)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "batch": ({"block_table": zeros(3, 1, dtype=np.int32)}, r"block_table: got shape \(3, 1\), expected \(2"),
    "dims": ({"block_table": zeros(2, dtype=np.int32)}, r"block_table: got shape \(2,\), expected \(2, 0\)"),
    "int64": ({"block_table": zeros(2, 1, dtype=np.int64)}, "block_table: got dtype int64, expected int32"),
    "packed": ({"k": zeros(48, 2, 64)}, r"k_cache: got shape \(48, 2, 64\), expected 4 dimensions"),
    "lengths": ({"cu_seqlens_k": None}, "cu_seqlens_k: got None, expected an array, or one in seqused_k"),
    "used": ({"seqused_k": zeros(3, dtype=np.int32)}, r"seqused_k: got shape \(3,\), expected \(2,\)"),
    "longest": ({"max_seqlen_k": 17}, "seqlen_k = 17: expected at most .* = 16"),
    "page": ({x: zeros(3, 12, 2, 64) for x in "kv"}, "page_size = 12: expected a power of two"),
    "out": ({"out": zeros(2, 4, 32)}, r"out: got shape \(2, 4, 32\), expected \(2, 4, 64\)"),
}


@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG)
def test_wrong(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        call(**change)


def test_unknown_keyword() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'leftpad'"):
        call(leftpad=None)


def test_the_same_calls_are_good() -> None:
    assert not call().to_numpy().any()
    out, lse = call(seqused_k=DeviceArray.from_numpy(np.array([0, 3], np.int32)), return_lse=True)
    assert np.isneginf(lse.to_numpy()[:, 0]).all()
    assert np.isfinite(lse.to_numpy()[:, 1]).all()
    assert not out.to_numpy().any()
