# SPDX-License-Identifier: MIT OR Apache-2.0
"""Opening a library that may be anything: what harms the process is found before the loader meets it."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from pathlib import Path

from pyfa_rocm.errors import FmhaError, HipError

__all__ = ["open_library", "open_runtime"]

# A 64-bit little-endian ELF file: magic; e_phoff, e_phentsize, e_phnum; p_type, p_offset, p_filesz.
_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQ14xHH6x")
_SEGMENT = struct.Struct("<I4xQ16xQ16x")
_LOADED = 1  # PT_LOAD


def open_library(path: str) -> ctypes.CDLL:
    """Open a library of ours by its path.

    Raises
    ------
    FmhaError
        It cannot be opened, for a reason that is the loader's own where it has one.
    """
    return _open(path, path, FmhaError)


def open_runtime(path: str) -> ctypes.CDLL:
    """Open a HIP runtime by its path, or by a name that the loader looks for; HipError as `open_library`."""
    return _open(path, f"the HIP runtime {path}", HipError)


def _open(path: str, what: str, error_class: type[FmhaError]) -> ctypes.CDLL:
    try:
        # The loader would wait for the writer of a FIFO, and use memory beyond the end of a file cut short.
        if os.sep in path and (reason := _harm(Path(path))):
            raise error_class(f"cannot open {what}: {reason}")
        return ctypes.CDLL(path)
    except OSError as error:
        raise error_class(f"cannot open {what}: {error}") from error


def _harm(path: Path) -> str:
    """Return why the loader should not see a file; "" if it can judge for itself."""
    if not path.exists():
        return ""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "got something else than a regular file"
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if not header.startswith(_MAGIC) or len(header) < _HEADER.size:
            return ""
        start, size, count = _HEADER.unpack(header)
        file.seek(start)
        segments = file.read(size * count)
    if size != _SEGMENT.size or len(segments) < size * count:
        return ""
    ends = [offset + length for kind, offset, length in _SEGMENT.iter_unpack(segments) if kind == _LOADED]
    expected = max(ends, default=0)
    if status.st_size < expected:
        return f"got {status.st_size} bytes, expected at least {expected}: the file is cut short"
    return ""
