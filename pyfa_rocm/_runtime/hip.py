# SPDX-License-Identifier: MIT OR Apache-2.0
"""One HIP runtime for the whole process: chosen here, given to hip-python and to libfmha_rocm alike.

Two runtimes in one process break streams and pointers, so the copy that is already mapped (torch's, say)
wins over anything that could be found on disk. libfmha_rocm searches; what is chosen here among its finds is
the first that has a device for the kernels. hip-python would look elsewhere on its own: it never looks at
what is mapped. The choice is made once, at the first call that needs a device.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyfa_rocm._runtime import library, paths
from pyfa_rocm._runtime.forks import at_fork
from pyfa_rocm._runtime.shared_library import open_runtime
from pyfa_rocm.errors import FmhaError, HipError, InvalidArgumentError

MODES = ("auto", "gpu", "emulator")
_MOST_PATH_BYTES = 4096
# On Linux no AMD GPU works without one of these device files: the kernel driver's, and that of WSL.
_DRIVER_FILES = ("/dev/kfd", "/dev/dxg")
_SUCCESS = 0


@dataclass(frozen=True)
class Runtime:
    """The HIP runtime in use.

    Attributes
    ----------
    path : str
        Path of its libamdhip64.
    emulated : bool
        Whether it is the software device.
    reason : str
        Why it was taken, in a few words.
    """

    path: str
    emulated: bool
    reason: str


_lock = threading.RLock()
_runtime: Runtime | None = None
_hip: Any = None
_is_forked = False


def _forget_after_fork() -> None:
    """Let a child have no runtime: HIP's threads stay with the parent, and calls would hang."""
    global _runtime, _hip, _is_forked
    _is_forked = _is_forked or _runtime is not None
    _runtime = _hip = None
    _lock.release()


def is_forked() -> bool:
    """Tell whether this process was forked from one that had used HIP, so that it can use none."""
    return _is_forked


# The lock is taken for the fork, so that the child gets neither a held one nor half a choice.
at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget_after_fork)


def mode() -> str:
    """Value of ``$PYFA_ROCM_DEVICE``, "auto" if unset."""
    value = os.environ.get("PYFA_ROCM_DEVICE") or "auto"
    if value not in MODES:
        raise InvalidArgumentError(f"PYFA_ROCM_DEVICE: got {value!r}, expected one of {', '.join(MODES)}")
    return value


def _search(*sources: str) -> list[str]:
    """Return what the library's search finds from these sources of ``fmha_hip_source``, in its order."""
    ffi, lib = library.load()
    wanted = [getattr(lib, f"FMHA_HIP_{source}") for source in sources]
    source, path = ffi.new("fmha_hip_source *"), ffi.new("char[]", _MOST_PATH_BYTES)
    found: list[str] = []
    index = 0
    while True:
        library.check(lib.fmha_hip_runtime_search(index, source, path, _MOST_PATH_BYTES))
        if source[0] == lib.FMHA_HIP_NONE:
            return found
        if source[0] in wanted:
            found.append(os.fsdecode(ffi.string(path)))
        index += 1


def mapped_runtimes() -> list[str]:
    """Paths of the different libamdhip64 files mapped into this process."""
    return _search("MAPPED")


def _same_file(a: str, b: str) -> bool:
    try:
        return Path(a).samefile(b)
    except OSError:
        return False


def _installed() -> list[str]:
    """Return what may be opened as a HIP runtime of this machine, in order of preference."""
    candidates: list[str] = []
    try:  # ROCm as Python wheels (TheRock), which only Python can find
        from rocm_sdk import find_libraries

        candidates += [str(path) for path in find_libraries("amdhip64")]
    except Exception:  # not installed, or installed without that library: nothing to take from there
        pass
    return candidates + _search("LOADER", "INSTALLED")


def _hip_python() -> Any:
    """Import hip-python late: its module is large, and errors should name a cause, not an import."""
    try:
        from rocm.bindings import hip
    except ModuleNotFoundError as error:
        raise HipError(f"the device is used through hip-python, which is not installed: {error}") from error
    return hip


def _arch_names(path: str) -> list[str]:
    """Return gcnArchName of every device, straight from one runtime, before hip-python is bound to it."""
    opened = open_runtime(path)
    try:
        return _ask_arch_names(opened)
    except AttributeError as error:  # ctypes' for a symbol that is not there; its words name the file
        raise HipError(f"expected a HIP runtime of ROCm 6 or later: {error}") from error


def _ask_arch_names(opened: ctypes.CDLL) -> list[str]:
    hip = _hip_python()
    count = ctypes.c_int(0)
    status = opened.hipInit(0) or opened.hipGetDeviceCount(ctypes.byref(count))
    if status != _SUCCESS:
        opened.hipGetLastError()  # told here; see forget_error
        raise HipError(f"{opened._name} has no device: hipGetDeviceCount gave HIP error {status}")
    names = []
    for index in range(count.value):
        properties = hip.hipDeviceProp_t()  # hip-python's struct is that of the R0600 symbol
        status = opened.hipGetDevicePropertiesR0600(ctypes.c_void_p(int(properties)), index)
        if status != _SUCCESS:
            opened.hipGetLastError()
            raise HipError(f"device {index}: hipGetDeviceProperties gave HIP error {status}")
        names.append(str(properties.gcnArchName))
    return names


def _require_usable(path: str) -> None:
    """Raise unless the runtime has a device with an arch that the library was built for."""
    names = _arch_names(path)
    if not names:
        raise HipError(f"{path} has no device")
    built = json.loads(library.build_info_json())["archs"]
    if not any(name.split(":")[0] in built for name in names):
        raise HipError(f"{path} has {', '.join(names)}; this library was built for {', '.join(built)}")


def _find_gpu() -> tuple[str, str]:
    """Return path and reason of a HIP runtime that drives a GPU; HipError says why there is none."""
    for explicit in _search("ENVIRONMENT"):
        _require_usable(explicit)
        return explicit, "FMHA_HIP_RUNTIME"
    mapped = mapped_runtimes()
    if len(mapped) > 1:
        raise InvalidArgumentError(
            f"this process has {len(mapped)} HIP runtimes mapped ({', '.join(mapped)}), expected one: "
            "set FMHA_HIP_RUNTIME to the one to use"
        )
    if mapped:
        _require_usable(mapped[0])
        return mapped[0], "already in this process"
    if sys.platform != "win32" and not any(Path(file).exists() for file in _DRIVER_FILES):
        raise HipError(f"no AMD GPU driver ({' or '.join(_DRIVER_FILES)})")
    failures = []
    for candidate in _installed():
        try:
            _require_usable(candidate)
        except HipError as error:
            failures.append(str(error))
            continue
        return candidate, "found on this machine"
    raise HipError("no working HIP runtime: " + "; ".join(failures))


def _choose() -> tuple[str, str]:
    """Return path and reason of the runtime that the environment asks for."""
    wanted = mode()
    explicit = next(iter(_search("ENVIRONMENT")), None)
    if wanted == "emulator":
        path = str(paths.emulator_path())
        if explicit and not _same_file(explicit, path):
            raise InvalidArgumentError(
                f"FMHA_HIP_RUNTIME: got {explicit}, expected {path} or nothing, as PYFA_ROCM_DEVICE=emulator"
            )
        return path, "PYFA_ROCM_DEVICE=emulator"
    if wanted == "gpu":
        try:
            return _find_gpu()
        except HipError as error:
            raise HipError(f"PYFA_ROCM_DEVICE=gpu, but no GPU works: {error}") from error
    try:
        return _find_gpu()
    except HipError as error:
        if explicit:  # asked for by name: nothing else will do
            raise
        try:
            return str(paths.emulator_path()), f"no GPU works here: {error}"
        except FmhaError as missing:
            raise HipError(f"no GPU works here: {error}; and {missing}") from error


def _bind_hip_python(path: str) -> Any:
    """Make hip-python open exactly this file, and return its `hip` module.

    hip-python asks rocm.bindings.util.paths.get_library_path where libamdhip64 is, once, at its first HIP
    call. That function is replaced for the length of this first call only.
    """
    hip = _hip_python()
    from rocm.bindings.util import paths

    original = paths.get_library_path
    asked = []

    def get_library_path(shortname: str, bundled_location: Path | None = None) -> bytes:
        if shortname != "amdhip64":
            return bytes(original(shortname, bundled_location))
        asked.append(shortname)
        return os.fsencode(path)

    before = mapped_runtimes()
    paths.get_library_path = get_library_path
    try:
        (status,) = hip.hipInit(0)
    finally:
        paths.get_library_path = original
    # Not asked: hip-python was bound before us, to something that is mapped. Fine if that is this file.
    if not asked and not (len(before) == 1 and _same_file(before[0], path)):
        raise InvalidArgumentError(
            f"hip-python is already bound to another HIP runtime ({', '.join(before)}), expected {path}: "
            "call pyfa_rocm before hip-python, or set FMHA_HIP_RUNTIME"
        )
    if status != hip.hipError_t.hipSuccess:
        hip.hipGetLastError()
        raise HipError(f"{path}: hipInit gave {status.name}")
    return hip


def _bind() -> Runtime:
    global _hip
    path, reason = _choose()
    open_runtime(path)
    ffi, lib = library.load()
    library.check(lib.fmha_set_hip_runtime(ffi.new("char[]", os.fsencode(path))))
    path = library.hip_runtime_path()  # the file behind a bare name
    hip = _bind_hip_python(path)
    _hip = hip
    emulated = _count(hip) > 0 and "Emulated" in str(call("hipGetDeviceProperties", 0).name)
    if emulated and mode() == "gpu":
        raise HipError(f"PYFA_ROCM_DEVICE=gpu, but the HIP runtime {path} is the software device")
    if emulated and mode() == "auto":
        print(
            f"pyfa_rocm: using the software device ({reason}); "
            "PYFA_ROCM_DEVICE=emulator or gpu makes the choice explicit",
            file=sys.stderr,
        )
    return Runtime(path, emulated, reason)


def _count(hip: Any) -> int:
    status, count = hip.hipGetDeviceCount()
    if status != hip.hipError_t.hipSuccess:
        hip.hipGetLastError()
        return 0
    return int(count)


def runtime() -> Runtime:
    """Return the HIP runtime in use, choosing and binding it at the first call.

    Raises
    ------
    HipError
        There is none that works, as the message says, or the process was forked after its first use.
    InvalidArgumentError
        The environment contradicts itself, or two runtimes are mapped.
    """
    global _runtime
    if _runtime is None:
        with _lock:
            if _is_forked:
                raise HipError(
                    "this process was forked from one that had used HIP, whose threads it does not have: "
                    'start it by spawn (multiprocessing.get_context("spawn")), or fork before the first call'
                )
            if _runtime is None:
                _runtime = _bind()
    return _runtime


def call(name: str, *args: Any) -> Any:
    """Call a function of hip-python and return its result without the status.

    Parameters
    ----------
    name : str
        The function's name, such as "hipMalloc".
    *args
        Its arguments; addresses and streams may be integers.

    Returns
    -------
    object
        None, the one result, or a tuple of them.

    Raises
    ------
    HipError
        The status was not hipSuccess; the message has the function, the error's name and its text. HIP's
        last error is cleared: see `forget_error`.
    """
    hip = module()
    try:
        status, *results = getattr(hip, name)(*args)
    except (OverflowError, ValueError) as error:  # hip-python's for a number that a C type cannot hold
        raise InvalidArgumentError(
            f"{name}: got {args}, expected values of its C arguments: {error}"
        ) from error
    except RuntimeError as error:  # hip-python's for a function that the runtime lacks
        raise HipError(f"{name}: {error} ({runtime().path})") from error
    if status != hip.hipError_t.hipSuccess:
        raise failure(name, status)
    if len(results) > 1:
        return tuple(results)
    return results[0] if results else None


def failure(name: str, status: int) -> HipError:
    """Return the exception for the status of a function, and clear HIP's last error."""
    code = module().hipError_t(status)
    text = module().hipGetErrorString(code)[1]
    forget_error()
    return HipError(f"{name}: {code.name} ({text})")


def forget_error() -> None:
    """Clear HIP's last error of this thread, once it has been raised or dealt with.

    Whoever asks for the last error after work of its own, as torch does after each launch, would take it for
    the failure of that work. A device that recovers from a fault does so when the fault has been read.
    """
    module().hipGetLastError()


@functools.cache
def has_one_device() -> bool:
    """Tell whether this process sees only one device, which is then always current. HIP fixes it at start."""
    return bool(call("hipGetDeviceCount") == 1)


def module() -> Any:
    """hip-python's `hip` module, bound to the runtime in use."""
    if _hip is None:
        runtime()
    return _hip
