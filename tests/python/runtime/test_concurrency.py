# SPDX-License-Identifier: MIT OR Apache-2.0
"""8 threads x 2 devices, in a process of its own: the number of software devices is fixed at start."""

from __future__ import annotations

from inner import ROOT, run_on_two_devices

# Tensors on device 1 while device 0 is current.
WRONG_DEVICE = """
import numpy as np
import pyfa_rocm as p
q, o = (p.DeviceArray.from_numpy(np.ones((1, 8, 1, 64), np.float16), device=1) for _ in range(2))
tensors = [p.Strided(x.data, *x.strides[:3]) for x in (q, q, q, o)]
try:
    p.fmha_fwd(p.FwdParams("float16", 1, 8, 8, 1, 1, 64, 64, 1.0, *tensors))
except p.InvalidArgumentError as error:
    print(error)
assert (o.to_numpy() == 1).all()
"""

# The public functions go to where their tensors are, and come back, whether their plan is new or known.
OTHER_DEVICE = """
import numpy as np
import pyfa_rocm as p
host = np.random.default_rng(0).standard_normal((1, 40, 2, 64)).astype(np.float16)
here, there = (p.DeviceArray.from_numpy(host, device=i) for i in range(2))
want = p.flash_attn_func(here, here, here, causal=True).to_numpy().tobytes()
for _ in range(2):
    out, lse = p.flash_attn_func(there, there, there, causal=True, return_lse=True)
    assert (out.device, lse.device, p.current_device()) == (1, 1, 0)
    assert out.to_numpy().tobytes() == want
    for bad in ({"out": here}, {"alibi_slopes": p.DeviceArray.empty((2,), "float32", 0)}):
        try:
            p.flash_attn_func(there, there, there, causal=True, **bad)
        except p.InvalidArgumentError as error:
            print(error)
    assert p.current_device() == 0
"""

# Arrays that can be exported only while their device is current: for HIP, or as torch itself sees it.
ELSEWHERE = """
import contextlib, sys, types
import numpy as np
import pyfa_rocm as p

class Array:
    def __init__(self, host, device):
        self.array = p.DeviceArray.from_numpy(host, device)
    def current(self):
        return p.current_device()
    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
    def __dlpack__(self, *, stream=None, max_version=None):
        if self.current() != self.array.device:
            raise BufferError("Can't export tensors on a different CUDA device index.")
        return self.array.__dlpack__(stream=stream, max_version=max_version)

@contextlib.contextmanager
def device(index):
    before, torch.current = torch.current, index
    yield
    torch.current = before

torch = sys.modules["torch"] = types.ModuleType("torch")
torch.cuda, torch.current = types.SimpleNamespace(device=device), 0
Tensor = type("Tensor", (Array,), {"__module__": "torch", "current": lambda self: torch.current})

host = np.random.default_rng(0).standard_normal((1, 40, 2, 64)).astype(np.float16)
here = p.DeviceArray.from_numpy(host)
want = p.flash_attn_func(here, here, here).to_numpy().tobytes()
for kind in (Array, Tensor):
    q = kind(host, 1)
    out = p.flash_attn_func(q, q, q)
    assert (out.device, p.current_device(), torch.current) == (1, 0, 0)
    assert out.to_numpy().tobytes() == want
print("right")
"""


def test_eight_threads_two_devices() -> None:
    assert "right: 8 threads x 4 problems on 2 devices" in run_on_two_devices(
        str(ROOT / "tests" / "support" / "concurrency_worker.py"), "2"
    )


def test_memory_of_another_device() -> None:
    message = run_on_two_devices("-c", WRONG_DEVICE)
    assert "q.data" in message
    assert "memory of device 1; expected memory of the current device 0" in message


def test_calls_follow_their_tensors() -> None:
    message = run_on_two_devices("-c", OTHER_DEVICE)
    assert message.count("out: got device 0, expected 1 as q") == 2
    assert message.count("alibi_slopes: got device 0, expected 1 as q") == 2


def test_arrays_of_a_device_that_is_not_current() -> None:
    assert run_on_two_devices("-c", ELSEWHERE).strip() == "right"
