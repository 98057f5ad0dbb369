# SPDX-License-Identifier: MIT OR Apache-2.0
"""Add to an SBOM the code that is compiled into a wheel: ``add_native.py WHEEL SBOM OUT``.

The wheel has a licence for each such component (native/cmake/Notices.cmake). The versions are those that the
build pins; a component that no pin covers, as zstd of the build's system, is listed without a version.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

FETCH = Path(__file__).resolve().parents[1] / "fetch"
# The pinned package that a component comes in; None: a package of the build's system.
SOURCES: dict[str, tuple[str, str] | None] = {
    "aiter": ("ck-requirements.txt", "amd-aiter"),
    "composable_kernel": ("ck-requirements.txt", "amd-aiter"),
    "hip": ("debian-packages.txt", "libamdhip64-dev"),
    "nlohmann-json": ("debian-packages.txt", "nlohmann-json3-dev"),
    "rocm-device-libs": ("debian-packages.txt", "rocm-device-libs-17"),
    "xla": ("xla-requirements.txt", "jaxlib"),
    "zstd": None,
}


def component(name: str) -> dict[str, Any]:
    """Describe a component: its package, and the version that the build pins."""
    made: dict[str, Any] = {"type": "library", "name": name, "bom-ref": f"native:{name}"}
    source = SOURCES[name]
    if source:
        file, package = source
        (version,) = re.findall(rf"^{package}={{1,2}}([^\s\\]+)", (FETCH / file).read_text(), re.M)
        kind = "deb/debian" if file.startswith("debian") else "pypi"
        made["version"] = version
        made["purl"] = f"pkg:{kind}/{package}@{version.replace('+', '%2B')}"
    return made


def main() -> int:
    """Return 1 if the wheel has a component that SOURCES does not know, 2 for wrong arguments."""
    if len(sys.argv) != 4:
        print("add_native.py: expected WHEEL SBOM OUT", file=sys.stderr)
        return 2
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        found = [re.search(r"/licenses/third-party/(.+)\.txt$", name) for name in wheel.namelist()]
    names = sorted(match[1] for match in found if match)
    if not names or not set(names) <= set(SOURCES):
        known = ", ".join(SOURCES)
        print(f"add_native.py: got the licences of {names}, expected some of {known}", file=sys.stderr)
        return 1
    sbom = json.loads(Path(sys.argv[2]).read_text())
    (ours,) = (part for part in sbom["components"] if part["name"] == "pyfa-rocm")
    parts = [component(name) for name in names]
    sbom["components"] += parts
    (node,) = (node for node in sbom["dependencies"] if node["ref"] == ours["bom-ref"])
    refs = [part["bom-ref"] for part in parts]
    node["dependsOn"] = sorted([*node.get("dependsOn", []), *refs])
    sbom["dependencies"] += [{"ref": ref} for ref in refs]
    Path(sys.argv[3]).write_text(json.dumps(sbom, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
