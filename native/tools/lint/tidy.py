# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run clang-tidy on sources, several at a time: ``tidy.py --commands DIR --clang-tidy PROGRAM SOURCE...``.

The user's cache folder remembers which sources were clean, by all that decides it: the source as the
preprocessor leaves it, comments included, its flags, the checks that are asked for, and the program's
version.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[3]
# Where a finding begins, in what clang-tidy says. Its notes belong to it.
_FINDING = re.compile(r"^(?=\S[^\n]*:\d+:\d+: (?:error|warning): )", re.MULTILINE)
# misc-include-cleaner is for includes that nobody needs. A header may come by way of another, for which
# clang-tidy 19 has no option.
_BY_WAY_OF_ANOTHER = re.compile(r"\S[^\n]*: no header providing \"")


def cache_folder() -> Path:
    """Where it is remembered, beside the compiler's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pyfa_rocm" / "tidy"


def findings(said: str) -> str:
    """Return what clang-tidy says, without the headers that come by way of others."""
    return "".join(part for part in _FINDING.split(said) if not _BY_WAY_OF_ANOTHER.match(part))


class Tidy:
    """One program with one set of checks."""

    def __init__(self, program: str, commands: Path) -> None:
        self.program, self.commands = program, commands
        entries = json.loads((commands / "compile_commands.json").read_text())
        self.entries = {Path(entry["directory"], entry["file"]).resolve(): entry for entry in entries}
        version = subprocess.run([program, "--version"], check=True, capture_output=True).stdout
        self.asked = version + (ROOT / ".clang-tidy").read_bytes()
        self.clang = program.replace("clang-tidy", "clang++")

    def key(self, source: Path) -> str | None:
        """Return what decides the answer; None if the preprocessor fails, as clang-tidy will report."""
        source = source.resolve()
        entry = self.entries[source]
        words = shlex.split(entry["command"])
        flags = [word for word in words[1:] if word.startswith(("-I", "-D", "-std", "-m", "-f", "-W"))]
        system = [words[i + 1] for i, word in enumerate(words) if word == "-isystem"]
        command = [
            self.clang,
            "-E",
            "-C",
            "-P",
            *flags,
            *(f"-isystem{folder}" for folder in system),
            str(source),
        ]
        done = subprocess.run(command, cwd=entry["directory"], capture_output=True, check=False)
        if done.returncode:
            return None
        # The source itself too: an include that nobody needs may leave the preprocessor's text as it was.
        name, text = source.name.encode(), source.read_bytes()
        text = b"\0".join([self.asked, " ".join(flags).encode(), name, text, done.stdout])
        return hashlib.sha256(text.replace(str(ROOT).encode(), b".")).hexdigest()

    def check(self, source: Path) -> str:
        """Return what clang-tidy says, or "" if the source is clean."""
        key = self.key(source)
        mark = cache_folder() / key if key else None
        if mark and mark.exists():
            with contextlib.suppress(OSError):
                mark.touch()
            return ""
        command = [self.program, "-p", str(self.commands), "--quiet", "--warnings-as-errors=*", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = findings(done.stdout)
        by_way_of_others = done.returncode == 1 and done.stdout and not found
        if done.returncode and not by_way_of_others:
            return found + done.stderr or f"{source}: {self.program} failed"
        if mark:
            with contextlib.suppress(OSError):
                mark.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=mark.parent, delete=False) as new:
                    Path(new.name).replace(mark)
        return ""


def forget_old(most: int = 20000) -> None:
    """Keep the newest marks, which are empty files."""
    with contextlib.suppress(OSError):
        marks = sorted(cache_folder().iterdir(), key=lambda path: path.stat().st_mtime)
        for path in marks[:-most]:
            path.unlink()


def main() -> int:
    """Check the sources, the largest first, so that no core waits for one at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--commands", type=Path, required=True)
    parser.add_argument("--clang-tidy", required=True)
    parser.add_argument("sources", type=Path, nargs="*")
    args = parser.parse_args()
    tidy = Tidy(args.clang_tidy, args.commands)
    sources = sorted(args.sources, key=lambda path: -path.stat().st_size)
    wrong = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(tidy.check, sources)
        for said in tqdm(
            found, total=len(sources), desc="clang-tidy", unit="file", disable=None, leave=False
        ):
            wrong += bool(said)
            if said:
                tqdm.write(said)
    forget_old()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
