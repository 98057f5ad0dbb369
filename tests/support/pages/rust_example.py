# SPDX-License-Identifier: MIT OR Apache-2.0
"""cargo, for the example in Rust."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import installed


class Cargo:
    """cargo on a copy of a workspace.

    The distribution's cargo rather than another one: its Rust is the oldest that the example is promised for.

    Parameters
    ----------
    example : Path
        The workspace.
    folder : Path
        For the copy, and for all that cargo writes.
    emulator : Path, optional
        The software device, if the example is to run there whatever this machine has.
    """

    def __init__(self, example: Path, folder: Path, emulator: Path | None = None) -> None:
        self._cargo = Path(installed.program("/usr/bin/cargo", "cargo"))
        self.source = folder / example.name
        shutil.copytree(example, self.source, ignore=shutil.ignore_patterns("target"))
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("FMHA_HIP_RUNTIME", "FMHA_ROCM_PREFIX", "LD_LIBRARY_PATH", "RUSTFLAGS")
        }
        for variable in ("rustc", "rustdoc"):  # of the same folder, not of the PATH
            if (tool := self._cargo.parent / variable).exists():
                self.environment[variable.upper()] = str(tool)
        self.environment |= {"CARGO_HOME": str(folder / "home"), "CARGO_TARGET_DIR": str(folder / "target")}
        self.environment |= {"CARGO_TERM_COLOR": "never", "CARGO_PROFILE_DEV_DEBUG": "0"}
        # Where there is a GPU the example takes it, unless told otherwise.
        if emulator and any(Path(driver).exists() for driver in ("/dev/kfd", "/dev/dxg")):
            self.environment["FMHA_HIP_RUNTIME"] = str(emulator)

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a subcommand with these variables set besides, which say where the library is."""
        return subprocess.run(
            [self._cargo, *arguments[:1], "--offline", "--locked", *arguments[1:]],
            cwd=self.source,
            env=self.environment | variables,
            check=False,
            capture_output=True,
            text=True,
        )
