# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wrong caches: what the host can know is refused by name.

Entries of page lists and lengths are in device memory. test_garbage.py has those that lead out of the cache;
the software device finds those that lead to tokens which nobody has written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from decoding import Decoding, Problem
from kv_append import Append, Appending
from strict import forgive

import pyfa_rocm
from pyfa_rocm import (
    Bias,
    DecodeParams,
    InvalidArgumentError,
    UnsupportedError,
)
from pyfa_rocm._runtime import hip

HOST = np.zeros(64, np.int32)
BASE = Problem(hdim=64, lengths=(37, 200), packed=True, options={"num_splits": 1})
APPEND = Append(rotary_dim=32)


def _said(x: object) -> str:
    """The words as the name of a case: addresses are others in each process."""
    return x if isinstance(x, str) else ""


_REFUSED_CALLS: list[Any] = [
    ({"num_splits": 129}, InvalidArgumentError, "num_splits = 129: expected 0 (the library's choice) to 128"),
    ({"num_splits": -1}, InvalidArgumentError, "num_splits = -1"),
    ({"kernel": 9}, UnsupportedError, "kernel = 9: expected 0"),
    ({"flags": 2}, InvalidArgumentError, "flags = 0x2: expected 0 or FMHA_NO_MEMORY_CHECK"),
    ({"leftpad_k": HOST.ctypes.data}, InvalidArgumentError, "leftpad_k"),
    ({"sinks": 2}, InvalidArgumentError, "sinks = 0x2: expected an address aligned to 4 bytes"),
]


@pytest.mark.parametrize(("change", "error", "said"), _REFUSED_CALLS, ids=_said)
def test_refused_calls(change: dict[str, Any], error: type[Exception], said: str) -> None:
    _refused(lambda params: replace(params, **change), error, said)


_REFUSED_ATTENTION: list[Any] = [
    ({"sinks": 64}, InvalidArgumentError, "fwd->sinks = 0x40: expected NULL: a call over a cache has sinks"),
    ({"dtype": "float32"}, UnsupportedError, "fwd->dtype = fp32: this build has no such kernel"),
    ({"o_dtype": "float32"}, UnsupportedError, "fwd->o_dtype = fp32"),
    ({"seqlen_k": 17 * 16}, InvalidArgumentError, "fwd->seqlen_k = 272: expected at most cache->max_pages"),
    ({"seqlen_k": 2**31}, InvalidArgumentError, "fwd->seqlen_k = 2147483648: expected at most"),
    ({"nhead_q": 7}, InvalidArgumentError, "fwd->nhead_q = 7"),
    ({"hdim_q": 1024}, UnsupportedError, "hdim_q = 1024"),
    ({"mask": "causal_top_left"}, UnsupportedError, "align bottom-right"),
    ({"bias": Bias(4096, 0, 0, 0)}, InvalidArgumentError, "fwd->bias.data = 0x1000: not device memory"),
    ({"p_drop": 0.5}, UnsupportedError, "fwd->p_drop = 0.5: kernels over a KV cache do not drop"),
    ({"seqused_k": HOST.ctypes.data}, InvalidArgumentError, "fwd->seqused_k"),
]


@pytest.mark.parametrize(("change", "error", "said"), _REFUSED_ATTENTION, ids=_said)
def test_refused_attention(change: dict[str, Any], error: type[Exception], said: str) -> None:
    _refused(lambda params: replace(params, fwd=replace(params.fwd, **change)), error, said)


_REFUSED_CACHES: list[Any] = [
    ({"dtype": "float16"}, UnsupportedError, "cache->dtype = fp16"),
    ({"dtype": "int8"}, InvalidArgumentError, "dtype: got 'int8'"),
    ({"page_size": 24}, InvalidArgumentError, "cache->page_size = 24: expected a power of two"),
    ({"page_size": 0}, InvalidArgumentError, "cache->page_size = 0: expected 1 to 2147483647"),
    ({"pages": 0}, InvalidArgumentError, "cache->pages = 0: expected 1 to 2147483647"),
    ({"pages": 2**31}, InvalidArgumentError, "cache->pages = 2147483648: expected 1 to 2147483647"),
    ({"max_pages": 12}, InvalidArgumentError, "expected at most cache->max_pages * cache->page_size = 192"),
    ({"max_pages": 0}, InvalidArgumentError, "cache->max_pages = 0"),
    ({"stride_block_table": -1}, InvalidArgumentError, "cache->stride_block_table = -1: expected 0 or more"),
    ({"block_table": HOST.ctypes.data}, InvalidArgumentError, "cache->block_table"),
    ({"block_table": 2}, InvalidArgumentError, "cache->block_table = 0x2: expected an address aligned to 4"),
    ({"kv_indices": 4096}, InvalidArgumentError, "cache->kv_indptr = NULL, but cache->kv_indices is set"),
    ({"kv_indptr": 4096, "kv_indices": 4096}, InvalidArgumentError, "expected NULL with block_table"),
    ({"cache_batch_idx": 4096}, InvalidArgumentError, "cache_batch_idx = 0x1000: expected NULL with pages"),
    ({"block_table": 0}, InvalidArgumentError, "fwd->seqlen_k = 200: expected at most cache->page_size = 16"),
    (
        {"block_table": 0, "page_size": 200, "pages": 1},
        InvalidArgumentError,
        "cache->pages = 1: expected fwd->batch = 2 or more without cache_batch_idx",
    ),
    ({"k": None}, InvalidArgumentError, "cache->k.data = NULL: expected a device pointer"),
]


@pytest.mark.parametrize(("change", "error", "said"), _REFUSED_CACHES, ids=_said)
def test_refused_caches(change: dict[str, Any], error: type[Exception], said: str) -> None:
    _refused(lambda params: replace(params, cache=replace(params.cache, **change)), error, said)


_REFUSED_TENSORS: list[Any] = [
    ({"data": HOST.ctypes.data}, "cache->v.data"),
    ({"data": 8}, "cache->v.data = 0x8"),
    ({"stride_page": -8}, "cache->v.stride_page = -8: expected 0 or more"),
    ({"stride_token": 4}, "cache->v: stride 4 of dimension 1: expected a multiple of 8 elements"),
    ({"stride_head": 2**62}, "cache->v.stride_head = 4611686018427387904: over a size of 2 it leads further"),
]


@pytest.mark.parametrize(("change", "said"), _REFUSED_TENSORS, ids=_said)
def test_refused_tensors(change: dict[str, int], said: str) -> None:
    def changed(params: DecodeParams) -> DecodeParams:
        assert params.cache.v is not None
        return replace(params, cache=replace(params.cache, v=params.cache.v._replace(**change)))

    _refused(changed, InvalidArgumentError, said)


def _refused(changed: Callable[[DecodeParams], DecodeParams], error: type[Exception], said: str) -> None:
    """Neither run, nor asked about; and nothing is written."""
    decoding = Decoding(BASE)
    params = changed(decoding.params())
    with pytest.raises(error) as caught:
        pyfa_rocm.fmha_decode(params)
    assert said in str(caught.value)
    pyfa_rocm.synchronize()
    assert decoding.o.to_numpy().tobytes() == decoding.o_host.tobytes()


_REFUSED_LENGTHS_OF_AN_APPEND: list[Any] = [
    ({"table": "1d", "lengths": (40, 40), "used": (0, 0)}, "seqlen = 40: expected at most cache->indices"),
    ({"rotary_positions": 2}, "rotary.positions = 2: expected seqlen = 3 or more without positions"),
]


@pytest.mark.parametrize(("change", "said"), _REFUSED_LENGTHS_OF_AN_APPEND, ids=_said)
def test_refused_lengths_of_an_append(change: dict[str, Any], said: str) -> None:
    """New tokens by themselves that do not fit."""
    positions = change.pop("rotary_positions", 0)
    params = Appending(replace(APPEND, **change)).params()
    assert params.cache is not None
    assert params.rotary is not None
    if positions:
        params.rotary.positions = positions
    elif params.cache.indices:
        params.cache.indices = 2
    with pytest.raises(InvalidArgumentError) as caught:
        pyfa_rocm.fmha_kv_append(params)
    assert said in str(caught.value)


@pytest.fixture
def found(device_kind: str, capfd: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Assert that the device stops a call, and says so with some words."""
    if device_kind == "gpu":
        pytest.skip("a GPU reads what lies there, or its fault ends the process")

    def check(call: Callable[[Any], None], params: Any, *words: str) -> None:
        call(params)
        with pytest.raises(pyfa_rocm.HipError, match="hipError"):
            pyfa_rocm.synchronize()
        forgive()
        message = capfd.readouterr().err
        for word in ("workgroup", "lane", "pc 0x", *words):
            assert word in message, message

    return check


def _overwrite(address: int, index: int, value: int) -> None:
    """Change an int32 on the device."""
    host = np.array([value], np.int32)
    kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
    hip.call("hipMemcpy", address + 4 * index, host.ctypes.data, 4, kind)


def test_pages_that_nobody_wrote_are_found(found: Callable[..., None]) -> None:
    """An entry that is a page, of no sequence; and a length that is a token too long."""
    decoding = Decoding(BASE)
    params = decoding.params()
    table = decoding.block_table
    unowned = set(range(params.cache.pages)) - set(table.ravel().tolist())
    _overwrite(params.cache.block_table, 0, unowned.pop())
    found(pyfa_rocm.fmha_decode, params, "fmha_decode_bf16_d64", "which nobody has written")
    decoding = Decoding(BASE)
    params = decoding.params()
    _overwrite(params.fwd.seqused_k, 0, BASE.lengths[0] + 1)
    found(pyfa_rocm.fmha_decode, params, "fmha_decode_bf16_d64", "which nobody has written")
