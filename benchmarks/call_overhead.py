# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cost of a call on the host, measured on a device whose launch does nothing.

From C: `fmha_fwd`, beside a bare hipModuleLaunchKernel. From Python: `flash_attn_func`, beside hip-python's
bare hipModuleLaunchKernel and beside the Python layer of the `flash-attn` package, whose extension module is
replaced by one that returns at once. All of it in one process and in turns, so that what else the machine
does meets all alike; times are the calling thread's own on its core. The numbers are medians over the rounds,
with the range of the middle half.

The device is tests/c_abi/support/null_hip.cc. Asking it whose memory a pointer is, as each call does for each
tensor, is a look-up in a map of 1024 allocations under a lock, as in ROCm; what one costs is measured too
(c_pointer_query_ns), and what the software device takes for it.

flash-attn's Python sources are installed when first needed, into an environment of their own under build/.
The torch they need is that of this interpreter, if it has one; otherwise a torch for CPUs goes into that
environment, from $TORCH_CPU_INDEX (PyTorch's own) if pip's index has none. How much is fetched is said first.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.metadata
import importlib.util
import json
import os
import site
import statistics
import subprocess
import sys
import tempfile
import time
import types
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / "build" / "flash_attn"
FLASH_ATTN = "flash-attn==2.8.3.post2"
TORCH = "torch>=2.4"
# flash-attn needs torch and einops; its setup.py the rest.
REQUIREMENTS = ("einops", "setuptools", "wheel", "packaging", "psutil", "ninja")
CPU_INDEX = os.environ.get("TORCH_CPU_INDEX", "https://download.pytorch.org/whl/cpu")

BATCH, SEQLEN, NHEAD, HDIM = 1, 512, 8, 128
ARGUMENT_BYTES = 272  # of a forward kernel: FwdKernelParams of native/kernels/args/fwd.h

LOOPS = """
double call_loop_forward(void* forward, const void* params, void* stream, int64_t calls);
double call_loop_launch(void* launch, void* function, const uint32_t* grid, uint32_t block, void* stream,
                        void* arguments, size_t argument_bytes, int64_t calls);
double call_loop_pointer(void* query, void* pointer, int64_t calls);
"""


class Subject(NamedTuple):
    """A kind of call that is timed."""

    run: Callable[[int], float]  # makes that many calls and returns the nanoseconds each took
    calls: int  # a round
    launches: bool = True  # each call launches a kernel


def say(text: str) -> None:
    print(f"call_overhead: {text}", file=sys.stderr, flush=True)


# flash-attn, in an environment of its own.


def torch_requirement() -> tuple[str, ...]:
    """Return what pip is to install for torch: nothing if this interpreter has it."""
    if importlib.util.find_spec("torch"):
        return ()
    # A version for CPUs, 2.9.0+cpu, is newer than 2.9.0 to pip.
    return (TORCH, "--extra-index-url", CPU_INDEX)


def bytes_to_fetch(pip: list[str], packages: tuple[str, ...]) -> tuple[int, list[str]]:
    """How many bytes pip would download for these packages, and the names of the largest."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [*pip, "--dry-run", "--quiet", "--report", report.name, *packages]
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            give_up(packages)
        urls = [item["download_info"]["url"] for item in json.load(report)["install"]]
    sizes = {}
    for url in urls:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
                sizes[url.rpartition("/")[2]] = int(answer.headers["Content-Length"] or 0)
        except OSError as error:
            say(f"the size of {url} is unknown: {error}")
    return sum(sizes.values()), sorted(sizes, key=lambda name: -sizes[name])[:3]


def give_up(packages: tuple[str, ...]) -> NoReturn:
    say(f"pip could not install {' '.join(packages)}; --without-flash-attn measures the rest")
    sys.exit(1)


def install_flash_attn() -> None:
    """Make the environment with flash-attn's Python sources, and torch if need be, or exit saying why not."""
    ready = ENVIRONMENT / "ready"
    needed = (*torch_requirement(), *REQUIREMENTS)
    wanted = " ".join((*needed, FLASH_ATTN, sys.prefix))
    if ready.is_file() and ready.read_text() == wanted:
        return
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    # This interpreter's packages too, behind those of the environment.
    (packages_dir,) = ENVIRONMENT.glob("lib/python*/site-packages")
    (packages_dir / "parent.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    size, largest = bytes_to_fetch(pip, needed)
    say(f"fetching {size / 1e6:.0f} MB for flash-attn, once, into {ENVIRONMENT}: {', '.join(largest)}, ...")
    # Only Python sources: no compiler, no CUDA, no prebuilt extension.
    env = os.environ | {"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE", "FLASH_ATTENTION_FORCE_BUILD": "TRUE"}
    for packages in (needed, ("--no-deps", "--no-build-isolation", FLASH_ATTN)):
        done = subprocess.run([*pip, *packages], stdout=sys.stderr, env=env, check=False)
        if done.returncode != 0:
            give_up(packages)
    ready.write_text(wanted)


def enter_environment() -> None:
    """Go on in the environment's interpreter, which has this one's packages too."""
    if Path(sys.prefix).resolve() == ENVIRONMENT.resolve():
        return
    install_flash_attn()
    python = str(ENVIRONMENT / "bin" / "python")
    os.execv(python, [python, "-m", "benchmarks.call_overhead", *sys.argv[1:]])


def stubbed_flash_attn() -> dict[str, Callable[[], Any]]:
    """Return calls of flash-attn's functions over an extension that does nothing."""
    import torch

    q = torch.zeros(BATCH, SEQLEN, NHEAD, HDIM, dtype=torch.float16)
    packed, cu = q.reshape(-1, NHEAD, HDIM), torch.arange(BATCH + 1, dtype=torch.int32) * SEQLEN
    lse, p, rng = torch.empty(BATCH, NHEAD, SEQLEN), torch.empty(0), torch.empty(2, dtype=torch.int64)
    out, packed_out = torch.empty_like(q), torch.empty_like(packed)
    extension: Any = types.ModuleType("flash_attn_2_cuda")
    extension.fwd = lambda *_: [out, lse, p, rng]
    extension.varlen_fwd = lambda *_: [packed_out, lse, p, rng]
    sys.modules["flash_attn_2_cuda"] = extension
    from flash_attn import flash_attn_interface as interface

    # torch calls the operators only for tensors on a GPU; the same functions, registered for those on the
    # CPU, are reached by the same way through torch's dispatcher.
    for name in ("_flash_attn_forward", "_flash_attn_varlen_forward"):
        torch.library.register_kernel(f"flash_attn::{name}", "cpu", getattr(interface, name)._init_fn)

    def fixed() -> Any:
        return interface.flash_attn_func(q, q, q, causal=True)

    def varlen() -> Any:
        return interface.flash_attn_varlen_func(packed, packed, packed, cu, cu, SEQLEN, SEQLEN, causal=True)

    for call, expected in ((fixed, out), (varlen, packed_out)):
        if call().data_ptr() != expected.data_ptr():
            raise RuntimeError("flash-attn did not call the extension that stands in for its own")
    torch.set_grad_enabled(False)  # for inference, where its layer does least
    return {"flash_attn_python_us": fixed, "flash_attn_varlen_python_us": varlen}


# The null device, and calls from C.


class NullDevice:
    """The null device and the C loops, in one folder beside the library."""

    def __init__(self, folder: Path) -> None:
        import cffi

        from pyfa_rocm._runtime import hip, library

        hip.runtime()
        self.hip = hip.module()
        self.ffi, self.lib = library.load()
        self._c = cffi.FFI()
        self._c.cdef(LOOPS)
        self._loops = self._c.dlopen(str(folder / "libfmha_call_loop.so"))
        self._device = ctypes.CDLL(str(folder / "libamdhip64.so.6"))
        self._device.null_hip_launches.restype = ctypes.c_uint64

    def launches(self) -> int:
        return int(self._device.null_hip_launches())

    def _pointer(self, value: Any) -> Any:
        return self._c.cast("void *", int(self.ffi.cast("intptr_t", value)))

    def _function(self, function: Any) -> Any:
        return self._c.cast("void *", ctypes.cast(function, ctypes.c_void_p).value)

    def _checked(self, nanoseconds: float) -> float:
        if nanoseconds < 0:
            raise RuntimeError(
                f"a call failed in the C loop; the library's last error: {self.last_error()!r}"
            )
        return nanoseconds

    def last_error(self) -> str:
        return str(self.ffi.string(self.lib.fmha_last_error()).decode())

    def forward(self, params: Any) -> Callable[[int], float]:
        """fmha_fwd."""
        function = self._pointer(self.lib.fmha_fwd)
        loop, stream = self._loops.call_loop_forward, self._c.NULL
        return lambda calls: self._checked(loop(function, self._pointer(params), stream, calls))

    def launch(self, grid: tuple[int, ...], block: int) -> Callable[[int], float]:
        """A bare hipModuleLaunchKernel."""
        function = self._function(self._device.hipModuleLaunchKernel)
        dims, arguments = self._c.new("uint32_t[3]", list(grid)), self._c.new("char[]", ARGUMENT_BYTES)
        loop, stream = self._loops.call_loop_launch, self._c.NULL
        return lambda calls: self._checked(
            loop(function, arguments, dims, block, stream, arguments, ARGUMENT_BYTES, calls)
        )

    def query(self, address: int, library: ctypes.CDLL | None = None) -> Callable[[int], float]:
        """hipPointerGetAttribute, of this device or another runtime."""
        function = self._function((library or self._device).hipPointerGetAttribute)
        pointer, loop = self._c.cast("void *", address), self._loops.call_loop_pointer
        return lambda calls: self._checked(loop(function, pointer, calls))

    def python_launch(self, grid: tuple[int, ...], block: int) -> Callable[[], Any]:
        """hip-python's bare hipModuleLaunchKernel, with its arguments made beforehand."""
        arguments, size = ctypes.create_string_buffer(ARGUMENT_BYTES), ctypes.c_size_t(ARGUMENT_BYTES)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(arguments), 2, ctypes.addressof(size), 3)
        function = self.hip.ihipModuleSymbol_t.fromObj(ctypes.addressof(arguments))
        launch = self.hip.hipModuleLaunchKernel
        x, y, z = grid

        def call() -> Any:
            return launch(function, x, y, z, block, 1, 1, 0, None, None, extra)

        call.keep = arguments, size  # type: ignore[attr-defined]
        return call


def emulator_query(device: NullDevice) -> Callable[[int], float] | None:
    """The question whose memory a pointer is, to the software device; None if that is not built."""
    from pyfa_rocm._runtime import library, paths
    from pyfa_rocm.errors import FmhaError

    try:
        library = ctypes.CDLL(str(paths.emulator_path()))
    except (FmhaError, OSError):
        return None
    pointer = ctypes.c_void_p()
    for _ in range(64):
        if library.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096)) != 0:
            return None
    return device.query(int(pointer.value or 0), library)


# Calls from Python.


def timed(call: Callable[[], Any]) -> Callable[[int], float]:
    """Return what makes so many calls, without a garbage collection between."""

    def run(calls: int) -> float:
        turns = range(calls)
        gc.disable()
        start = time.thread_time_ns()
        for _ in turns:
            call()
        elapsed = time.thread_time_ns() - start
        gc.enable()
        return elapsed / calls

    return run


class Tensors:
    """A causal problem's arrays, with room for its sequences to be packed, and its arguments for C."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        import numpy as np

        from pyfa_rocm import DeviceArray

        shape = (BATCH, SEQLEN, NHEAD, HDIM)
        self.ffi, self.lib = ffi, lib
        self.q, self.k, self.v, self.o = (
            DeviceArray.from_numpy(np.zeros(shape, np.float16)) for _ in range(4)
        )
        self.packed = [x.reshape(BATCH * SEQLEN, NHEAD, HDIM) for x in (self.q, self.k, self.v, self.o)]
        self.lse = DeviceArray.empty((NHEAD, BATCH * SEQLEN), "float32")
        self.cu = DeviceArray.from_numpy(np.arange(BATCH + 1, dtype=np.int32) * SEQLEN)

    def c_params(self) -> Any:
        ffi, lib = self.ffi, self.lib
        p = ffi.new("fmha_fwd_params *")
        p.struct_size = ffi.sizeof("fmha_fwd_params")
        p.dtype, p.mask = lib.FMHA_FP16, lib.FMHA_MASK_CAUSAL
        p.batch, p.seqlen_q, p.seqlen_k = BATCH, SEQLEN, SEQLEN
        p.nhead_q = p.nhead_k = NHEAD
        p.hdim_q = p.hdim_v = HDIM
        p.softmax_scale = HDIM**-0.5
        for name in ("q", "k", "v", "o"):
            tensor, array = getattr(p, name), getattr(self, name)
            tensor.data = ffi.cast("void *", array.data)
            tensor.stride_batch, tensor.stride_seqlen, tensor.stride_head = array.strides[:3]
        return p

    def c_varlen_params(self) -> Any:
        """Seven pointers instead of four: LSE and the two arrays of lengths too."""
        p = self.c_params()
        p.cu_seqlens_q = p.cu_seqlens_k = self.ffi.cast("int32_t *", self.cu.data)
        p.total_q = p.total_k = BATCH * SEQLEN
        p.lse.data, p.lse.stride_head = self.ffi.cast("float *", self.lse.data), BATCH * SEQLEN
        return p


def subjects(device: NullDevice, calls_c: int, calls_python: int) -> dict[str, Subject]:
    """Return the kinds of calls that need no flash-attn."""
    import pyfa_rocm as fa

    x = Tensors(device.ffi, device.lib)
    q, k, v, out = x.q, x.k, x.v, x.o
    params = fa.FwdParams(
        dtype="float16", batch=BATCH, seqlen_q=SEQLEN, seqlen_k=SEQLEN, nhead_q=NHEAD, nhead_k=NHEAD,
        hdim_q=HDIM, hdim_v=HDIM, softmax_scale=HDIM**-0.5, mask="causal",
        **{name: fa.Strided(t.data, *t.strides[:3]) for name, t in zip("qkvo", (q, k, v, out), strict=True)},
    )  # fmt: skip
    kernel = fa.fmha_fwd_kernel(params)

    def python(call: Callable[[], Any]) -> Subject:
        return Subject(timed(call), calls_python)

    result = {
        "c_ns": Subject(device.forward(x.c_params()), calls_c),
        "c_bare_ns": Subject(device.launch(kernel.grid, kernel.block_size), calls_c),
        "c_pointer_query_ns": Subject(device.query(q.data), calls_c, launches=False),
        "python_us": python(lambda: fa.flash_attn_func(q, k, v, causal=True, out=out)),
        "python_new_out_us": python(lambda: fa.flash_attn_func(q, k, v, causal=True)),
        "python_raw_us": python(lambda: fa.fmha_fwd(params)),
        "python_bare_us": python(device.python_launch(kernel.grid, kernel.block_size)),
    }
    result |= {name: python(call) for name, call in cached(x).items()}
    if device.lib.fmha_fwd_supported(x.c_varlen_params()) == device.lib.FMHA_OK:
        result |= {
            "c_varlen_ns": Subject(device.forward(x.c_varlen_params()), calls_c),
            "varlen_python_us": python(lambda: varlen(x)),
        }
    else:
        say(f"no varlen kernel in this build: {device.last_error()}")
    if query := emulator_query(device):
        result["c_emulator_pointer_query_ns"] = Subject(query, calls_c, launches=False)
    return result


def varlen(x: Tensors) -> Any:
    """The same sequences, packed."""
    from pyfa_rocm import flash_attn_varlen_func

    q, k, v, out = x.packed
    return flash_attn_varlen_func(q, k, v, x.cu, x.cu, SEQLEN, SEQLEN, causal=True, out=out)


def cached(x: Tensors) -> dict[str, Callable[[], Any]]:
    """Return calls over a cache that k and v are, and a merge: those of a step of generation."""
    import numpy as np

    import pyfa_rocm as fa

    q = fa.DeviceArray.from_numpy(np.zeros((BATCH, 1, NHEAD, HDIM), np.float16))
    out, lengths = fa.DeviceArray.empty(q.shape, q.dtype), x.cu[1:]
    outs = fa.DeviceArray.from_numpy(np.zeros((2, BATCH, 1, NHEAD, HDIM), np.float32))
    lses = fa.DeviceArray.from_numpy(np.zeros((2, BATCH, NHEAD, 1), np.float32))
    lse = fa.DeviceArray.empty((BATCH, NHEAD, 1), "float32")
    calls: dict[str, Callable[[], Any]] = {
        "decode_python_us": lambda: fa.flash_attn_with_kvcache(
            q, x.k, x.v, cache_seqlens=lengths, num_splits=1, out=out
        ),
        "append_python_us": lambda: fa.flash_attn_kv_append(x.k, x.v, q, q, lengths),
        "merge_python_us": lambda: fa.flash_attn_merge(outs, lses, out=out, lse=lse, out_dtype="float16"),
    }
    return {name: call for name, call in calls.items() if is_built(name, call)}


def is_built(name: str, call: Callable[[], Any]) -> bool:
    """Return whether this build has a kernel for a call."""
    from pyfa_rocm import UnsupportedError

    try:
        call()
    except UnsupportedError as error:
        say(f"no {name}: {error}")
        return False
    return True


def measure(device: NullDevice, what: dict[str, Subject], rounds: int) -> dict[str, list[float]]:
    """Run all subjects in turns, after one round that does not count; nanoseconds a call of each."""
    times: dict[str, list[float]] = {name: [] for name in what}
    for turn in range(rounds + 1):
        for name, subject in what.items():
            before = device.launches()
            nanoseconds = subject.run(subject.calls)
            launched = device.launches() - before
            if launched != subject.calls * subject.launches:
                raise RuntimeError(f"{name}: {subject.calls} calls made {launched} launches")
            if turn > 0:
                times[name].append(nanoseconds)
    return times


def summary(times: dict[str, list[float]]) -> dict[str, float]:
    """Medians, and quartiles beside them, each in the unit its name ends with."""
    result = {}
    for name, values in times.items():
        stem, unit = name.rsplit("_", 1)
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        scale = 1e3 if unit == "us" else 1.0
        result[name] = middle / scale
        result[f"{stem}_q1_{unit}"], result[f"{stem}_q3_{unit}"] = low / scale, high / scale
    result["c_above_bare_ns"] = result["c_ns"] - result["c_bare_ns"]
    if "flash_attn_python_us" in result:
        result["flash_attn_over_python"] = result["flash_attn_python_us"] / result["python_us"]
    return result


def show(result: dict[str, Any]) -> None:
    """Print the table for people."""
    for name, value in result.items():
        if "_q1_" in name or "_q3_" in name:
            continue
        stem, _, unit = name.rpartition("_")
        low, high = result.get(f"{stem}_q1_{unit}"), result.get(f"{stem}_q3_{unit}")
        spread = f"   {low:9.4g} .. {high:.4g}" if low is not None else ""
        print(f"{name:30} {value if isinstance(value, str) else f'{value:9.4g}'}{spread}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--without-flash-attn", action="store_true", help="install nothing, leave it out")
    parser.add_argument("--rounds", type=int, default=31, help="how often each is measured (default: 31)")
    parser.add_argument("--calls", type=int, default=500, help="calls from Python in a round (default: 500)")
    args = parser.parse_args()
    for name in ("rounds", "calls"):
        if getattr(args, name) < 1:
            parser.error(f"argument --{name}: expected at least 1, got {getattr(args, name)}")
    return args


def main() -> int:
    """Print the table, or one JSON object."""
    args = arguments()
    if not args.without_flash_attn:
        enter_environment()
    from pyfa_rocm import FmhaError
    from pyfa_rocm._runtime import paths

    try:
        folder = paths.library_path().parent / "null_hip"
    except FmhaError as error:
        say(str(error))
        return 1
    runtime = folder / "libamdhip64.so.6"
    if not runtime.is_file():
        say(f"no null device: expected {runtime}; build the native tests (BUILD_TESTING=ON)")
        return 1
    os.environ["PYFA_ROCM_DEVICE"] = "gpu"
    os.environ["FMHA_HIP_RUNTIME"] = str(runtime)
    device = NullDevice(folder)
    what = subjects(device, 20 * args.calls, args.calls)
    result: dict[str, Any] = {"rounds": args.rounds}
    if not args.without_flash_attn:
        for name, call in stubbed_flash_attn().items():
            what[name] = Subject(timed(call), args.calls, launches=False)
        for package in ("torch", "flash-attn"):
            result[f"{package.replace('-', '_')}_version"] = importlib.metadata.version(package)
    result |= summary(measure(device, what, args.rounds))
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
