# SPDX-License-Identifier: MIT OR Apache-2.0
"""A C program, and the programs of docs/onnxruntime.md, against the headers that the build fetched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from engines.with_onnxruntime.sessions import LIBRARY, Case
from pages.doc_blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[3]
HEADERS = os.environ.get("FMHA_ONNXRUNTIME_INCLUDE", str(ROOT / "build/toolchain/onnxruntime/include"))
DOCUMENTED = [block for block in blocks("docs/onnxruntime.md") if block.kind == "run: onnxruntime"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the library, ONNX Runtime's own by the name that programs look for, and a model."""
    capi = Path(onnxruntime.__file__).parent / "capi"
    (wheel,) = capi.glob("libonnxruntime.so.1.*")
    (tmp_path / "libonnxruntime.so.1").symlink_to(wheel)
    shared = "libonnxruntime_providers_shared.so"  # which some versions load for any provider
    (tmp_path / shared).symlink_to(capi / shared)
    (tmp_path / "libfmha_onnxruntime.so").symlink_to(LIBRARY)
    x = np.zeros((2, 37, 3 * 64), np.float32)
    case = Case("MultiHeadAttention", {"query": x, "key": x, "value": x}, ["output"], {"num_heads": 3})
    (tmp_path / "model.onnx").write_bytes(case.model())
    return tmp_path


def output_of(folder: Path, *command: str | Path) -> str:
    """Run a program in the folder; return what it prints."""
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled(folder: Path, compiler: str, standard: str, source: Path) -> Path:
    """Compile a program against the fetched headers and the wheel's library."""
    command: list[str | Path] = [
        compiler,
        standard,
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-isystem{HEADERS}",
        source,
    ]
    command += [folder / "libonnxruntime.so.1", f"-Wl,-rpath,{folder}", "-lm", "-o", folder / "program"]
    output_of(folder, *command)
    return folder / "program"


def test_c_program(folder: Path) -> None:
    source = Path(__file__).with_name("onnxruntime_client.c")
    program = compiled(folder, "gcc", "-std=c11", source)
    printed = output_of(folder, program, folder / "libfmha_onnxruntime.so", "model.onnx")
    errors = {name: float(error) for name, error in map(str.split, printed.splitlines())}
    # Numbers below 1 in float32: sums of 37 products are off by some units of 2^-24.
    assert set(errors) == {"ours", "cpu"}
    assert max(errors.values()) < 8 * 2.0**-24


def test_cpp_of_the_docs(folder: Path) -> None:
    (block,) = (block for block in DOCUMENTED if block.language == "cpp")
    source = folder / "block.cpp"
    source.write_text(block.text)
    assert output_of(folder, compiled(folder, "g++", "-std=c++20", source)) == "3 inputs\n"


def test_python_of_the_docs(folder: Path) -> None:
    python: list[Block] = [block for block in DOCUMENTED if block.language == "python"]
    text = "".join(block.text for block in python)
    expected = re.findall(r"^print\(.*\)  # (.+)$", text, re.M)
    assert len(expected) == len(python) == 2
    assert output_of(folder, sys.executable, "-c", text).splitlines() == expected
