# SPDX-License-Identifier: MIT OR Apache-2.0
"""A launch that would never end holds up neither Ctrl-C nor the end of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("takes_ctrl_c")
ROOT = Path(__file__).resolve().parents[3]
SOON = 30  # seconds, for a busy machine: on an idle one it is half a one
# An endless launch on a stream, beside one that is queued behind it and one on another stream.
START = """
import ctypes as c, signal, struct, sys, time
from emulator.support import hip
from emulator.support.asm import Kernel, assemble
from emulator.support.streams import *
endless = hip.Module(assemble([Kernel("endless", ["s_nop 0", "s_branch -2"], args=())]))
module()
stream, other, buffer = Stream(1), Stream(1), zeros()
for s in (stream, other):
    sizes = map(c.c_uint, (99, 1, 1, 64, 1, 1, 0))
    hip.call("hipModuleLaunchKernel", endless.function("endless"), *sizes, s.pointer, None, None)
launch("add_one", stream.handle, buffer.address)
"""
WAITS = {
    "stream": "hip.lib().hipStreamSynchronize(stream.pointer)",
    "device": "hip.lib().hipDeviceSynchronize()",
    "room": "while True: launch('add_one', stream.handle, buffer.address)",
    "free": "hip.lib().hipFree(c.c_void_p(buffer.address))",
}


def begin(script: str, first: str = "") -> subprocess.Popen[str]:
    """The script behind START, and what comes before that, up to where it says that it waits."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "FMHA_EMU_MAX_INSTRUCTIONS": str(1 << 62)}
    process = subprocess.Popen(
        [sys.executable, "-c", first + START + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env | {"FMHA_EMU_CHECKS": "none"},
    )
    assert process.stdout
    line = process.stdout.readline()
    assert line == "waits\n", line + (process.communicate()[1] if process.poll() else "")
    return process


def end(process: subprocess.Popen[str], number: int) -> tuple[str, str]:
    """Send a signal, and return the output of the process, which must end soon."""
    time.sleep(0.3)
    process.send_signal(number)
    try:
        return process.communicate(timeout=SOON)
    finally:
        process.kill()


@pytest.mark.parametrize("call", WAITS.values(), ids=list(WAITS))
def test_interrupt(call: str) -> None:
    """KeyboardInterrupt follows whichever call waits."""
    process = begin(f'print("waits", flush=True)\n{call}')
    out, err = end(process, signal.SIGINT)
    assert "KeyboardInterrupt" in err, out + err
    assert process.returncode == -signal.SIGINT


def test_handler_of_the_program() -> None:
    """SIGTERM's as SIGINT's: it runs once, the wait says that launches timed out, and the device goes on."""
    process = begin("""
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
print("waits", flush=True)
code = hip.lib().hipStreamSynchronize(stream.pointer)
print(seen, code)
hip.lib().hipStreamSynchronize(other.pointer)
print(buffer.read(np.float32).any())
launch("add_one", stream.handle, buffer.address)
stream.synchronize()
print(buffer.read(np.float32).all())
""")
    out, err = end(process, signal.SIGTERM)
    assert out.splitlines() == ["[1] 702", "False", "True"], out + err
    assert process.returncode == 0


def test_other_signals_do_not_cancel() -> None:
    """They are handled while the host waits, and the launches go on."""
    process = begin("""
signal.signal(signal.SIGUSR1, lambda *_: None)
import os, threading
r, w = os.pipe()
os.set_blocking(w, False)
signal.set_wakeup_fd(w)
def look():
    os.read(r, 1)
    time.sleep(1)
    print("handled", status("hipStreamQuery", stream.pointer), flush=True)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *_: None)
threading.Thread(target=look).start()
print("waits", flush=True)
hip.lib().hipStreamSynchronize(stream.pointer)
""")
    out, err = end(process, signal.SIGUSR1)
    assert out.splitlines() == ["handled 600"], out + err
    assert process.returncode == 0


def test_default_action() -> None:
    """SIGTERM's ends the process at once."""
    process = begin(f'print("waits", flush=True)\n{WAITS["device"]}')
    end(process, signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM


def test_exit() -> None:
    """It does not wait for what runs, though the program resets the device at its end."""
    at_exit = """
import ctypes as c
from emulator.support import hip
c.CDLL(None).__cxa_atexit(c.cast(hip.lib().hipDeviceReset, c.c_void_p), None, None)
"""
    process = begin('print("waits", flush=True)', at_exit)
    try:
        _, err = process.communicate(timeout=SOON)
    finally:
        process.kill()
    assert process.returncode == 0, err
