# SPDX-License-Identifier: MIT OR Apache-2.0
"""Stand-ins for the ROCm libraries that a client's wheels want and this machine lacks, so that they load.

    stubs.py FOLDER PATH...

Each library that the shared libraries in PATHs name as needed, and that LIBRARIES knows, is built into
FOLDER under that name. It has the functions that they leave undefined. One that is called ends the process
with its name, except those in ANSWERS. Nothing here computes. libamdhip64 has no stub: it is the software
device.

A library that LIBRARIES does not know stays missing, and the loader says so.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

# The names of a library's functions, and of its C++ namespaces, by how they begin.
LIBRARIES = {
    "libMIOpen": "miopen",
    "libhipblas": "hipblas(?!L[Tt]|lt_)",
    "libhipblaslt": "hipblasLt|hipblaslt_ext",
    "libhipfft": "hipfft",
    "libhiprand": "hiprand",
    "libhipsolver": "hipsolver",
    "libhipsparse": "hipsparse",
    "librccl": "nccl",
    "librocblas": "rocblas_",
    "librocfft": "rocfft_",
    "librocm_smi64": "rsmi_",
    "librocprofiler-sdk": "rocprofiler_",
    "librocrand": "rocrand_",
    "librocsolver": "rocsolver_",
    "libroctracer64": "roctracer_",
    "libroctx64": "roctx",
}

# Who of ROCm's libraries brings them along: some wheels name only libhipblas, librocsolver or libMIOpen, and
# call rocBLAS or HIP too.
BRINGS = {
    "libamdhip64": tuple(LIBRARIES),
    "librocblas": ("libhipblas", "librocsolver"),
    "librocrand": ("libhiprand",),
}

# Bodies of the functions that clients call even when they use nothing of the library.
_CREATE = "(void **handle) { static char it; *handle = &it; return 0; }"
_SUCCESS = "(void) { return 0; }"
_FAILURE = "(void) { return 1; }"
ANSWERS = {
    # XLA and CuPy make a handle for each device or stream, before they know whether a program needs one.
    "rocblas_create_handle": _CREATE,
    "hipblasLtCreate": _CREATE,
    "miopenCreate": _CREATE,
    "miopenCreateWithStream": _CREATE,
    # They put a handle on a stream when they make it, and on none when they are done.
    "rocblas_set_stream": _SUCCESS,
    "miopenSetStream": _SUCCESS,
    # They do away with it at the end of the process.
    "rocblas_destroy_handle": _SUCCESS,
    "hipblasLtDestroy": _SUCCESS,
    "miopenDestroy": _SUCCESS,
    # XLA looks for links between GPUs with it. If it fails, XLA reports why, and does without.
    "rsmi_init": _FAILURE,
    "rsmi_status_string": '(int code, const char **text) { *text = SONAME " is a stub"; return 0 * code; }',
    # XLA registers its profiler while the plug-in is loaded, and goes on without one.
    "rocprofiler_force_configure": _FAILURE,
}

HEAD = """#include <stdio.h>
#include <stdlib.h>

#define ABORTS(function)                                                                      \\
  void function(void) {                                                                       \\
    fputs(#function ": called, but " SONAME " is a stub of tests/clients/stubs.py\\n", stderr); \\
    abort();                                                                                  \\
  }

"""


def shared_libraries(paths: Iterable[Path]) -> list[Path]:
    """The ELF files among and below the paths whose names end as those of shared libraries do."""
    found = []
    for path in paths:
        inside = sorted(path.rglob("*.so*")) if path.is_dir() else [path]
        found += [file for file in inside if file.is_file() and _is_elf(file)]
    return found


def needed(libraries: Iterable[Path]) -> set[str]:
    """The names of the libraries that they need."""
    names: set[str] = set()
    for library in libraries:
        section = _run("readelf", "--dynamic", "--wide", str(library))
        names.update(re.findall(r"\(NEEDED\).*\[(.*)\]", section))
    return names


def undefined(libraries: Iterable[Path]) -> set[str]:
    """The symbols that they leave to others, without those that may be absent."""
    symbols: set[str] = set()
    for library in libraries:
        lines = _run("nm", "--dynamic", "--undefined-only", "--without-symbol-versions", str(library))
        symbols.update(symbol for kind, symbol in map(str.split, lines.splitlines()) if kind == "U")
    return symbols


def source(soname: str, symbols: Iterable[str], names: Iterable[str] = ()) -> str:
    """The C source of a stub: what it, and what it brings along and nobody names, has of the symbols."""
    stem, named = _stem(soname), {_stem(name) for name in names}
    brought = [library for library, by in BRINGS.items() if stem in by and library in LIBRARIES]
    patterns = [LIBRARIES[library] for library in (stem, *brought) if library == stem or library not in named]
    mine = re.compile(rf"(_ZNK?\d+)?({'|'.join(patterns)})")
    lines = []
    for symbol in sorted(symbols):
        if mine.match(symbol):
            body = ANSWERS.get(symbol)
            lines.append(f"int {symbol}{body}" if body else f"ABORTS({symbol})")
    return f'#define SONAME "{soname}"\n' + HEAD + "\n".join(lines) + "\n"


def build(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Build the stubs that the shared libraries in the paths want into the folder."""
    libraries = shared_libraries(paths)
    symbols, names = undefined(libraries), needed(libraries)
    folder.mkdir(parents=True, exist_ok=True)
    built = []
    with tempfile.TemporaryDirectory() as scratch:
        for soname in sorted(name for name in names if _stem(name) in LIBRARIES):
            brought = [name for name in sorted(names) if _stem(soname) in BRINGS.get(_stem(name), ())]
            empty = [_compile(Path(scratch) / name, "") for name in brought]
            built.append(_compile(folder / soname, source(soname, symbols, names), empty))
    return built


def _compile(library: Path, text: str, needs: Iterable[Path] = ()) -> Path:
    """Build a library of its file's name, which needs others beside it, from a C source."""
    command = ["gcc", "-shared", "-fPIC", "-O1", "-xc", "-", "-xnone", "-o", str(library)]
    command += [f"-Wl,--no-as-needed,-rpath,$ORIGIN,-soname,{library.name}", *map(str, needs)]
    subprocess.run(command, input=text, check=True, text=True)
    return library


def _stem(soname: str) -> str:
    return soname.partition(".so")[0]


def _is_elf(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Build them, and say which."""
    if len(sys.argv) < 3:
        print("usage: stubs.py FOLDER PATH...", file=sys.stderr)
        return 2
    for library in build(Path(sys.argv[1]), map(Path, sys.argv[2:])):
        print(library)
    return 0


if __name__ == "__main__":
    sys.exit(main())
