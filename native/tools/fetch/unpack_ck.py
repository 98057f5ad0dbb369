# SPDX-License-Identifier: MIT OR Apache-2.0
"""Take Composable Kernel out of the wheel that carries it: ``unpack_ck.py WHEEL FOLDER``.

And, into ``FOLDER/objects``, AITER's code objects that native/kernels/prebuilt names, with their licence.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

_OBJECTS = "aiter_meta/hsa/"
_PREFIX = "aiter_meta/3rdparty/composable_kernel/"
_PATH = re.compile(r'^object = "([^"]+)"$', re.M)
_LINE = re.compile(r"^[^#\s]+$", re.M)
_WANTED = ("include/", "LICENSE", "CMakeLists.txt")  # CMakeLists.txt says the version


def _objects() -> set[str]:
    """Return the paths that the tables of prebuilt kernels have, and the list of those to time."""
    tables = Path(__file__).parents[2] / "kernels/prebuilt"
    timed = (tables / "timed.txt").read_text()
    texts = [table.read_text() for table in tables.glob("*.toml")]
    return {path for text in texts for path in _PATH.findall(text)} | {*_LINE.findall(timed)}


def _unpack_objects(archive: zipfile.ZipFile, folder: Path) -> int:
    """Unpack the objects and their licence; return how many there are."""
    wanted = _objects()
    for name in archive.namelist():
        path = name.removeprefix(_OBJECTS)
        if path in wanted and path != name:
            target = folder / path
        elif name.endswith(".dist-info/LICENSE"):
            target = folder / "LICENSE"
        else:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(archive.read(name))
    return len(wanted)


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
        objects = _unpack_objects(archive, folder / "objects")
    if not (folder / "include/ck_tile/ops/fmha.hpp").exists():
        print(f"unpack_ck.py: {wheel} has no ck_tile under {_PREFIX}", file=sys.stderr)
        return 1
    project, version = wheel.name.split("-")[:2]
    (folder / "SOURCE").write_text(f"{project} {version}\n")
    print(f"  {count} files of Composable Kernel, {objects} code objects")
    return 0


if __name__ == "__main__":
    sys.exit(main())
