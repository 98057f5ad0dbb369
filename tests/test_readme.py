# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples of README.md do what it says they do."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cases import judge
from reference import attention

from pyfa_rocm import DeviceArray, _lib, runtime, synchronize

ROOT = Path(__file__).resolve().parents[1]


def block(language: str) -> str:
    """The one code block of a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    assert len(found) == 1, f"README.md has {len(found)} blocks of {language}, expected one"
    return str(found[0])


def test_python_example(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python"), "README.md", "exec"), {})
    assert capsys.readouterr().out.split("\n")[0] == "(1, 512, 8, 128) (1, 8, 512)"


def test_c_example(tmp_path: Path) -> None:
    """Compiled as it stands, and called through ctypes on the process's own runtime."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "no C compiler"
    (tmp_path / "attend.c").write_text(block("c"))
    library = _lib.library_path()
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += [f"-I{ROOT / 'native' / 'include'}", "attend.c", f"-L{library.parent}", "-lfmha_rocm"]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}", "-o", "attend.so"], cwd=tmp_path, check=True)
    runtime()
    attend = ctypes.CDLL(str(tmp_path / "attend.so")).attend
    attend.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64, ctypes.c_void_p]

    seqlen = 200
    rng = np.random.default_rng(5)
    q, k, v = (
        rng.standard_normal((1, seqlen, heads, 128), np.float32).astype(np.float16) for heads in (8, 2, 2)
    )
    arrays = [DeviceArray.from_numpy(x) for x in (q, k, v, np.zeros_like(q))]
    assert attend(*(x.data for x in arrays), seqlen, None) == 0
    synchronize()
    judge(attention(q, k, v, causal=True), arrays[3].to_numpy(), None)
