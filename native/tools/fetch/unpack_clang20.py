# SPDX-License-Identifier: MIT OR Apache-2.0
"""Make a HIP compiler of zig's clang: ``unpack_clang20.py WHEEL FOLDER --clang CLANG --bitcode BITCODE``.

zig's clang has the AMDGPU target of LLVM 20, but none of what HIP needs: the headers that clang includes by
itself (those of CLANG, a clang 19, serve), a linker under the names that clang looks for, and the device
library for all its archs (BITCODE, to which add_bitcode.py adds). FOLDER gets ``bin/clang++``, which takes
a clang's arguments, and ``bitcode``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from add_bitcode import add_bitcode

_PREFIX = "ziglang/"
_HEADERS = "lib/include/"
_LICENSE = re.compile(r"ziglang/LICENSE|[^/]+\.dist-info/licenses/.*")
# zig runs clang's driver for a compiler's own name only if it is told which.
_COMPILER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/zig" clang --driver-mode=g++ -resource-dir "$here/.." -B "$here" -mcode-object-version=5 "$@"
"""
# Names that call it: `lld -flavor gnu` and `ld.lld`.
_LINKER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
[ "$1" != -flavor ] || shift 2
exec "$here/zig" ld.lld "$@"
"""


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def unpack(wheel: Path, folder: Path) -> None:
    """Take the program, its headers and the licences out of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = name.removeprefix(_PREFIX)
            if name.endswith("/"):
                continue
            if path == "zig":
                _write(folder / "bin/zig", archive.read(name), 0o755)
            elif path.startswith(_HEADERS):
                _write(folder / "include" / path.removeprefix(_HEADERS), archive.read(name))
            elif _LICENSE.fullmatch(name):
                _write(folder / "licenses" / name.replace("/", "-"), archive.read(name))
    _write(folder / "bin/clang++", _COMPILER.encode(), 0o755)
    for name in ("lld", "ld.lld"):
        _write(folder / "bin" / name, _LINKER.encode(), 0o755)


def add_headers(folder: Path, clang: Path) -> None:
    """HIP's headers of the other clang: zig leaves them out."""
    told = subprocess.run([clang, "-print-resource-dir"], check=True, capture_output=True, text=True).stdout
    theirs = Path(told.strip()) / "include"
    for pattern in ("__clang_hip*", "__clang_cuda*"):
        for header in theirs.glob(pattern):
            shutil.copy(header, folder / "include")
    shutil.copytree(theirs / "cuda_wrappers", folder / "include/cuda_wrappers")


def main() -> int:
    """Make FOLDER, and say in SOURCE which wheel it is from."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clang", required=True, type=Path)
    parser.add_argument("--bitcode", required=True, type=Path)
    args = parser.parse_args()
    try:
        unpack(args.wheel, args.folder)
        add_headers(args.folder, args.clang)
        shutil.copytree(args.bitcode, args.folder / "bitcode")
        add_bitcode(args.folder / "bitcode", args.clang)
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"unpack_clang20.py: {error} {getattr(error, 'stderr', '') or ''}".rstrip(), file=sys.stderr)
        return 1
    project, version = args.wheel.name.split("-")[:2]
    (args.folder / "SOURCE").write_text(f"{project} {version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
