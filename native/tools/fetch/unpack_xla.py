# SPDX-License-Identifier: MIT OR Apache-2.0
"""Take XLA's FFI headers out of jaxlib's wheel: ``unpack_xla.py WHEEL FOLDER``."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

_PREFIX = "jaxlib/"
_WANTED = "include/xla/ffi/api/"
_LICENSE = re.compile(r"[^/]+\.dist-info/(licenses/)?LICENSE(\.txt)?")


def main() -> int:
    """Unpack what the build reads, and say in SOURCE which wheel it is from."""
    wheel, folder = Path(sys.argv[1]), Path(sys.argv[2])
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if _LICENSE.fullmatch(name):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "LICENSE").write_bytes(archive.read(name))
            path = name.removeprefix(_PREFIX)
            if path == name or not path.startswith(_WANTED) or path.endswith("/"):
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
    for wanted, where in ((_WANTED + "c_api.h", _PREFIX), ("LICENSE", "its dist-info")):
        if not (folder / wanted).exists():
            print(f"unpack_xla.py: {wheel} has no {wanted} in {where}", file=sys.stderr)
            return 1
    project, version = wheel.name.split("-")[:2]
    (folder / "SOURCE").write_text(f"{project} {version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
