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

from pyfa_rocm import array, attention, backward
from pyfa_rocm._runtime import hip, library
from pyfa_rocm.errors import FmhaError
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.trial import Results

__all__ = ["BACKENDS", "Backend", "distribution_version"]

Array = npt.NDArray[Any]
# A problem, and whether its gradients are wanted.
Run = Callable[[Problem, bool], Results]
NAMES = ("dq", "dk", "dv")


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
    function, backward : str
        The public function that is called, and the one that gives the gradients.
    run : callable
        Calls them for a problem.
    modules : tuple of str
        What it imports, our adapter last.
    distributions : tuple of str
        Distributions whose versions matter to it.
    """

    function: str
    backward: str
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


def _numpy(problem: Problem, gradients: bool) -> Results:
    q, k, v = (array.DeviceArray.from_numpy(x) for x in problem.inputs())
    out, lse = attention.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
    found: dict[str, Array] = {}
    if gradients:
        dout = array.DeviceArray.from_numpy(problem.dout())
        grads = backward.flash_attn_bwd(dout, q, k, v, out, lse, causal=problem.causal)
        found = {name: x.to_numpy() for name, x in zip(NAMES, grads, strict=True)}
    return Results(out.to_numpy(), lse.to_numpy(), found)


@contextmanager
def _device_memory(nbytes: list[int]) -> Iterator[list[int]]:
    """Yield the addresses of device memory of these sizes."""
    addresses: list[int] = []
    try:
        for n in nbytes:  # one by one: what is there is freed if the next is too much
            addresses.append(int(hip.call("hipMalloc", n)))
        yield addresses
    finally:
        for address in addresses:
            hip.call("hipFree", address)


def _describe(tensor: Any, problem: Problem, nhead: int, address: int) -> None:
    """Fill an fmha_tensor, contiguous."""
    ffi, _ = library.load()
    row = nhead * problem.hdim
    tensor.data = ffi.cast("void *", address)
    tensor.stride_batch, tensor.stride_seqlen, tensor.stride_head = problem.seqlen * row, row, problem.hdim


def _c_params(problem: Problem, addresses: dict[str, int]) -> Any:
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
    for name, count in heads.items():
        _describe(getattr(p, name), problem, count, addresses[name])
    p.lse.data = ffi.cast("float *", addresses["lse"])
    p.lse.stride_batch, p.lse.stride_head = problem.nhead_q * problem.seqlen, problem.seqlen
    return p


def _c_backward(problem: Problem, forward: Any, addresses: dict[str, int]) -> None:
    """Run fmha_bwd with a workspace of the size that it asks for, and wait."""
    ffi, lib = library.load()
    p = ffi.new("fmha_bwd_params *")
    p.struct_size, p.fwd = ffi.sizeof("fmha_bwd_params"), forward
    heads = {"dout": problem.nhead_q, "dq": problem.nhead_q, "dk": problem.nhead_k, "dv": problem.nhead_k}
    for name, count in heads.items():
        _describe(getattr(p, name), problem, count, addresses[name])
    nbytes = ffi.new("int64_t *")
    library.check(lib.fmha_bwd_workspace_bytes(p, nbytes))
    with _device_memory([nbytes[0]] if nbytes[0] else []) as workspace:
        p.workspace = ffi.cast("void *", workspace[0] if workspace else 0)
        p.workspace_bytes = nbytes[0]
        library.check(lib.fmha_bwd_prepare(p))
        library.check(lib.fmha_bwd(p, ffi.NULL))
        hip.call("hipDeviceSynchronize")


def _c(problem: Problem, gradients: bool) -> Results:
    """Memory from hipMalloc, raw pointers, and nothing of our Python between them and the C ABI."""
    q, k, v = problem.inputs()
    lse = np.empty((problem.batch, problem.nhead_q, problem.seqlen), np.float32)
    inputs = {"q": q, "k": k, "v": v} | ({"dout": problem.dout()} if gradients else {})
    outputs = {"o": np.empty_like(q), "lse": lse}
    if gradients:
        outputs |= {f"d{name}": np.empty_like(inputs[name]) for name in "qkv"}
    host = inputs | outputs
    ffi, lib = library.load()
    kinds = hip.module().hipMemcpyKind
    with _device_memory([x.nbytes for x in host.values()]) as memory:
        addresses = dict(zip(host, memory, strict=True))
        for name, x in inputs.items():
            hip.call("hipMemcpy", addresses[name], x.ctypes.data, x.nbytes, kinds.hipMemcpyHostToDevice)
        params = _c_params(problem, addresses)
        library.check(lib.fmha_fwd_prepare(params))
        library.check(lib.fmha_fwd(params, ffi.NULL))
        hip.call("hipDeviceSynchronize")
        if gradients:
            _c_backward(problem, params, addresses)
        for name, x in outputs.items():
            hip.call("hipMemcpy", x.ctypes.data, addresses[name], x.nbytes, kinds.hipMemcpyDeviceToHost)
    return Results(outputs["o"], lse, {name: outputs[name] for name in NAMES} if gradients else {})


def _torch(problem: Problem, gradients: bool) -> Results:
    """Tensors on the card where torch has one, else in host memory, which the software device can use."""
    torch, adapter = import_module("torch"), import_module("pyfa_rocm.torch")
    device = "cuda" if torch.version.hip and torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, problem.dtype)
    # NumPy's bfloat16 is ml_dtypes', which torch does not know: as integers of that size.
    bits = getattr(torch, f"int{8 * dtype.itemsize}")

    def tensor(x: Array) -> Any:
        return torch.from_numpy(x.view(f"i{x.dtype.itemsize}")).view(dtype).to(device)

    def host(x: Any) -> Array:
        return np.asarray(x.detach().cpu().view(bits).numpy().view(array.dtype_of(problem.dtype)))

    inputs = [tensor(x).requires_grad_(gradients) for x in problem.inputs()]
    out, lse = adapter.flash_attn_func(*inputs, causal=problem.causal, return_lse=True)
    found: dict[str, Array] = {}
    if gradients:
        grads = torch.autograd.grad(out, inputs, tensor(problem.dout()))
        found = {name: host(x) for name, x in zip(NAMES, grads, strict=True)}
    return Results(host(out), lse.detach().cpu().numpy(), found)


def _jax(problem: Problem, gradients: bool) -> Results:
    """Run under jit, on JAX's default device."""
    jax, adapter = import_module("jax"), import_module("pyfa_rocm.jax")
    inputs = [jax.numpy.asarray(x) for x in problem.inputs()]
    attend = functools.partial(adapter.flash_attn_func, causal=problem.causal, return_lse=True)
    if not gradients:
        out, lse = jax.block_until_ready(jax.jit(attend)(*inputs))
        return Results(np.asarray(out), np.asarray(lse), {})

    def step(q: Any, k: Any, v: Any, dout: Any) -> Any:
        out, pullback, lse = jax.vjp(attend, q, k, v, has_aux=True)
        return out, lse, pullback(dout)

    out, lse, grads = jax.block_until_ready(jax.jit(step)(*inputs, jax.numpy.asarray(problem.dout())))
    found = {name: np.asarray(x) for name, x in zip(NAMES, grads, strict=True)}
    return Results(np.asarray(out), np.asarray(lse), found)


BACKENDS = {
    "numpy": Backend(
        "pyfa_rocm.flash_attn_func", "pyfa_rocm.flash_attn_bwd", _numpy, (), ("numpy", "hip-python")
    ),
    "c": Backend("fmha_fwd", "fmha_bwd", _c, (), ("cffi", "hip-python")),
    "torch": Backend(
        "pyfa_rocm.torch.flash_attn_func",
        "torch.autograd.grad",
        _torch,
        ("torch", "pyfa_rocm.torch"),
        ("torch",),
    ),
    "jax": Backend(
        "pyfa_rocm.jax.flash_attn_func", "jax.vjp", _jax, ("jax", "pyfa_rocm.jax"), ("jax", "jaxlib")
    ),
}
