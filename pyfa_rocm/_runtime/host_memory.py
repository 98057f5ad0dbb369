# SPDX-License-Identifier: MIT OR Apache-2.0
"""Host memory for the length of a call on the software device, which computes on the CPU anyway.

A framework without a card keeps its tensors in host memory. The software device reads only memory that it
knows, so that it finds a kernel's stray access. The memory of a call is registered with it
(hipHostRegister), byte for byte, and given back once the call is done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyfa_rocm._runtime import hip
from pyfa_rocm.errors import HipError, InvalidArgumentError

__all__ = ["registered", "require_software_device"]

# Registered memory may not overlap: of two threads with tensors in one storage, one waits for the other. They
# would not be faster together: the software device has one set of threads.
_lock = threading.Lock()


def require_software_device(name: str, what: str) -> None:
    """Raise unless host memory can be computed on here.

    Parameters
    ----------
    name : str
        The argument's name.
    what : str
        Its kind, such as "a CPU tensor".

    Raises
    ------
    InvalidArgumentError
        The HIP runtime in use is that of a GPU.
    """
    runtime = hip.runtime()
    if not runtime.emulated:
        raise InvalidArgumentError(
            f"{name}: got {what}, expected one on a ROCm device: host memory is for the software device, "
            f"and the HIP runtime in use is {runtime.path} ({runtime.reason})"
        )


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (address, bytes) of the same memory without overlaps: views of one storage become one range."""
    result: list[tuple[int, int]] = []
    for address, nbytes in sorted(ranges):
        if not nbytes:
            continue
        if result and address < sum(result[-1]):
            first, known = result[-1]
            result[-1] = (first, max(known, address + nbytes - first))
        else:
            result.append((address, nbytes))
    return result


def _is_known(address: int, nbytes: int) -> bool:
    """Tell whether the device knows this memory, all of it in one allocation."""
    try:
        base, size = hip.call("hipMemGetAddressRange", address)
    except HipError:
        return False
    return int(base) <= address and address + nbytes <= int(base) + int(size)


def _register(address: int, nbytes: int) -> bool:
    """Make memory known to the device; return whether it was not."""
    try:
        hip.call("hipHostRegister", address, nbytes, 0)
    except HipError:
        if not _is_known(address, nbytes):  # pinned by its owner, say: then it stays as it is
            raise
        return False
    return True


def _unregister(addresses: Iterable[int]) -> None:
    """Give memory back, all of it even if HIP refuses some."""
    failures: list[HipError] = []
    for address in addresses:
        try:
            hip.call("hipHostUnregister", address)
        except HipError as error:
            failures.append(error)
    if failures:
        raise failures[0]


@contextmanager
def registered(ranges: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Let kernels launched inside, on the current device, use host memory; leaving waits for them.

    Parameters
    ----------
    ranges : iterable of (int, int)
        Address and bytes of all that the calls inside read and write. Views of one storage may interleave;
        memory that the device knows already is left as it is.

    Raises
    ------
    HipError
        A kernel launched inside failed, or the memory cannot be registered.

    Notes
    -----
    Calls from several threads follow each other. Nothing of this belongs on a GPU: see
    `require_software_device`.
    """
    with _lock:
        taken: list[int] = []
        try:
            for address, nbytes in _merged(ranges):
                if _register(address, nbytes):
                    taken.append(address)
            yield
            hip.call("hipDeviceSynchronize")
        finally:
            _unregister(taken)
