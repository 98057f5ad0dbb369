# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax: every feature against float64, under jit or not; lowering, threads."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from adapters.with_jax import jax_cases  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built import nearest
from cases import DTYPES, Case, cases
from cases_types import Varlen
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export

import pyfa_rocm
from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func, philox_of_key

TARGET = "pyfa_rocm_fmha_fwd"
BASE = Case(2, 70, 100, 2, 2, 64, "bfloat16", causal=True, seed=3)


@pytest.mark.parametrize("function", [flash_attn_func, flash_attn_varlen_func])
def test_signature(function: Any) -> None:
    """pyfa_rocm's, without what a traced call cannot have: memory to write to, and a stream.

    block_table is compared as soon as pyfa_rocm's has it.
    """
    ours = inspect.signature(getattr(pyfa_rocm, function.__name__)).parameters.values()
    expected = [(x.name, x.kind, x.default) for x in ours if x.name not in ("out", "stream")]
    known = {name for name, _, _ in expected}
    parameters = inspect.signature(function).parameters.values()
    compared = [x for x in parameters if x.name in known or x.name != "block_table"]
    assert [(x.name, x.kind, x.default) for x in compared] == expected


FEATURES = ("none", "bias", "alibi", "softcap")


def attend(case: Case, **options: Any) -> tuple[list[jax.Array], Any]:
    """The arrays q, k, v of a case, and a function of them."""
    arrays, fixed = jax_cases.arguments(case)
    return list(arrays.values()), partial(flash_attn_func, **(fixed | options))


@settings(max_examples=60)
@given(
    cases(dtypes=tuple(DTYPES), variants=FEATURES, dropout=(False, True), sinks=(False, True), max_tiles=8),
    st.booleans(),
)
def test_random(case: Case, compiled: bool) -> None:
    jax_cases.run(case, compiled)


@settings(max_examples=50)
@given(
    cases(varlen=(True,), variants=FEATURES, dropout=(False, True), sinks=(False, True), max_tiles=8),
    st.booleans(),
)
def test_random_varlen(case: Case, compiled: bool) -> None:
    jax_cases.run(case, compiled)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    """One of each that has a kernel, so that there is something to judge."""
    jax_cases.run(nearest(Case(1, 130, 150, 1, 2, 64, dtype)), compiled=True)


@pytest.mark.parametrize("sizes", [(0, 40), (40, 0)])
def test_nothing_to_see(sizes: tuple[int, int]) -> None:
    q, k = (jnp.ones((2, n, 2, 64), jnp.bfloat16) for n in sizes)
    o, lse = jax.jit(partial(flash_attn_func, return_lse=True))(q, k, k)
    assert o.shape == q.shape
    assert lse.shape == (2, 2, sizes[0])
    assert (o == 0).all()
    assert jnp.isneginf(lse).all()


def test_no_sequence() -> None:
    """Lengths that are traced, and with them which rows are in use."""
    q = jnp.ones((30, 2, 64), jnp.bfloat16)
    call = jax.jit(lambda cu: flash_attn_varlen_func(q, q, q, cu, cu, 30, 30, return_lse=True))
    for end in (0, 7, 30):
        o, lse = call(jnp.array([0, end // 2, end], jnp.int32))
        assert (o[:end] == 1).all()
        assert (o[end:] == 0).all()
        assert (jnp.isneginf(lse) == (jnp.arange(30) >= end)).all()


def test_one_array() -> None:
    """Q, K and V the same memory, and results of one call the input of the next within one program."""
    x = attend(nearest(BASE))[0][0]
    once = partial(flash_attn_func, causal=True)
    chained = jax.jit(lambda x: once(once(x, x, x), x, once(x, x, x)))
    y = once(x, x, x)
    assert np.array_equal(chained(x), once(y, x, y))


def test_random_state() -> None:
    """A key's philox is seed and offset in halves; a compiled step draws anew for each key."""
    (q, k, v), _ = attend(BASE)
    draw = partial(flash_attn_func, q, k, v, 0.3)
    call = jax.jit(lambda key: draw(philox=philox_of_key(key)))
    keys = jax.random.split(jax.random.key(5), 2)
    first, second = (call(key) for key in keys)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, call(keys[0]))
    seed, offset = np.asarray(philox_of_key(keys[0])).view(np.uint64).tolist()
    assert np.array_equal(first, draw(philox=(seed, offset)))
    assert np.array_equal(first, draw(philox=np.array([seed, offset], np.uint64)))
    assert np.array_equal(philox_of_key(jax.random.PRNGKey(9)), philox_of_key(jax.random.key(9)))


def test_with_64_bits() -> None:
    """If JAX allows 64 bits, a random state has them, but the results do not."""
    (q, k, v), _ = attend(BASE)
    draw = partial(flash_attn_func, q, k, v, 0.3, return_lse=True)
    wide = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with wide(True):
        o, lse = draw(philox=jnp.array([5, 7], jnp.uint64))
    assert (o.dtype, lse.dtype) == (jnp.bfloat16, jnp.float32)
    for got, want in zip((o, lse), draw(philox=(5, 7)), strict=True):
        assert np.array_equal(got, want)


def test_control_flow() -> None:
    (q, k, v), call = attend(nearest(BASE), return_lse=False)
    scanned = jax.jit(lambda q: jax.lax.scan(lambda x, _: (call(x, k, v), None), q, length=3)[0])
    o = q
    for _ in range(3):
        o = call(o, k, v)
    assert np.array_equal(scanned(q), o)
    assert np.array_equal(jax.checkpoint(call)(q, k, v), call(q, k, v))
    with jax.disable_jit():
        assert np.array_equal(call(q, k, v), jax.jit(call)(q, k, v))


def test_ahead_of_time() -> None:
    (q, k, v), call = attend(nearest(BASE), return_lse=False)
    assert jax.eval_shape(call, q, k, v) == jax.ShapeDtypeStruct(q.shape, q.dtype)
    described = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v)]
    compiled = jax.jit(call).lower(*described).compile()
    assert np.array_equal(compiled(q, k, v), call(q, k, v))
    with pytest.raises(ValueError, match=TARGET):
        export.export(jax.jit(call))(q, k, v)
    allowed = [export.DisabledSafetyCheck.custom_call(TARGET)]
    exported = export.export(jax.jit(call), platforms=("cpu", "rocm"), disabled_checks=allowed)(q, k, v)
    assert exported.platforms == ("cpu", "rocm")
    assert np.array_equal(jax.jit(exported.call)(q, k, v), call(q, k, v))
    for_cuda = export.export(jax.jit(call), platforms=("cuda",), disabled_checks=allowed)
    with pytest.raises(NotImplementedError, match=f"{TARGET}.*cuda"):
        for_cuda(q, k, v)


def test_threads() -> None:
    """Calls of many threads at once, on arrays they share and on their own."""
    (q, k, v), call = attend(nearest(BASE))
    compiled = jax.jit(call)
    factors = [1.0, 0.5, 2.0, -1.0] * 6
    want = {factor: call(q * factor, k, v) for factor in set(factors)}

    def one(factor: float) -> bool:
        got = (compiled if factor > 0 else call)(q * factor, k, v)
        return all(np.array_equal(a, b) for a, b in zip(got, want[factor], strict=True))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, factors))


def test_devices_at_once() -> None:
    """Programs on four of JAX's devices run at the same time, and there is one software device."""
    (q, k, v), call = attend(nearest(BASE), return_lse=False)
    want, compiled = call(q, k, v), jax.jit(call)
    placed = [[jax.device_put(x, device) for x in (q, k, v)] for device in jax.devices() * 3]
    results = [compiled(*arrays) for arrays in placed]
    assert len({next(iter(o.devices())) for o in results}) == 4
    assert all(np.array_equal(o, want) for o in results)


def _python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program on the pyfa_rocm under test, from a folder that has none."""
    package = str(Path(pyfa_rocm.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": package, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)


def test_a_gpu_takes_no_host_memory(tmp_path: Path) -> None:
    """The runtime decides, so the test pretends another; the message reaches the caller through XLA."""
    run = _python(
        "import jax, pyfa_rocm.jax\n"
        "from pyfa_rocm._runtime import hip\n"
        "hip.runtime = lambda: hip.Runtime('/opt/rocm/lib/libamdhip64.so.6', False, 'found')\n"
        "x = jax.numpy.ones((1, 8, 1, 64), jax.numpy.bfloat16)\n"
        "pyfa_rocm.jax.flash_attn_func(x, x, x).block_until_ready()\n",
        tmp_path,
    )
    assert run.returncode == 1
    assert "FAILED_PRECONDITION: got arrays of JAX's platform cpu, but the HIP runtime in use" in run.stderr
    assert "PYFA_ROCM_DEVICE=emulator" in run.stderr


def test_without_jax(tmp_path: Path) -> None:
    run = _python("import sys; sys.modules['jax'] = None; import pyfa_rocm.jax", tmp_path)
    assert run.returncode == 1
    assert "ImportError: pyfa_rocm.jax needs jax 0.6 or newer: pip install jax" in run.stderr


def test_a_kernel_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The software device stops one that runs too long; on the CPU platform the next call runs."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        q = jnp.ones((20, 1, 64), jnp.bfloat16)
        lengths = jnp.array([0, 20], jnp.int32)
        monkeypatch.setenv("FMHA_EMU_MAX_INSTRUCTIONS", "10")
        with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: the kernel failed on the software"):
            flash_attn_varlen_func(q, q, q, lengths, lengths, 20, 20).block_until_ready()
        monkeypatch.undo()
        assert (flash_attn_varlen_func(q, q, q, lengths, lengths, 20, 20) == 1).all()


def test_varlen_case_of_the_first_group() -> None:
    """The same descriptions serve both groups."""
    case = Case(3, 60, 60, 2, 1, 64, "bfloat16", varlen=Varlen((60, 0, 33), (60, 5, 33), (3, 1, 0), None))
    jax_cases.run(nearest(case), compiled=True)
