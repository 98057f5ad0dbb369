# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the code blocks of one page, in a folder that looks like a checkout in which `make build` was run."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import installed
from installed import library_folder
from pages.doc_blocks import ROOT, Block, require_output, said_to_print

# Shell lines may use copies of these parts of a checkout, and change them. The package is not among them: a
# Python started there would prefer it to an installed one.
_CHECKOUT = ("native", "tests", "benchmarks", "docs", "examples", "Makefile", "README.md")
_STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
# `set -e` lets the first command of an && fail: this asks before each command how the one before went.
_STOP_AT_FAILURE = "set -u -o pipefail; trap 'status=$?; [ $status = 0 ] || exit $status' DEBUG\n"
_COMPILERS = {"c": ("cc", "-std=c99"), "cpp": ("c++", "-std=c++17")}


class Page:
    """The state of a page: its folder, home and Python namespace, and what the last block printed.

    Parameters
    ----------
    folder : Path
        An empty folder of its own.
    prefix : callable
        Returns an installed prefix; called if a block needs one.
    """

    def __init__(self, folder: Path, prefix: Callable[[], Path]) -> None:
        self.folder = folder / "checkout"
        self.home = folder / "home"
        self._programs = folder / "bin"
        self._prefix = prefix
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self.printed: str | None = None
        for path in (self.folder / "build" / "venv", self.home, self._programs):
            path.mkdir(parents=True)
        for name, command in (("python", ""), ("pyfa-rocm", " -m pyfa_rocm")):
            program = self._programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{command} "$@"\n')
            program.chmod(0o755)
        (self.folder / "build" / "venv" / "bin").symlink_to(self._programs)

    def _check_out(self) -> None:
        """Lay out the files of a checkout, once."""
        if (self.folder / "README.md").exists():
            return
        leave_out = shutil.ignore_patterns("__pycache__", "target", "build", "lib")
        for name in _CHECKOUT:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.folder / name, ignore=leave_out)
            else:
                shutil.copy(ROOT / name, self.folder / name)

    def run(self, block: Block) -> None:
        """Run a block, or compare it with what was printed."""
        if block.kind == "output":
            assert self.printed is not None, f"{block.place}: output of what? No block before it ran"
            require_output(block, block.text, self.printed)
        elif block.kind == "file":
            path = self.folder / block.value
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "python":
            self.printed = self._python(block)
        elif block.language == "sh":
            self.printed = self._shell(block)
        else:
            self.printed = self._program(block)

    def _python(self, block: Block) -> str:
        code = compile("\n" * block.line + block.text, str(ROOT / block.page), "exec")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, self._namespace)
        if expected := said_to_print(block.text):
            require_output(block, expected, output.getvalue())
        return output.getvalue()

    def _environment(self) -> dict[str, str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MFLAGS", "FMHA_HIP_RUNTIME", "LD_LIBRARY_PATH", "CPATH")
        }
        environment["HOME"] = str(self.home)
        environment["PATH"] = f"{self._programs}:{environment['PATH']}"
        environment["CMAKE_GENERATOR"] = "Ninja"
        if "site-packages" not in installed.PACKAGE.parts:
            environment["PYTHONPATH"] = str(ROOT)
        return environment

    def _shell(self, block: Block) -> str:
        self._check_out()
        release = self.folder / "build" / "release"
        if "build/release" in block.text and not release.exists():
            release.symlink_to(installed.build_folder())
        # A line with the prefix wants it, or makes it.
        if "fmha" in block.text and not (self.home / "fmha").exists():
            (self.home / "fmha").symlink_to(self._prefix())
        environment = self._environment()
        if (self.home / "fmha").exists():
            lib = library_folder((self.home / "fmha").resolve())
            environment["ROCM_PATH"] = installed.cache("FMHA_HIP_PATH")  # for HIP's headers
            environment.setdefault("PKG_CONFIG_PATH", str(lib / "pkgconfig"))
        # The pages of the examples are read from their folders.
        place = self.folder / block.page
        folder = place.parent if block.page.startswith("examples/") else self.folder
        return self._command(block, ["bash", "-c", _STOP_AT_FAILURE + block.text], environment, folder)

    def _program(self, block: Block) -> str:
        """Compile a C or C++ block and run it on the device of the tests."""
        prefix, (compiler, standard) = self._prefix(), _COMPILERS[block.language]
        lib = library_folder(prefix)
        source = self.folder / f"block.{block.language}"
        source.write_text(block.text)
        environment = self._environment()
        if environment.get("PYFA_ROCM_DEVICE") == "emulator":
            environment["FMHA_HIP_RUNTIME"] = str(lib / "fmha_rocm" / "emulator" / "libamdhip64.so.6")
        command = [compiler, standard, *_STRICT, f"-I{prefix / 'include'}", source.name]
        command += [f"-L{lib}", "-lfmha_rocm", f"-Wl,-rpath,{lib}", "-o", "block"]
        self._command(block, command, environment)
        return self._command(block, ["./block"], environment)

    def _command(
        self, block: Block, command: list[str], environment: dict[str, str], folder: Path | None = None
    ) -> str:
        done = subprocess.run(
            command,
            cwd=folder or self.folder,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{block.place}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout
