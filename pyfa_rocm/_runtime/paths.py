# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where the files of this package are: library, header, CMake package, software device."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pyfa_rocm.errors import FmhaError

# Not resolved: a cache may keep each file elsewhere, and links to it here.
_PACKAGE = Path(__file__).absolute().parents[1]
_SOURCE_TREE = _PACKAGE.parent


def _source_build_dirs() -> list[Path]:
    """Build directories of a source checkout, the best first; none in an installed package."""
    if not (_SOURCE_TREE / "CMakeLists.txt").is_file():
        return []
    build = _SOURCE_TREE / "build"
    presets = ("windows",) if sys.platform == "win32" else ("release", "debug")
    return [build / preset for preset in presets]


def _find(what: str, variable: str, candidates: list[Path]) -> Path:
    """Path from the environment variable, else the first candidate that exists."""
    if explicit := os.environ.get(variable):
        path = Path(explicit)
        if not path.is_file():
            raise FmhaError(f"{variable}: got {explicit!r}, expected the path of {what}; no such file")
        return path.resolve()
    for path in candidates:
        if path.is_file():
            return path.resolve()
    tried = ", ".join(map(str, candidates))
    hint = f"in a source checkout run `make`; or set {variable} to its path"
    raise FmhaError(f"{what} was not found (tried {tried}): {hint}")


def library_path() -> Path:
    """Path of libfmha_rocm.so: ``$PYFA_ROCM_LIBRARY``, the installed one, or that of the build tree.

    On Windows it is fmha_rocm.dll.
    """
    if sys.platform == "win32":
        name = "fmha_rocm.dll"
    else:  # its SONAME: in a wheel, which holds no links, libfmha_rocm.so itself is only for linkers
        name = "libfmha_rocm.so." + header_version(header_path().read_text(encoding="utf-8")).split(".")[0]
    return _find(name, "PYFA_ROCM_LIBRARY", [d / name for d in (_PACKAGE / "lib", *_source_build_dirs())])


def emulator_path() -> Path:
    """Path of the software device: ``$PYFA_ROCM_EMULATOR``, the installed one, or that of the build tree."""
    if sys.platform == "win32":
        raise FmhaError("the software device runs on Linux only (on Windows: in WSL)")
    name = "libamdhip64.so.6"
    dirs = [d / "emulator" for d in (_PACKAGE / "lib" / "fmha_rocm", *_source_build_dirs())]
    return _find(f"the software device's {name}", "PYFA_ROCM_EMULATOR", [d / name for d in dirs])


def header_path() -> Path:
    """Path of fmha_rocm.h: the installed one, or that of the source tree."""
    for path in (_PACKAGE / "include" / "fmha_rocm.h", _SOURCE_TREE / "native" / "include" / "fmha_rocm.h"):
        if path.is_file():
            return path
    raise FmhaError(f"fmha_rocm.h was not found beside {_PACKAGE}: the installation is incomplete")


def get_include() -> str:
    """Folder of fmha_rocm.h and fmha_rocm.hpp, for a compiler's ``-I``.

    Returns
    -------
    str
        The installed package's folder; in a source checkout, the sources' own.

    Raises
    ------
    FmhaError
        The installation has no header.

    Examples
    --------
    >>> import os, pyfa_rocm
    >>> os.path.exists(os.path.join(pyfa_rocm.get_include(), "fmha_rocm.h"))
    True
    """
    return str(header_path().parent)


def get_lib() -> str:
    """Folder of libfmha_rocm.so, for a linker's ``-L`` and a program's run path.

    In an installed package ``pkgconfig`` in it is for PKG_CONFIG_PATH.

    Returns
    -------
    str
        Folder of the library that this package uses: that of ``$PYFA_ROCM_LIBRARY`` if it is set, the
        installed one, or in a source checkout the build's.

    Raises
    ------
    FmhaError
        There is none, or ``$PYFA_ROCM_LIBRARY`` names no file.
    """
    return str(library_path().parent)


def get_cmake_dir() -> str:
    """Folder of the CMake package, for ``-Dfmha_rocm_DIR=``; ``find_package(fmha_rocm)`` then finds it.

    Returns
    -------
    str
        The installed package's folder.

    Raises
    ------
    FmhaError
        There is none: in a source checkout nothing is installed yet.
    """
    folder = _PACKAGE / "lib" / "cmake" / "fmha_rocm"
    if not (folder / "fmha_rocm-config.cmake").is_file():
        raise FmhaError(
            f"no CMake package in {folder}: an installed pyfa-rocm has one (`pip install .`); from a build, "
            "`cmake --install BUILD --prefix PREFIX` lays one out in PREFIX"
        )
    return str(folder)


def header_version(header: str) -> str:
    """Return "major.minor.patch" as the header's text states it."""
    parts = re.findall(r"#define FMHA_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
    return ".".join(parts)
