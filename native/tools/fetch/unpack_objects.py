# SPDX-License-Identifier: MIT OR Apache-2.0
"""Take AITER's code objects out of its wheel, for the tests: ``unpack_objects.py WHEEL FOLDER [ARCH]``.

They are AMD's hand-written kernels for gfx942, or for ARCH, under the MIT licence. FOLDER is made anew,
unless it is of this wheel already.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from pathlib import Path

_PREFIX = "aiter_meta/hsa/"


def main() -> int:
    """Unpack the objects, and say in SOURCE which wheel they are from."""
    if len(sys.argv) not in (3, 4):
        print(f"unpack_objects.py: got {sys.argv[1:]}, expected WHEEL FOLDER [ARCH]", file=sys.stderr)
        return 2
    wheel, folder = Path(sys.argv[1]), Path(sys.argv[2])
    prefix = f"{_PREFIX}{sys.argv[3] if len(sys.argv) == 4 else 'gfx942'}/"
    source = f"{wheel.name} sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    stamp = folder / "SOURCE"
    if stamp.exists() and stamp.read_text() == source:
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(prefix) or not name.endswith(".co"):
                continue
            target = folder / name.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
            count += 1
    if not count:
        print(f"unpack_objects.py: {wheel} has no code objects under {prefix}", file=sys.stderr)
        return 1
    stamp.write_text(source)  # last: an unpacking that was cut off begins anew
    print(f"  {count} code objects of {wheel.name.split('-')[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
