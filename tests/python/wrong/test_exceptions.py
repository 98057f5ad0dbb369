# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whatever an argument is: an exception of this package's, or a TypeError, and none of what lies below."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyfa_rocm as p


class _Refuses:
    """Is no number, and says so in its own words."""

    def __int__(self) -> int:
        raise ValueError("no integer")

    __index__ = __int__

    def __float__(self) -> float:
        raise ValueError("no float")


class _NoCapsule:
    def __dlpack__(self, **_: object) -> object:
        return 7

    def __dlpack_device__(self) -> tuple[int, int]:
        return 10, 0


class _NoDevice(_NoCapsule):
    def __dlpack_device__(self) -> Any:
        return "ab"


class _FarStream:
    ptr = 2**70


VALUES = [
    None, True, -1, 2**31, 2**63, 2**64, -(2**70), 10**400, 1.5, float("nan"), float("inf"), "x", b"x", [],
    {}, (), (1, 2, 3), ("a", 1), (2**64, 1), object(), _Refuses(), _NoCapsule(), _NoDevice(), _FarStream(),
    1j, np.float64(3), np.array(3), np.array([1, 2]), np.array("x"), np.ones((2, 3)), np.dtype("f2"),
    range(3), object,
]  # fmt: skip
ALLOWED: tuple[type[Exception], ...] = (p.FmhaError, TypeError)
# NumPy's, of what it takes for an element type.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _wrong(call: Callable[[Any], object], also: tuple[type[Exception], ...] = ()) -> dict[str, str]:
    """Return the other exceptions that are raised, by the value that did it."""
    found = {}
    allowed = ALLOWED + also
    for value in VALUES:
        try:
            call(value)
        except allowed:
            pass
        except Exception as error:
            found[repr(value)[:40]] = repr(error)
    return found


def _ones(*shape: int, dtype: Any = np.float16) -> p.DeviceArray:
    return p.DeviceArray.from_numpy(np.ones(shape, dtype))


def _starts(*values: int) -> p.DeviceArray:
    return p.DeviceArray.from_numpy(np.array(values, np.int32))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        p.flash_attn_func, p.flash_attn_varlen_func, p.flash_attn_qkvpacked_func, p.flash_attn_bwd,
        p.flash_attn_kv_append, p.flash_attn_with_kvcache, p.flash_attn_merge, p.flash_attn_quantize,
        p.DeviceArray.empty, p.Stream, p.synchronize, p.use_device,
    )
}  # fmt: skip


def _good(function: str) -> dict[str, Any]:
    """Return arguments that a function takes."""
    x, packed, starts, new = _ones(1, 8, 2, 64), _ones(8, 2, 64), _starts(0, 3, 8), _ones(1, 1, 2, 64)
    cache = {"k_cache": _ones(4, 16, 2, 64), "v_cache": _ones(4, 16, 2, 64)}
    lse = _ones(1, 2, 8, dtype=np.float32)
    parts = {"outs": _ones(2, 1, 8, 1, 64, dtype=np.float32), "lses": _ones(2, 1, 1, 8, dtype=np.float32)}
    arguments: dict[str, dict[str, Any]] = {
        "flash_attn_func": {"q": x, "k": x, "v": x},
        "flash_attn_varlen_func": {
            "q": packed,
            "k": packed,
            "v": packed,
            "cu_seqlens_q": starts,
            "cu_seqlens_k": starts,
            "max_seqlen_q": 5,
            "max_seqlen_k": 5,
        },
        "flash_attn_qkvpacked_func": {"qkv": _ones(1, 8, 3, 2, 64)},
        "flash_attn_bwd": {"dout": x, "q": x, "k": x, "v": x, "out": _ones(1, 8, 2, 64), "lse": lse},
        "flash_attn_kv_append": {**cache, "k": new, "v": new},
        "flash_attn_with_kvcache": {**cache, "q": new, "cache_seqlens": 3},
        "flash_attn_merge": parts,
        "flash_attn_quantize": {"x": x},
        "empty": {"shape": (2, 2), "dtype": "float16"},
        "use_device": {"index": 0},
    }
    return arguments.get(function, {})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments(name: str) -> None:
    """Each in turn, with the others as they should be. No kernel is launched that leaves their memory."""
    good, function = _good(name), FUNCTIONS[name]

    def call(argument: str, value: Any) -> None:
        made = function(**good | {argument: value})
        if name == "use_device":
            with made:
                pass

    found = {
        argument: wrong
        for argument in inspect.signature(function).parameters
        if (wrong := _wrong(partial(call, argument)))
    }
    assert found == {}
    p.synchronize()


def _strided(x: p.DeviceArray) -> p.Strided:
    return p.Strided(x.data, *x.strides[:3])


def _cache() -> p.Cache:
    page = 16 * 2 * 64
    k, v = (p.CacheTensor(_ones(4, 16, 2, 64).data, page, 128, 64) for _ in range(2))
    return p.Cache("float16", 4, 16, k=k, v=v)


def _params() -> dict[str, Any]:
    x, new = _strided(_ones(1, 8, 2, 64)), _strided(_ones(1, 1, 2, 64))
    fwd = p.FwdParams("float16", 1, 8, 8, 2, 2, 64, 64, 0.1, x, x, x, _strided(_ones(1, 8, 2, 64)))
    out = _strided(_ones(1, 8, 2, 64))
    parts = p.Parts(_ones(2, 1, 8, 1, 64, dtype=np.float32).data, 512, 512, 64, 64)
    lses = p.LseParts(_ones(2, 1, 1, 8, dtype=np.float32).data, 8, 8, 8)
    return {
        "fwd": fwd,
        "bwd": p.BwdParams(fwd, x, x, x, x),
        "decode": p.DecodeParams(replace(fwd, seqlen_q=1, seqlen_k=16), _cache()),
        "kv_append": p.KvAppendParams("float16", 1, 1, 2, 64, 64, cache=_cache(), k=new, v=new),
        "merge": p.MergeParams("float32", 2, 1, 8, 1, 64, parts, lses, _strided(_ones(1, 8, 1, 64))),
        "quantize": p.QuantizeParams("float16", "float16", 1, 8, 2, 64, x, out, hadamard=True),
    }


FAMILIES = ("fwd", "bwd", "decode", "kv_append", "merge", "quantize")


@pytest.mark.parametrize("family", FAMILIES)
def test_fields(family: str) -> None:
    params, supported = _params()[family], getattr(p, f"fmha_{family}_supported")

    def call(name: str, value: Any) -> None:
        supported(replace(params, **{name: value}))

    found = {x.name: wrong for x in fields(params) if (wrong := _wrong(partial(call, x.name)))}
    assert found == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_params_of_another_class(family: str) -> None:
    """The message says which is expected."""
    others = [params for name, params in _params().items() if name != family]
    expected = type(_params()[family]).__name__
    for ending in ("", "_supported", "_kernel", "_prepare"):
        for params in (*others, None, 1, "x"):
            with pytest.raises(p.InvalidArgumentError, match=f"params: got .*, expected {expected}$"):
                getattr(p, f"fmha_{family}{ending}")(params)


@pytest.mark.parametrize("family", FAMILIES)
def test_streams_of_raw_calls(family: str) -> None:
    """A number that is no pointer is not cut to one: 2^64 would be the null stream."""
    params = _params()[family]
    assert _wrong(lambda stream: getattr(p, f"fmha_{family}")(params, stream)) == {}
    for stream in (2**64, -1):
        with pytest.raises(p.InvalidArgumentError, match="stream: got"):
            getattr(p, f"fmha_{family}")(params, stream)


@pytest.mark.parametrize("address", [-1, 2**64, 2**64 + 4096])
def test_addresses(address: int) -> None:
    """Likewise: it would be another one."""
    cache = replace(_cache(), block_table=address)
    with pytest.raises(p.InvalidArgumentError, match="block_table: got"):
        p.fmha_kv_append_supported(replace(_params()["kv_append"], cache=cache))
    with pytest.raises(p.InvalidArgumentError, match="workspace: got"):
        p.fmha_bwd_supported(replace(_params()["bwd"], workspace=address))


@pytest.mark.parametrize("dropout_p", [-0.1, 1.0])
def test_dropout_comes_before_its_random_state(dropout_p: float) -> None:
    q = _ones(1, 4, 2, 64)
    with pytest.raises(
        p.InvalidArgumentError, match=f"^dropout_p: got {dropout_p}, expected from 0 to below 1"
    ):
        p.flash_attn_func(q, q, q, dropout_p=dropout_p)


def test_views() -> None:
    x = _ones(2, 8)
    assert _wrong(lambda value: x[value], (IndexError, ValueError)) == {}
    assert _wrong(lambda value: x.__dlpack__(max_version=value), (BufferError,)) == {}
    with pytest.raises(TypeError):
        x.reshape(np.array([1, 2]))  # type: ignore[arg-type]


def test_a_stream_that_was_not_made(recwarn: pytest.WarningsRecorder) -> None:
    """Its end is silent."""
    for device in (99, -1, "x"):
        with pytest.raises(p.FmhaError):
            p.Stream(device)  # type: ignore[arg-type]
    assert not recwarn.list


def test_a_missing_array() -> None:
    for name in ("q", "k_cache", "v_cache"):
        good = _good("flash_attn_with_kvcache") | {name: None}
        with pytest.raises(TypeError, match=f"{name}: got NoneType"):
            p.flash_attn_with_kvcache(**good)


@pytest.mark.parametrize("shape", [(2, 3, 2, 64), (3, 2, 64)])
def test_more_tokens_than_there_are(shape: tuple[int, ...]) -> None:
    """The call has no lengths that could bound them."""
    new = _ones(*shape)
    good = _good("flash_attn_kv_append") | {"k": new, "v": new}
    for longest in (2, 4, 300):
        with pytest.raises(p.InvalidArgumentError, match=f"max_seqlen: got {longest}, expected None or 3"):
            p.flash_attn_kv_append(**good, max_seqlen=longest)
    p.flash_attn_kv_append(**good, max_seqlen=3)
    p.synchronize()
