# SPDX-License-Identifier: MIT OR Apache-2.0
"""Print the requirements that pyproject.toml declares, one a line.

``requirements.py PYPROJECT EXTRA...`` prints the package's dependencies and those of the extras;
``requirements.py PYPROJECT --build`` those of its build, without their markers.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # the copy inside pip
    from pip._vendor import tomli as tomllib


def main() -> int:
    """Print them."""
    content = tomllib.loads(Path(sys.argv[1]).read_text())
    if sys.argv[2:] == ["--build"]:
        print("\n".join(line.partition(";")[0].strip() for line in content["build-system"]["requires"]))
        return 0
    project = content["project"]
    for extra in ("", *sys.argv[2:]):
        print("\n".join(project["optional-dependencies"][extra] if extra else project["dependencies"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
