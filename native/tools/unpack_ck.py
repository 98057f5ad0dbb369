# SPDX-License-Identifier: MIT OR Apache-2.0
"""Take Composable Kernel out of the wheel that carries it: ``unpack_ck.py WHEEL FOLDER``."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

_PREFIX = "aiter_meta/3rdparty/composable_kernel/"
_WANTED = ("include/", "LICENSE", "CMakeLists.txt")  # CMakeLists.txt says the version


def main() -> int:
    """Unpack what the build reads, and say in SOURCE which wheel it is from."""
    wheel, folder = Path(sys.argv[1]), Path(sys.argv[2])
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = name.removeprefix(_PREFIX)
            if path == name or name.endswith("/") or not path.startswith(_WANTED):
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
            count += 1
    if not (folder / "include/ck_tile/ops/fmha.hpp").exists():
        print(f"unpack_ck.py: {wheel} has no ck_tile under {_PREFIX}", file=sys.stderr)
        return 1
    project, version = wheel.name.split("-")[:2]
    (folder / "SOURCE").write_text(f"{project} {version}\n")
    print(f"  {count} files of Composable Kernel")
    return 0


if __name__ == "__main__":
    sys.exit(main())
