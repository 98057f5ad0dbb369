# SPDX-License-Identifier: MIT OR Apache-2.0
"""JAX for ROCm on the software device: devices, what it asks of HIP, collectives, kernels that fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import jax
import numpy as np
import pytest
from adapters.installed.test_prove import test_prove as prove
from clients import stubs

import pyfa_rocm
from pyfa_rocm._runtime import paths
from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program, which has a minute."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_devices() -> None:
    devices = jax.devices()
    assert [device.platform for device in devices] == ["gpu"] * 4
    assert {device.device_kind for device in devices} == {"Emulated AMD Instinct MI300X (gfx942)"}
    assert pyfa_rocm.device_count() == 4


def test_hip_has_what_jax_wants() -> None:
    """Each function, also those that are called for the first time by programs that no test here runs."""
    site = Path(sysconfig.get_path("purelib"))
    libraries = stubs.shared_libraries([site / "jax_plugins", site / "jax_rocm7_plugin"])
    wanted = {name for name in stubs.undefined(libraries) if re.match("(__)?hip[A-Z]", name)}
    command = ["nm", "--dynamic", "--defined-only", "--format=posix", str(paths.emulator_path())]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {"hipGraphLaunch", "hipModuleLaunchKernel"} <= wanted
    assert wanted <= {line.split()[0] for line in lines}


def test_both_platforms() -> None:
    """In one process, JAX's arrays on the device and in host memory, by the same kernels."""
    x = np.random.default_rng(0).standard_normal((2, 70, 2, 64)).astype(np.float16)
    results = []
    for platform in ("rocm", "cpu"):
        device = jax.local_devices(backend=platform)[-1]
        array = jax.device_put(x, device)
        o = flash_attn_func(array, array, array, causal=True)
        assert o.devices() == {device}
        results.append(np.asarray(o))
    assert np.array_equal(results[0], results[1])


def test_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "rocm")
    prove("jax")


COLLECTIVE = """
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from pyfa_rocm.jax import flash_attn_func

def attend(x):
    return flash_attn_func(x, x, x)

mesh, spec = Mesh(np.array(jax.devices()), ("heads",)), P(None, None, "heads")
x = jax.numpy.ones((1, 20, 4, 64), "bfloat16")
one_each = jax.jit(jax.shard_map(attend, mesh=mesh, in_specs=spec, out_specs=spec))(x)
print(len(one_each.sharding.device_set), bool((np.asarray(one_each) == 1).all()), flush=True)
summed = jax.shard_map(lambda x: jax.lax.psum(attend(x), "heads"), mesh=mesh, in_specs=spec, out_specs=P())
print(jax.jit(summed)(x))
"""


def test_four_devices_up_to_a_collective() -> None:
    """Each has its heads; a sum over devices is RCCL's business, and says so."""
    done = python(COLLECTIVE)
    assert done.stdout == "4 True\n"
    assert done.returncode == -signal.SIGABRT
    assert "ncclGetUniqueId: called, but librccl.so.1 is a stub" in done.stderr


FAULT = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

def read_beyond(x, start, o):
    o[...] = triton.load(x.at[pl.ds(start[0], 128)])

out = jax.ShapeDtypeStruct((128,), jnp.float32)
call = pl.pallas_call(read_beyond, out_shape=out, compiler_params=triton.CompilerParams())
try:
    np.asarray(call(jnp.ones(128), jnp.array([1 << 28])))
except jax.errors.JaxRuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("on_fault", ["error", "abort"])
def test_a_kernel_that_fails(on_fault: str) -> None:
    """The message names the kernel; JAX reports it at the latest when the result is read, or the process
    ends there, as on ROCm. None hangs.
    """
    done = python(FAULT, FMHA_EMU_ON_FAULT=on_fault)
    assert re.search(r"kernel read_beyond, workgroup .* is not inside one allocation", done.stderr)
    assert done.returncode == (-signal.SIGABRT if on_fault == "abort" else 0)
    assert ("ROCM_ERROR_ILLEGAL_ADDRESS" in done.stdout) == (on_fault == "error")


def test_starts_out_of_range() -> None:
    """JAX cannot see them, and the kernel takes the nearest that are in range."""
    q = jax.random.normal(jax.random.key(0), (20, 1, 64), "bfloat16")
    beyond, right = (jax.numpy.array([0, end], "int32") for end in (20000, 20))
    got, want = (flash_attn_varlen_func(q, q, q, end, end, 20, 20) for end in (beyond, right))
    assert np.array_equal(np.asarray(got), np.asarray(want))
