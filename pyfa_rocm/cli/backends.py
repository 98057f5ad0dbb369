# SPDX-License-Identifier: MIT OR Apache-2.0
"""The paths to a kernel that `prove` can take: each a public function, called as its users call it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm import array, attention
from pyfa_rocm._runtime import hip, library
from pyfa_rocm.cli.trial import Trial
from pyfa_rocm.errors import FmhaError

__all__ = ["BACKENDS", "Backend", "distribution_version"]

Array = npt.NDArray[Any]
Run = Callable[[Trial], tuple[Array, Array]]


def distribution_version(name: str) -> str | None:
    """Version of an installed distribution, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Backend:
    """A path to a kernel.

    Attributes
    ----------
    function : str
        The public function that is called.
    run : callable
        Calls it for a problem; returns O and LSE on the host.
    modules : tuple of str
        What it imports, our adapter last.
    distributions : tuple of str
        Distributions whose versions matter to it.
    """

    function: str
    run: Run
    modules: tuple[str, ...]
    distributions: tuple[str, ...]

    def load(self) -> None:
        """Import what it needs, before a HIP runtime is chosen: a framework brings its own.

        Raises
        ------
        FmhaError
            Something is not installed.
        """
        for name in self.modules:
            try:
                import_module(name)
            except ImportError as error:
                wanted = " ".join(self.distributions)
                raise FmhaError(
                    f"{self.function} needs {wanted}, which does not import ({error}): pip install {wanted}"
                ) from error

    def versions(self) -> dict[str, str | None]:
        """Versions of its distributions."""
        return {name: distribution_version(name) for name in self.distributions}


def _numpy(problem: Trial) -> tuple[Array, Array]:
    q, k, v = (array.DeviceArray.from_numpy(x) for x in problem.inputs())
    out, lse = attention.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
    return out.to_numpy(), lse.to_numpy()


@contextmanager
def _device_memory(nbytes: list[int]) -> Iterator[list[int]]:
    """Yield the addresses of device memory of these sizes."""
    addresses: list[int] = []
    try:
        addresses += [int(hip.call("hipMalloc", n)) for n in nbytes]
        yield addresses
    finally:
        for address in addresses:
            hip.call("hipFree", address)


def _c_params(problem: Trial, addresses: list[int]) -> Any:
    """Fill the C struct as a C program does: field by field, from zeros."""
    ffi, lib = library.load()
    p = ffi.new("fmha_fwd_params *")
    p.struct_size = ffi.sizeof("fmha_fwd_params")
    p.dtype = {"bfloat16": lib.FMHA_BF16, "float16": lib.FMHA_FP16, "float32": lib.FMHA_FP32}[problem.dtype]
    p.batch, p.seqlen_q, p.seqlen_k = problem.batch, problem.seqlen, problem.seqlen
    p.nhead_q, p.nhead_k = problem.nhead_q, problem.nhead_k
    p.hdim_q = p.hdim_v = problem.hdim
    p.softmax_scale = problem.hdim**-0.5
    p.mask = lib.FMHA_MASK_CAUSAL if problem.causal else lib.FMHA_MASK_NONE
    heads = {"q": problem.nhead_q, "k": problem.nhead_k, "v": problem.nhead_k, "o": problem.nhead_q}
    for (name, count), address in zip(heads.items(), addresses, strict=False):
        tensor, row = getattr(p, name), count * problem.hdim
        tensor.data = ffi.cast("void *", address)
        tensor.stride_batch, tensor.stride_seqlen, tensor.stride_head = (
            problem.seqlen * row,
            row,
            problem.hdim,
        )
    p.lse.data = ffi.cast("float *", addresses[4])
    p.lse.stride_batch, p.lse.stride_head = problem.nhead_q * problem.seqlen, problem.seqlen
    return p


def _c(problem: Trial) -> tuple[Array, Array]:
    """Memory from hipMalloc, raw pointers, and nothing of our Python between them and the C ABI."""
    host = problem.inputs()
    out = np.empty_like(host[0])
    lse = np.empty((problem.batch, problem.nhead_q, problem.seqlen), np.float32)
    ffi, lib = library.load()
    kinds = hip.module().hipMemcpyKind
    with _device_memory([x.nbytes for x in (*host, out, lse)]) as addresses:
        for address, x in zip(addresses, host, strict=False):
            hip.call("hipMemcpy", address, x.ctypes.data, x.nbytes, kinds.hipMemcpyHostToDevice)
        params = _c_params(problem, addresses)
        library.check(lib.fmha_fwd_prepare(params))
        library.check(lib.fmha_fwd(params, ffi.NULL))
        hip.call("hipDeviceSynchronize")
        for address, x in zip(addresses[3:], (out, lse), strict=True):
            hip.call("hipMemcpy", x.ctypes.data, address, x.nbytes, kinds.hipMemcpyDeviceToHost)
    return out, lse


def _torch(problem: Trial) -> tuple[Array, Array]:
    """Tensors on the card where torch has one, else in host memory, which the software device can use."""
    torch, adapter = import_module("torch"), import_module("pyfa_rocm.torch")
    device = "cuda" if torch.version.hip and torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, problem.dtype)
    # NumPy's bfloat16 is ml_dtypes', which torch does not know: as integers of that size.
    bits = getattr(torch, f"int{8 * dtype.itemsize}")
    host = [x.view(f"i{x.dtype.itemsize}") for x in problem.inputs()]
    q, k, v = (torch.from_numpy(x).view(dtype).to(device) for x in host)
    out, lse = adapter.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
    out = out.cpu().view(bits).numpy().view(array.dtype_of(problem.dtype))
    return out, lse.cpu().numpy()


def _jax(problem: Trial) -> tuple[Array, Array]:
    """Under jit, on JAX's default device."""
    jax, adapter = import_module("jax"), import_module("pyfa_rocm.jax")
    q, k, v = (jax.numpy.asarray(x) for x in problem.inputs())
    call = jax.jit(functools.partial(adapter.flash_attn_func, causal=problem.causal, return_lse=True))
    out, lse = jax.block_until_ready(call(q, k, v))
    return np.asarray(out), np.asarray(lse)


BACKENDS = {
    "numpy": Backend("pyfa_rocm.flash_attn_func", _numpy, (), ("numpy", "hip-python")),
    "c": Backend("fmha_fwd", _c, (), ("cffi", "hip-python")),
    "torch": Backend("pyfa_rocm.torch.flash_attn_func", _torch, ("torch", "pyfa_rocm.torch"), ("torch",)),
    "jax": Backend("pyfa_rocm.jax.flash_attn_func", _jax, ("jax", "pyfa_rocm.jax"), ("jax", "jaxlib")),
}
