# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forked processes: one that cannot use the device says so at once, one that can does."""

from __future__ import annotations

from inner import ok

_SETUP = """
import multiprocessing
import os
import numpy as np
import pyfa_rocm as p

def attend():
    q = p.DeviceArray.from_numpy(np.ones((1, 8, 1, 64), np.float16))
    return p.flash_attn_func(q, q, q).to_numpy().mean()

def in_child(work):
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        print("hangs")
    elif child.exitcode:
        print("exit code", child.exitcode)
"""


def test_a_fork_before_the_first_use_works() -> None:
    """The child computes, and then the parent."""
    code = _SETUP + "in_child(lambda: print(attend(), flush=True)); print(attend())"
    assert ok(code, PYFA_ROCM_DEVICE="emulator").split() == ["1.0", "1.0"]


def test_a_fork_after_the_first_use_is_told() -> None:
    """Whatever the child calls first, on old arrays and on new ones; the parent goes on."""
    code = (
        _SETUP
        + """
q = p.DeviceArray.from_numpy(np.ones((1, 8, 1, 64), np.float16))
stream = p.Stream()
o = p.flash_attn_func(q, q, q)
p.flash_attn_func(q, q, q, out=o)
calls = [
    attend,
    o.to_numpy, p.synchronize, p.Stream, p.devices, p.runtime, lambda: p.DeviceArray.empty((3,), "f4"),
    lambda: p.flash_attn_func(q, q, q), lambda: p.flash_attn_func(q, q, q, causal=True, out=o),
    lambda: p.flash_attn_func(q, q, q, out=o),
]

def try_all():
    for call in calls:
        try:
            print(call())
        except p.HipError as error:
            print("HipError", "forked" in str(error) and "spawn" in str(error), flush=True)
    stream.close()

in_child(try_all)
print(attend(), len(calls))
"""
    )
    *told, last = ok(code, PYFA_ROCM_DEVICE="emulator").split("\n")
    assert last == "1.0 10"
    assert told == ["HipError True"] * 10
