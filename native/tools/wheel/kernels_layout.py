# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lay a wheel out as a repository that Hugging Face's ``kernels`` loads: ``kernels_layout.py WHEEL FOLDER``.

``FOLDER/build`` gets two variants of the same files. ``torch-rocm`` is for any torch that was built for any
ROCm. ``torch-universal`` is for every other torch, and runs on the software device. Neither depends on the
version of torch, since nothing in the wheel links it. Files that both have are hard links.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from pathlib import Path

VARIANTS = {"torch-rocm": "rocm", "torch-universal": "cpu"}  # the backend that metadata.json may name

# The package imports itself by its name, so it has to be found under that name.
INIT = '''# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm's functions for PyTorch, as the library ``kernels`` loads them."""

import importlib.util
import sys
from pathlib import Path

_VERSION = "{version}"


def _load_package() -> None:
    if "pyfa_rocm" not in sys.modules:
        folder = Path(__file__).parent / "pyfa_rocm"
        spec = importlib.util.spec_from_file_location("pyfa_rocm", folder / "__init__.py")
        sys.modules["pyfa_rocm"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    try:
        found = sys.modules["pyfa_rocm"].__version__
    except ModuleNotFoundError as error:
        del sys.modules["pyfa_rocm"]
        raise ImportError(f"{{error}}; pyfa_rocm needs: pip install {needs}") from error
    if found != _VERSION:
        raise ImportError(f"this process has loaded pyfa_rocm {{found}} already, expected {{_VERSION}}")


_load_package()

from pyfa_rocm.torch import *  # noqa: E402, F403
from pyfa_rocm.torch import __all__  # noqa: E402, F401
'''


def write_variant(wheel: zipfile.ZipFile, folder: Path, backend: str, twin: Path | None) -> None:
    """Write a variant; ``twin`` is one that was written before, whose files it takes."""
    names = [name for name in wheel.namelist() if not name.endswith("/")]
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    text = wheel.read(metadata).decode()
    (version,) = re.findall(r"^Version: (\S+)$", text, re.M)
    licence = re.findall(r"^License-Expression: (.+)$", text, re.M)
    needs = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*\bextra\b).*$", text, re.M)
    for name in names:
        # Licences of others have to come along.
        if not name.startswith("pyfa_rocm/") and ".dist-info/licenses/" not in name:
            continue
        path = folder / re.sub(r"^.*\.dist-info/", "", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if twin:
            os.link(twin / path.relative_to(folder), path)
        else:
            path.write_bytes(wheel.read(name))
    (folder / "__init__.py").write_text(INIT.format(version=version, needs=" ".join(needs)))
    major, minor, _ = version.split(".")
    described = {
        "id": f"_pyfa_rocm_{backend}_{version.replace('.', '_')}",
        "name": "pyfa-rocm",
        "version": int(major) * 1000 + int(minor),
        "license": " ".join(licence),
        "python-depends": [],  # it may name only packages of a list that has none of ours
        "backend": {"type": backend},
    }
    (folder / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")


def main() -> int:
    """Return 2 for wrong arguments."""
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_file():
        print(
            f"kernels_layout.py: got {sys.argv[1:]}, expected a wheel file and a new folder", file=sys.stderr
        )
        return 2
    build, twin = Path(sys.argv[2]) / "build", None
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        for name, backend in VARIANTS.items():
            (build / name).mkdir(parents=True)
            write_variant(wheel, build / name, backend, twin)
            twin = build / name
    print(f"kernels_layout.py: {build}: {', '.join(VARIANTS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
