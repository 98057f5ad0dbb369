# SPDX-License-Identifier: MIT OR Apache-2.0
"""The package as a module: it costs little to import, loads names on demand, and knows its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyfa_rocm
from pyfa_rocm import _public
from pyfa_rocm._runtime import library, paths

# All that a framework or a runtime brings, and what takes long to import.
HEAVY = "cffi cupy hip jax jaxlib ml_dtypes numpy rocm torch tqdm transformers"


def run(code: str) -> str:
    """Return the output of a new process."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_importing_it_imports_nothing_heavy() -> None:
    assert run(f"import sys, pyfa_rocm; print(set({HEAVY.split()}) & set(sys.modules))") == "set()"


def test_using_it_imports_no_framework() -> None:
    frameworks = set(HEAVY.split()) - {"cffi", "hip", "ml_dtypes", "numpy", "rocm", "tqdm"}
    code = f"import sys, pyfa_rocm; pyfa_rocm.flash_attn_func; print({frameworks} & set(sys.modules))"
    assert run(code) == "set()"


@pytest.mark.parametrize("name", [*_public.__all__, "__all__", "__version__"])
def test_names_are_those_of_the_public_module(name: str) -> None:
    assert getattr(pyfa_rocm, name) is getattr(_public, name)
    assert name in dir(pyfa_rocm)


def test_every_way_to_import_a_name() -> None:
    assert run("from pyfa_rocm import flash_attn_func as f; print(f.__name__)") == "flash_attn_func"
    assert run("from pyfa_rocm import *; print(FmhaError.__name__)") == "FmhaError"
    assert run("import pyfa_rocm; print(pyfa_rocm.device.Stream is pyfa_rocm.Stream)") == "True"
    assert run("from pyfa_rocm import _runtime; print(_runtime.__name__)") == "pyfa_rocm._runtime"
    assert run("import pyfa_rocm; print(pyfa_rocm.__version__)") == library.version()


@pytest.mark.parametrize("name", ["flash_attention", "_hidden", "__wrapped__"])
def test_no_such_name(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'pyfa_rocm' has no attribute '{name}'"):
        getattr(pyfa_rocm, name)


def test_include_and_lib_of_a_checkout() -> None:
    assert (Path(pyfa_rocm.get_include()) / "fmha_rocm.hpp").is_file()
    assert Path(pyfa_rocm.get_lib()) == paths.library_path().parent


def test_lib_follows_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "libfmha_rocm.so"
    built.touch()
    monkeypatch.setenv("PYFA_ROCM_LIBRARY", str(built))
    assert pyfa_rocm.get_lib() == str(tmp_path.resolve())
    monkeypatch.setenv("PYFA_ROCM_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(pyfa_rocm.FmhaError, match=r"PYFA_ROCM_LIBRARY: got '.*none.so', expected"):
        pyfa_rocm.get_lib()


def test_a_checkout_has_no_cmake_package() -> None:
    if (Path(pyfa_rocm.__file__).parent / "lib").exists():
        pytest.skip("the package is an installed one")
    with pytest.raises(pyfa_rocm.FmhaError, match=r"no CMake package in .*cmake --install"):
        pyfa_rocm.get_cmake_dir()


def test_type_information_is_declared() -> None:
    assert (Path(os.fspath(pyfa_rocm.__file__)).parent / "py.typed").is_file()


LIBRARY = """
import ctypes, time
begin = time.process_time()
ctypes.CDLL({path!r})
print(1e3 * (time.process_time() - begin))
"""
# All launches of a training step's backward pass, of the kernels that it gets.
KERNELS = """
import time
import pyfa_rocm as fa
q, o = (fa.DeviceArray.empty((1, 256, 4, 128), "bfloat16") for _ in range(2))
lse = fa.DeviceArray.empty((1, 4, 256), "float32")
tensor = fa.Strided(q.data, *q.strides[:3])
fwd = fa.FwdParams("bfloat16", 1, 256, 256, 4, 4, 128, 128, 0.1, tensor, tensor, tensor,
                   fa.Strided(o.data, *o.strides[:3]), lse=fa.Lse(lse.data, *lse.strides[:2]))
later = tensor._replace(data=0)
bwd = fa.BwdParams(fwd, dout=tensor, dq=later, dk=later, dv=later)
fa.fmha_fwd_supported(fwd)
begin = time.process_time()
{call}
print(1e3 * (time.process_time() - begin))
"""


@pytest.mark.parametrize(
    "code",
    [
        LIBRARY.format(path=str(paths.library_path())),
        KERNELS.format(call="fa.fmha_fwd_prepare(fwd)"),
        KERNELS.format(call="fa.fmha_bwd_prepare(bwd)"),
    ],
    ids=["library", "forward", "backward"],
)
def test_loading_takes_less_than_20_milliseconds(code: str) -> None:
    """CPU time of the library with all its kernels, then of a call's; the best of several processes."""
    taken = sorted(float(run(code)) for _ in range(5))
    print([round(x, 2) for x in taken])
    assert taken[0] < 20
