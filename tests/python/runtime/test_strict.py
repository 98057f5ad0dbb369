# SPDX-License-Identifier: MIT OR Apache-2.0
"""The device's checks see the attention kernels; how the library reports failures made on order."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, Placement
from inner import run
from strict import forgive, only_initialized, read_only

import pyfa_rocm

CASE = Case(batch=1, seqlen_q=130, seqlen_k=200, nhead_k=2, ratio=2, hdim=128, dtype="bfloat16")


@pytest.fixture(autouse=True)
def _emulator_only(device_kind: str) -> None:
    if device_kind == "gpu":
        pytest.skip("hardware checks nothing")


def _launch_and_wait(placement: Placement) -> None:
    pyfa_rocm.fmha_fwd(placement.params())
    pyfa_rocm.synchronize()


def stopped(placement: Placement, capfd: pytest.CaptureFixture[str]) -> str:
    """Return the device's message about a launch that it must stop."""
    with pytest.raises(pyfa_rocm.HipError):
        _launch_and_wait(placement)
    forgive()
    return capfd.readouterr().err


def test_an_input_nobody_wrote_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """One byte of V, in the middle."""
    placement = Placement(CASE)
    hole = np.ones(placement.v.host.nbytes, np.bool_)
    hole[hole.size // 2 + 1] = False
    only_initialized(placement.v.buffer.data, hole.size, hole)
    message = stopped(placement, capfd)
    address = placement.v.buffer.data + hole.size // 2 + 1
    for word in ("fmha_fwd_bf16_d128", "lane", "pc 0x", "nobody has written", f"{address:#x}"):
        assert word in message, message


def test_a_write_to_an_input_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    """O itself declared an input."""
    placement = Placement(CASE)
    with read_only([(placement.o.buffer.data, placement.o.host.nbytes)]):
        message = stopped(placement, capfd)
    for word in ("fmha_fwd_bf16_d128", "lane", "pc 0x", "declared read-only"):
        assert word in message, message


# Runs an attention call, and prints the error it ends in.
_ATTENTION = """
import numpy as np
import pyfa_rocm as p
p.memory.most_kept_bytes = 0
def attempt():
    try:
        q = p.DeviceArray.from_numpy(np.ones((1, 32, 1, 64), np.float16))
        o = p.flash_attn_func(q, q, q).to_numpy()
        print("ok", bool((o == 1).all()))
    except p.FmhaError as error:
        print(type(error).__name__, error)
for _ in range(3):
    attempt()
"""


def outcomes(**environment: str) -> list[str]:
    """The lines that three attention calls print."""
    done = run(_ATTENTION, PYFA_ROCM_DEVICE="emulator", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split("\n")


def test_out_of_memory() -> None:
    """Each call allocates q and o: the second call's o finds no memory, the third call works."""
    first, second, third = outcomes(FMHA_EMU_FAIL_ALLOC="4")
    assert first == third == "ok True"
    assert second.startswith("HipError"), second
    assert "emory" in second, second


def test_launch_failure() -> None:
    """The second launch is refused, and the third call works."""
    first, second, third = outcomes(FMHA_EMU_FAIL_LAUNCH="2")
    assert first == third == "ok True"
    assert second.startswith("HipError"), second
    assert "hipErrorLaunchOutOfResources" in second, second


def test_device_lost() -> None:
    """No call works any more, and each says so."""
    first, second, third = outcomes(FMHA_EMU_DEVICE_LOST="2")
    assert first == "ok True"
    for line in (second, third):
        assert line.startswith("HipError"), line
        assert "hipErrorLaunchFailure" in line, line
