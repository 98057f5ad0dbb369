# SPDX-License-Identifier: MIT OR Apache-2.0
"""`pyfa-rocm flash-attn`: what it sets, what other Python code notices of it, and how that ends.

Programs that import flash-attn under it are in tests/adapters, where there is torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pyfa_rocm

PACKAGE = Path(pyfa_rocm.__file__).resolve().parent
SITE = PACKAGE / "flash_attn" / "_site"


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    path = ":".join(filter(None, (environment.pop("PYTHONPATH", ""), str(PACKAGE.parent))))
    return subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", "flash-attn", *arguments],
        env=os.environ | {"PYTHONPATH": path} | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def output(*arguments: str, cwd: Path | None = None, **environment: str) -> str:
    done = run(*arguments, cwd=cwd, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def python(code: str, *options: str, cwd: Path | None = None, **environment: str) -> str:
    return output(*options, "--", sys.executable, "-c", textwrap.dedent(code), cwd=cwd, **environment)


def test_without_a_program() -> None:
    """It prints what it would set, for a shell or as JSON."""
    variables = {"PYTHONPATH": str(SITE), "PYFA_ROCM_FLASH_ATTN": ""}
    assert json.loads(output("--json")) == variables
    variables["PYFA_ROCM_FLASH_ATTN"] = "fa3,replace"
    assert json.loads(output("--json", "--fa3", "--replace")) == variables
    assert output("--fa3").splitlines() == [
        f'export PYTHONPATH={SITE}"${{PYTHONPATH:+:$PYTHONPATH}}"',
        "export PYFA_ROCM_FLASH_ATTN=fa3",
    ]
    done = run("--json", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("pyfa-rocm flash-attn: --json: got the program 'true' too, expected")


def test_the_end_is_the_programs_own() -> None:
    assert run("--", "sh", "-c", "exit 37").returncode == 37
    assert run("--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    done = run("no-such-program")
    assert (done.returncode, done.stderr) == (
        127,
        "pyfa-rocm flash-attn: no-such-program: No such file or directory\n",
    )


def test_a_path_of_modules_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('mine')\n")
    assert python("import mine", PYTHONPATH=str(tmp_path)) == "mine\n"


LOOK = """
    import importlib.metadata as m
    from importlib.util import find_spec
    for name in ("flash_attn", "flash_attn_2_cuda", "flash_attn_interface", "flash_attn_3"):
        print(name, find_spec(name) is not None, *m.packages_distributions().get(name, ()))
    for name in ("flash-attn", "flash_attn", "flash_attn_3"):
        try:
            print(name, m.version(name))
        except m.PackageNotFoundError:
            print(name, "none")
    import sys
    print("torch" in sys.modules, "pyfa_rocm" in sys.modules)
"""


def test_what_is_found_without_an_import() -> None:
    """transformers and diffusers ask like this; nothing is imported for it."""
    assert python(LOOK).splitlines() == [
        "flash_attn True flash-attn",
        "flash_attn_2_cuda True flash-attn",
        "flash_attn_interface False",
        "flash_attn_3 False",
        "flash-attn 2.8.3",
        "flash_attn 2.8.3",
        "flash_attn_3 none",
        "False False",
    ]
    lines = python(LOOK, "--fa3").splitlines()
    assert lines[2:4] == ["flash_attn_interface True flash-attn-3", "flash_attn_3 True flash-attn-3"]
    assert lines[6] == "flash_attn_3 3.0.0"


def test_another_sitecustomize_runs(tmp_path: Path) -> None:
    """Once, under its own name, and its errors are reported as ever."""
    theirs = tmp_path / "sitecustomize.py"
    theirs.write_text("import builtins\nbuiltins.runs = getattr(builtins, 'runs', 0) + 1\n")
    code = "import sitecustomize as s; print(runs, s.__name__, s.__file__)"
    assert python(code, PYTHONPATH=str(tmp_path)) == f"1 sitecustomize {theirs}\n"
    theirs.write_text("raise ValueError('theirs')\n")
    done = run("--", sys.executable, "-c", LOOK.replace("\n    ", "\n"), PYTHONPATH=str(tmp_path))
    assert "ValueError: theirs" in done.stderr
    assert "flash_attn True flash-attn" in done.stdout


@pytest.mark.parametrize("where", ["package", "module", "script"])
def test_another_flash_attn_is_an_error(tmp_path: Path, where: str) -> None:
    """One that Python would find otherwise, beside the script too; no ImportError, which programs hide."""
    name = "flash_attn_2_cuda" if where == "module" else "flash_attn"
    path = tmp_path / (f"{name}.py" if where == "module" else f"{name}/__init__.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    script = tmp_path / "script.py"
    script.write_text("try:\n    import flash_attn\nexcept ImportError:\n    print('hidden')\n")
    path_of_modules = "" if where == "script" else str(tmp_path)
    program = [str(script)] if where == "script" else ["-c", script.read_text()]
    done = run("--", sys.executable, *program, PYTHONPATH=path_of_modules)
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"RuntimeError: {name}: got one installed ({path}), expected none under")
    assert "--replace" in said


def test_a_folder_of_the_name_is_no_flash_attn(tmp_path: Path) -> None:
    """Without torch, ours is what fails, not that there is another one."""
    (tmp_path / "flash_attn").mkdir()
    code = "import sys; sys.modules['torch'] = None; import flash_attn"
    done = run("--", sys.executable, "-c", code, cwd=tmp_path)
    assert "pyfa_rocm.flash_attn needs PyTorch" in done.stderr.splitlines()[-1]


def test_a_python_without_pyfa_rocm(tmp_path: Path) -> None:
    """As of another virtual environment: an error that says which Python that is."""
    code = "import sys; sys.modules['pyfa_rocm'] = None; import flash_attn"
    done = run("--", sys.executable, "-c", code)
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"RuntimeError: pyfa_rocm: got none in {sys.executable}, expected it there")
