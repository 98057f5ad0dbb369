# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every message of the pages, docs/troubleshooting.md above all, is provoked and is what they say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from inner import REPORT, refused, run
from pages.doc_blocks import ROOT, blocks, pages, require_output

import pyfa_rocm as fa
from pyfa_rocm._runtime import hip, paths

Patch = pytest.MonkeyPatch


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(fa.FmhaError) as caught:
        call()
    return str(caught.value)


def without_class(message: str) -> str:
    """The last line of a traceback, without the name of the exception."""
    return message.partition(": ")[2]


def copies(folder: Path, *names: str) -> list[str]:
    """Copies of the runtime in use, in folders of their own."""
    found = []
    for name in names:
        (folder / name).mkdir()
        found.append(str(shutil.copy(fa.runtime().path, folder / name / "libamdhip64.so.6")))
    return found


def two_runtimes(folder: Path, ask: str) -> str:
    paths = copies(folder, "a", "b")
    return without_class(refused(f"import ctypes; [ctypes.CDLL(p) for p in {paths!r}]; {ask}"))


def bound_first(folder: Path, patch: Patch) -> str:
    mine, other = copies(folder, "a", "b")
    (folder / "a" / "libamdhip64.so").symlink_to(mine)
    code = f"from rocm.bindings import hip; hip.hipInit(0); {REPORT}"
    environment = {"LD_LIBRARY_PATH": str(folder / "a"), "ROCM_PATH": "/nonexistent"}
    return without_class(refused(code, FMHA_HIP_RUNTIME=other, **environment))


def no_runtime(folder: Path, patch: Patch) -> str:
    return without_class(refused(REPORT, FMHA_HIP_RUNTIME=str(folder / "libamdhip64.so")))


def no_gpu(folder: Path, patch: Patch) -> str:
    code = f"from pyfa_rocm._runtime import hip; hip._DRIVER_FILES = ('/nonexistent/kfd',); {REPORT}"
    return without_class(refused(code, PYFA_ROCM_DEVICE="gpu"))


def wrong_arch(folder: Path, patch: Patch) -> str:
    patch.setattr(hip, "_arch_names", lambda opened: ["gfx1010"])
    return error_of(lambda: hip._require_usable(fa.runtime().path))


def arrays(hdim: int = 128) -> tuple[fa.DeviceArray, fa.DeviceArray, fa.DeviceArray]:
    x = fa.DeviceArray.from_numpy(np.ones((1, 64, 2, hdim), np.float16))
    return x, x, x


def no_kernel(folder: Path, patch: Patch) -> str:
    return error_of(lambda: fa.flash_attn_func(*arrays(512)))


def two_features(folder: Path, patch: Patch) -> str:
    bias = fa.DeviceArray.from_numpy(np.ones((1, 2, 64, 64), np.float16))
    return error_of(lambda: fa.flash_attn_func(*arrays(), softcap=1.5, bias=bias))


def host_array(folder: Path, patch: Patch) -> str:
    q, k, v = arrays()
    return error_of(lambda: fa.flash_attn_func(q.to_numpy(), k, v))


# A raw problem, for processes of their own.
RAW = """
import numpy as np, pyfa_rocm as fa
x, o = (fa.DeviceArray.from_numpy(np.ones((1, 64, 2, 128), np.float16)) for _ in range(2))
q, out = (fa.Strided(a.data, *a.strides[:3]) for a in (x, o))
p = fa.FwdParams(
    dtype="float16", batch=1, seqlen_q=64, seqlen_k=64, nhead_q=2, nhead_k=2, hdim_q=128, hdim_v=128,
    softmax_scale=0.1, q=q, k=q, v=q, o=out)
"""


def raw(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this code on `p`, a raw problem, on a software device of its own."""
    done = run(RAW + code, PYFA_ROCM_DEVICE="emulator", **environment)
    assert done.returncode != 0
    return done


def raised(done: subprocess.CompletedProcess[str]) -> str:
    """Return the first exception's message: giving up may raise more."""
    return next(
        without_class(line) for line in done.stderr.splitlines() if line.startswith("pyfa_rocm.errors.")
    )


def host_pointer(folder: Path, patch: Patch) -> str:
    return raised(
        raw("""
host = np.zeros(1 << 16, np.float16)
p.q = fa.Strided(host.ctypes.data // 16 * 16 + 16, *q[1:])
fa.fmha_fwd(p)
""")
    )


def other_device(folder: Path, patch: Patch) -> str:
    return raised(raw("with fa.use_device(1): fa.fmha_fwd(p)", FMHA_EMU_DEVICES="2"))


def capture(folder: Path, patch: Patch) -> str:
    return raised(
        raw("""
from pyfa_rocm._runtime import hip
stream = fa.Stream()
hip.call("hipStreamBeginCapture", stream.handle, hip.module().hipStreamCaptureMode(0))
fa.fmha_fwd(p, stream.handle)
""")
    )


def forked(folder: Path, patch: Patch) -> str:
    return raised(
        raw("""
import os, sys
fa.fmha_fwd(p)
child = os.fork()
if child == 0: fa.runtime()
sys.exit(os.waitpid(child, 0)[1] != 0)
""")
    )


def software_device(folder: Path, patch: Patch) -> str:
    return run(
        f"from pyfa_rocm._runtime import hip; hip._DRIVER_FILES = ('/nonexistent/kfd',); {REPORT}"
    ).stderr


def finding(folder: Path, patch: Patch) -> str:
    done = raw("p.seqlen_k = 4096; fa.fmha_fwd(p); fa.synchronize()")
    return done.stderr.partition("Traceback")[0]


def not_found(folder: Path, patch: Patch) -> str:
    patch.delenv("PYFA_ROCM_LIBRARY", raising=False)
    (folder / "include").mkdir()
    shutil.copy(paths.header_path(), folder / "include")
    patch.setattr(paths, "_PACKAGE", folder)
    patch.setattr(paths, "_SOURCE_TREE", folder)
    return error_of(paths.library_path)


def out_of_memory(folder: Path, patch: Patch) -> str:
    program = [
        sys.executable,
        str(ROOT / "native/tools/compile/compile.py"),
        str(folder / "cost.json"),
    ]
    done = subprocess.run([*program, "sh", "-c", "kill -9 $$"], check=False, capture_output=True, text=True)
    assert done.returncode == 128 + 9
    assert not (folder / "cost.json").exists()
    return str(done.stderr)


def no_zig(folder: Path, patch: Patch) -> str:
    """The machine has neither zig nor a Python that has ziglang on the PATH."""
    cmake = shutil.which("cmake")
    assert cmake, "no cmake"
    (folder / "bin").mkdir()
    (folder / "bin" / "cmake").symlink_to(cmake)
    done = subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(folder / "build"), "-DFMHA_PORTABLE=ON"],
        env={"PATH": str(folder / "bin")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    return done.stderr[done.stderr.index("zig not found") :].partition("Call Stack")[0]


PROVOKE: dict[str, Callable[[Path, Patch], str]] = {
    "two-runtimes": lambda folder, _: two_runtimes(folder, REPORT),
    "two-runtimes-c": lambda folder, _: two_runtimes(
        folder, "from pyfa_rocm._runtime import library; library.hip_runtime_path()"
    ),
    "bound-first": bound_first,
    "no-gpu": no_gpu,
    "no-runtime": no_runtime,
    "wrong-arch": wrong_arch,
    "no-kernel": no_kernel,
    "two-features": two_features,
    "host-array": host_array,
    "host-pointer": host_pointer,
    "other-device": other_device,
    "capture": capture,
    "forked": forked,
    "software-device": software_device,
    "finding": finding,
    "not-found": not_found,
    "no-zig": no_zig,
    "out-of-memory": out_of_memory,
}
SHOWN = {block.value: block for page in pages() for block in blocks(page) if block.mark == "message"}
IN_ADAPTERS = "adapters: "  # such messages are for tests/adapters/installed/test_messages.py


@pytest.mark.parametrize("name", sorted(PROVOKE.keys() | SHOWN.keys()))
def test_message(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    if name.startswith(IN_ADAPTERS):
        return
    assert name in SHOWN, f"no page shows {name}"
    assert name in PROVOKE, f"nothing here provokes {name}"
    if not fa.runtime().emulated:
        pytest.skip("provoked on the software device")
    require_output(SHOWN[name], SHOWN[name].text, PROVOKE[name](tmp_path, monkeypatch))
