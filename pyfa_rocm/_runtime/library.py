# SPDX-License-Identifier: MIT OR Apache-2.0
"""The C library: what it declares, the cffi handle to it, and its status codes as exceptions.

The declarations are cut out of the installed header, so there is no second copy of them.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any

import cffi

from pyfa_rocm._runtime.paths import header_path, header_version, library_path
from pyfa_rocm._runtime.shared_library import open_library
from pyfa_rocm.errors import BY_STATUS, AbiMismatchError, FmhaError, HipError

_BEGIN = "/* cffi-begin"
_END = "/* cffi-end"


def declarations(header: str) -> str:
    """Return the part of the header's text between its two cffi marks."""
    begin, end = header.find(_BEGIN), header.find(_END)
    if begin < 0 or end < begin:
        raise AbiMismatchError("fmha_rocm.h: got a header without the marks cffi-begin and cffi-end")
    return header[header.index("*/", begin) + 2 : end]


def functions_of(ffi: Any, library: ctypes.CDLL) -> Any:
    """Return an open library for a cffi instance, which itself opens only paths that the locale can say."""
    return ffi.dlopen(ffi.cast("void *", library._handle))


@functools.cache
def load() -> tuple[Any, Any]:
    """Open the library once.

    Returns
    -------
    ffi, lib
        The cffi instance with the header's declarations, and the open library.

    Raises
    ------
    FmhaError
        The library is missing or cannot be opened.
    AbiMismatchError
        Its major version is not the header's.
    """
    header = header_path().read_text(encoding="utf-8")
    ffi = cffi.FFI()
    ffi.cdef(declarations(header))
    path = library_path()
    lib = functions_of(ffi, open_library(str(path)))
    expected, got = header_version(header), ffi.string(lib.fmha_version()).decode()
    if got.split(".")[0] != expected.split(".")[0]:
        raise AbiMismatchError(f"{path}: got version {got}, expected {expected} as in {header_path()}")
    return ffi, lib


def last_error() -> str:
    """Message of the last failure of the library on this thread."""
    ffi, lib = load()
    return str(ffi.string(lib.fmha_last_error()).decode(errors="replace"))


def check(status: int) -> None:
    """Raise the exception of a C status with the library's message; return for ``FMHA_OK``.

    Must run on the thread that made the call, since the message is thread-local.
    """
    if status:
        raise BY_STATUS.get(status, FmhaError)(last_error() or f"status {status} without a message")


@functools.cache
def known_archs() -> dict[str, dict[str, Any]]:
    """Return what the library knows of each arch, built for or not: native/archs.toml, as it was built."""
    return dict(json.loads(build_info_json())["known_archs"])


def build_info_json() -> str:
    """Return what was built, as the library's JSON text."""
    ffi, lib = load()
    return str(ffi.string(lib.fmha_build_info()).decode())


def version() -> str:
    """Version of the library loaded."""
    ffi, lib = load()
    return str(ffi.string(lib.fmha_version()).decode())


def hip_runtime_path() -> str:
    """Path of the HIP runtime that the library has bound, binding one if it has none."""
    ffi, lib = load()
    path = lib.fmha_hip_runtime_path()
    if path == ffi.NULL:
        raise HipError(last_error())
    return os.fsdecode(ffi.string(path))
