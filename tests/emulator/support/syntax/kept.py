# SPDX-License-Identifier: MIT OR Apache-2.0
"""LLVM's answers, kept in the user's cache folder: every run of the tests asks the same again.

The programs' versions, the command and its input decide an answer. zlib notices damaged files, and without
a folder to write to LLVM is asked each time.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path

from ..toolchain import tool

_MOST_BYTES = 300 << 20


def in_user_cache(name: str) -> Path:
    """A folder of the user's cache, beside the compiler's."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pyfa_rocm" / name


def folder() -> Path:
    """Where LLVM's answers are."""
    return in_user_cache("llvm")


def write(file: Path, content: bytes) -> None:
    """Write a file of the cache whole: other processes see the old one or the new."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as new:
        new.write(content)
    Path(new.name).replace(file)


def linked(assembler: list[str], text: str) -> bytes:
    """Return the code object of an assembly text."""
    linker = tool("ld.lld")

    def ask() -> bytes:
        with tempfile.TemporaryDirectory() as place:
            source, obj, out = (str(Path(place, name)) for name in ("k.s", "k.o", "k.co"))
            Path(source).write_text(text)
            _run(*assembler, source, "-o", obj)
            _run(linker, "-shared", obj, "-o", out)
            return Path(out).read_bytes()

    return kept([assembler, [linker]], text, ask)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stderr[:4000]}")


@cache
def _version(*program: str) -> str:
    """Return the first line of what a program says of itself, which names no folder."""
    done = subprocess.run([*program, "--version"], check=True, capture_output=True, text=True)
    return done.stdout.partition("\n")[0]


def kept(commands: Sequence[Sequence[str]], text: str, ask: Callable[[], bytes]) -> bytes:
    """Return the answer of `commands` to `text`: a kept one, else that of ask(), which runs them."""
    asked = []
    for command in commands:
        program = list(takewhile(lambda word: not word.startswith("-"), command))
        asked.append([_version(*program), *command[len(program) :]])
    file = folder() / hashlib.sha256(f"{asked}\n{text}".encode()).hexdigest()
    with contextlib.suppress(OSError, zlib.error):
        answer = zlib.decompress(file.read_bytes())
        file.touch()  # the oldest are forgotten first
        return answer
    answer = ask()
    with contextlib.suppress(OSError):
        write(file, zlib.compress(answer, 1))
        _forget_old_at_the_end()
    return answer


@cache
def _forget_old_at_the_end() -> None:
    atexit.register(forget_old)


def forget_old(most: int = _MOST_BYTES) -> None:
    """Keep the newest `most` bytes."""
    with contextlib.suppress(OSError):
        for file in sorted(folder().iterdir(), key=lambda path: -path.stat().st_mtime):
            most -= file.stat().st_size
            if most < 0:
                file.unlink()
