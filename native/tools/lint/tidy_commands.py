# SPDX-License-Identifier: MIT OR Apache-2.0
"""Write compile commands for clang-tidy, one a source: ``tidy_commands.py FROM TO SOURCE...``.

The software device's instructions are compiled three times over, once a level of the host's vector
instructions. They are the same code, so that checking one of them, the one for x86-64-v3, is enough.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LEVEL = "FMHA_EMU_LEVEL="
CHECKED = LEVEL + "v3"


def select(commands: list[dict[str, str]], sources: list[str]) -> list[dict[str, str]]:
    """The command of each source.

    Raises
    ------
    ValueError
        If a source has no command: it would go unchecked.
    """
    by_file: dict[Path, list[dict[str, str]]] = {}
    for entry in commands:
        if LEVEL not in entry["command"] or CHECKED in entry["command"]:
            by_file.setdefault(Path(entry["directory"], entry["file"]).resolve(), []).append(entry)
    selected = []
    for source in sources:
        # A file that stands in several programs is compiled alike in all of them: the first will do.
        entries = by_file.get(Path(source).resolve())
        if not entries:
            raise ValueError(f"{source} is in no compile command; configure again")
        selected.append(entries[0])
    return selected


def main() -> int:
    """Read, select, write."""
    origin, target, *sources = sys.argv[1:]
    try:
        selected = select(json.loads(Path(origin).read_text()), sources)
    except (ValueError, OSError) as error:
        print(f"tidy_commands.py: {error}", file=sys.stderr)
        return 1
    Path(target).write_text(json.dumps(selected, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
