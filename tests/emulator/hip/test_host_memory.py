# SPDX-License-Identifier: MIT OR Apache-2.0
"""A host without memory: every call that finds none says so, and the process lives on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.asm import Kernel, assemble
from ..support.toolchain import emulator_path

# Without NumPy, whose libraries alone would take the least of the limits below.
SCRIPT = """
import ctypes as c, sys
lib = c.CDLL(sys.argv[1])
lib.hipGetErrorName.restype = c.c_char_p
OUT_OF_MEMORY = 2
def status(name, *args):
    code = getattr(lib, name)(*args)
    lib.hipGetLastError()
    assert code in (0, OUT_OF_MEMORY), (name, lib.hipGetErrorName(code))
    return code
def launch(function, stream, groups, bytes_):
    argument, size = c.c_uint64(bytes_), c.c_size_t(8)
    extra = (c.c_void_p * 5)(1, c.addressof(argument), 2, c.addressof(size), 3)
    sizes = map(c.c_uint, (groups, 1, 1, 1024, 1, 1, 0))
    return status("hipModuleLaunchKernel", function, *sizes, stream, None, extra)
results = []
module, memory, small = c.c_void_p(), c.c_void_p(), c.c_void_p()
results.append(status("hipModuleLoadData", c.byref(module), open(sys.argv[2], "rb").read()))
results.append(status("hipMalloc", c.byref(memory), c.c_size_t(4 << 20)))
if not any(results):
    functions = []
    for name in (b"large", b"stores"):
        functions.append(c.c_void_p())
        results.append(status("hipModuleGetFunction", c.byref(functions[-1]), module, name))
    streams = [c.c_void_p() for _ in range(6)]
    for stream in streams:
        results.append(status("hipStreamCreate", c.byref(stream)))
    for _ in range(2):
        for i, stream in enumerate(streams):
            if stream and not any(results[:4]):
                results.append(launch(functions[i % 2], stream, 16, memory.value))
        for stream in streams:
            results.append(status("hipStreamSynchronize", stream))
        results.append(status("hipDeviceSynchronize"))
    results.append(status("hipFree", memory))
print("out of memory" if any(results) else "success", len(results))
"""
_STORE = ["v_lshlrev_b32 v1, 2, v0", "s_lshl_b32 s4, s2, 12", "v_add_u32 v1, s4, v1"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """large: 16 MB of private memory a workgroup; stores: work for the checks of global memory."""
    address = ["s_load_dwordx2 s[8:9], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)"]
    stores = [*address, *_STORE]
    for i in range(64):
        stores += [f"s_add_u32 s8, s8, {0x10000 if i else 0}", "s_addc_u32 s9, s9, 0", "s_nop 4"]
        stores += ["global_store_dword v1, v0, s[8:9]"]
    pointer = ((0, 8, "global_buffer"),)
    path = tmp_path_factory.mktemp("image") / "kernels.co"
    path.write_bytes(
        assemble(
            [
                Kernel("large", [*address, "s_endpgm"], args=pointer, scratch=16384),
                Kernel("stores", [*stores, "s_waitcnt vmcnt(0)", "s_endpgm"], args=pointer),
            ]
        )
    )
    return path


@pytest.fixture(scope="module")
def no_unwinder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose libgcc_s.so.1 does not load, as where no memory is left to map it.

    An exception that is thrown through a function of the C library ends the process then.
    """
    folder = tmp_path_factory.mktemp("unwinder")
    (folder / "libgcc_s.so.1").write_bytes(b"no library")
    return folder


@pytest.mark.parametrize("megabytes", [*range(100, 140, 2), *range(140, 401, 20)])
def test_limit(image: Path, no_unwinder: Path, megabytes: int) -> None:
    """Success or hipErrorOutOfMemory: no other error, no signal, no hang."""
    folders = [str(no_unwinder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    quiet = {"FMHA_EMU_THREADS": "8", "FMHA_EMU_QUIET": "1", "LD_LIBRARY_PATH": ":".join(folders)}
    command = [f'ulimit -v {megabytes * 1024}; exec "$@"', "sh", sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        ["sh", "-c", *command, str(emulator_path()), str(image)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | quiet,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("success", "out of memory")), done.stdout + done.stderr
