# SPDX-License-Identifier: MIT OR Apache-2.0
"""Long sequences of few heads: workgroups share keys, in a workspace that the custom call asks XLA for."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from adapters.with_jax import jax_cases  # isort: skip  # before jax
import jax
import numpy as np
import pytest
from cases import Case

import pyfa_rocm
from pyfa_rocm import fmha
from pyfa_rocm.jax import _traced, flash_attn_func

LONG = Case(1, 200, 4096, 2, 1, 128, "bfloat16", causal=True, seed=11)
ALIGN = 256


def _call(case: Case) -> tuple[list[jax.Array], Any]:
    arrays, fixed = jax_cases.arguments(jax_cases.in_jax(case))
    return list(arrays.values()), partial(flash_attn_func, **fixed)


def _workspaces(call: Any, arrays: list[jax.Array]) -> list[int]:
    """The bytes of buffers beside arguments and results, of a compiled call's program."""
    text = jax.jit(call).lower(*arrays).as_text()
    return [int(n) for n in re.findall(r"-> \(.*tensor<(\d+)xui8>\)", text)]


def _needs_sharing(arrays: list[jax.Array], call: Any) -> int:
    found = _workspaces(call, arrays)
    if not found:
        pytest.skip("this library has no kernel that shares keys")
    (nbytes,) = found
    return nbytes


@pytest.mark.parametrize("return_lse", [False, True])
def test_same_bits_as_without_jax(return_lse: bool) -> None:
    """A call without JAX gives the same bits; the workspace has the size asked for, and changes the bits."""
    (q, k, v), call = _call(LONG)
    options = call.keywords | {"return_lse": return_lse}
    call = partial(flash_attn_func, **options)
    asked = _needs_sharing([q, k, v], call)
    before, sizes = fmha.fmha_fwd_workspace_bytes, []

    def noting(params: Any) -> int:
        sizes.append(before(params))
        return sizes[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_traced, "fmha_fwd_workspace_bytes", noting)
        _workspaces(lambda *x: call(*x), [q, k, v])
        patch.setattr(_traced, "fmha_fwd_workspace_bytes", lambda _: 0)
        unshared = jax.jit(lambda *x: call(*x))(q, k, v)
    assert sizes == [asked - ALIGN]
    jax.clear_caches()
    shared = jax.jit(call)(q, k, v)
    host: list[Any] = [pyfa_rocm.DeviceArray.from_numpy(np.asarray(x)) for x in (q, k, v)]
    want = pyfa_rocm.flash_attn_func(*host, **options)

    def bits(result: Any) -> list[bytes]:
        arrays = result if return_lse else (result,)
        return [(x.to_numpy() if hasattr(x, "to_numpy") else np.asarray(x)).tobytes() for x in arrays]

    assert bits(shared) == bits(want)
    assert bits(shared) != bits(unshared)


@pytest.mark.parametrize("compiled", [False, True])
def test_right(compiled: bool) -> None:
    jax_cases.run(LONG, compiled)


def test_mapped() -> None:
    """A mapped call is one launch for all: the bits are those of a batch."""
    (q, k, v), call = _call(LONG)
    call = partial(call.func, **(call.keywords | {"return_lse": False}))
    _needs_sharing([q, k, v], call)
    mapped = jax.jit(jax.vmap(call, in_axes=(0, None, None)))(jax.numpy.stack([q, -q]), k, v)
    host = [np.concatenate([np.asarray(x), np.asarray(y)]) for x, y in ((q, -q), (k, k), (v, v))]
    arrays: list[Any] = [pyfa_rocm.DeviceArray.from_numpy(x) for x in host]
    want: Any = pyfa_rocm.flash_attn_func(*arrays, **call.keywords)
    assert np.asarray(mapped)[:, 0].tobytes() == want.to_numpy().tobytes()


def test_short_ones_ask_for_none() -> None:
    arrays, call = _call(Case(2, 70, 100, 2, 2, 64, "bfloat16"))
    assert not _workspaces(call, arrays)
