# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compare the C ABI with the one on record, or record it anew: ``abi.py check`` and ``abi.py update``.

The record, native/abi/fmha_rocm.abi, is what libabigail's abidw says about a library with the interface of
fmha_rocm.h (its functions, with bodies that do nothing) linked by native/cmake/exports.map: names, symbol
versions, SONAME, every type that the functions take, and the constants. It needs abidw and abidiff, of
Debian's package abigail-tools, and a C compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HEADER = ROOT / "native" / "include" / "fmha_rocm.h"
EXPORTS = ROOT / "native" / "cmake" / "exports.map"
RECORD = ROOT / "native" / "abi" / "fmha_rocm.abi"


class AbiError(Exception):
    """The ABI differs, or could not be described."""


def program(*names: str) -> str:
    """Path of the first of these programs that there is."""
    for name in names:
        if found := shutil.which(name):
            return found
    raise AbiError(f"no {' or '.join(names)} here; abidw and abidiff are in Debian's abigail-tools")


def run(*command: str) -> str:
    """Output of a command that has to succeed."""
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise AbiError(f"{' '.join(command)}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def definitions(header: str) -> str:
    """Return C definitions of the functions that a header declares, each in one line, with empty bodies."""
    found: list[str] = re.findall(r"^((?:fmha_status |const char ?\* ?)fmha_\w+\([^;{]*\));", header, re.M)
    if not found:
        raise AbiError("the header declares no function")
    return "".join(f"{declaration} {{ return 0; }}\n" for declaration in found)


def describe(header: str, exports: str) -> str:
    """Return abidw's XML of the library that a header's and a version script's texts stand for."""
    major = re.search(r"#define FMHA_VERSION_MAJOR (\d+)", header)
    if major is None:
        raise AbiError("the header has no FMHA_VERSION_MAJOR")
    soname = f"libfmha_rocm.so.{major[1]}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "fmha_rocm.h").write_text(header, encoding="utf-8")
        (folder / "abi.c").write_text('#include "fmha_rocm.h"\n' + definitions(header), encoding="utf-8")
        (folder / "exports.map").write_text(exports, encoding="utf-8")
        library = folder / soname
        run(
            *(os.environ.get("CC") or program("gcc", "cc", "clang"), "-std=c99", "-g", "-O0", "-fPIC"),
            *("-fno-eliminate-unused-debug-types", "-shared", "-nostdlib", f"-Wl,-soname,{soname}"),
            *(f"-Wl,--version-script={folder / 'exports.map'}", f"-I{folder}", str(folder / "abi.c")),
            *("-o", str(library)),
        )
        # All types: no function takes the constants, which are enumerators without a name for their type.
        xml = run(
            *(program("abidw"), "--load-all-types", "--headers-dir", name, "--drop-private-types"),
            *("--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash"),
            str(library),
        )
    return xml.replace(f"{name}/", "")


def compare(record: Path, xml: str) -> None:
    """Raise with abidiff's report if `xml` is not what is on record."""
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder) / "now.abi"
        now.write_text(xml, encoding="utf-8")
        command = [program("abidiff"), "--non-reachable-types", "--harmless", str(record), str(now)]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode != 0:  # bits: 1 error, 2 usage, 4 changed, 8 removed or otherwise incompatible
        raise AbiError(
            f"the C ABI is not the one in {record}:\n{result.stdout}{result.stderr}"
            "Programs built before must go on working: functions and constants stay, structs grow only "
            "at their end. If they do, record the new one: native/tools/abi/abi.py update"
        )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("check", "update"))
    parser.add_argument("--header", type=Path, default=HEADER, help="default: the repository's")
    parser.add_argument("--exports", type=Path, default=EXPORTS, help="version script")
    parser.add_argument("--record", type=Path, default=RECORD, help="default: the repository's")
    args = parser.parse_args()
    try:
        header = args.header.read_text(encoding="utf-8")
        xml = describe(header, args.exports.read_text(encoding="utf-8"))
        if args.command == "check":
            compare(args.record, xml)
        else:
            args.record.parent.mkdir(parents=True, exist_ok=True)
            args.record.write_text(xml, encoding="utf-8")
    except AbiError as error:
        print(f"abi.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
