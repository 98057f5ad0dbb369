# SPDX-License-Identifier: MIT OR Apache-2.0
"""The commands: what they print, and their exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pyfa_rocm
from pyfa_rocm._runtime import library, paths
from pyfa_rocm.cli import backends, demo, info, main, prove
from pyfa_rocm.oracle import features, features_decode, reference, trial
from pyfa_rocm.oracle.problem import Problem

ROOT = Path(__file__).resolve().parents[3]


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _unsupported(*_: object) -> Any:
    raise pyfa_rocm.UnsupportedError("no such kernel")


def _json(*arguments: str) -> dict[str, Any]:
    done = _run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_info() -> None:
    info = _json("info")
    assert info["runtime"]["path"] == info["runtime"]["path_in_library"] == pyfa_rocm.runtime().path
    assert info["library"] == str(paths.library_path())
    assert info["devices"][0]["arch"] in info["build"]["archs"]
    assert {"name", "arch", "sha256"} <= info["build"]["kernels"][0].keys()
    text = _run("info")
    assert text.returncode == 0, text.stderr
    assert info["devices"][0]["name"] in text.stdout
    assert info["runtime"]["path"] in text.stdout
    lines = text.stdout.splitlines()
    assert len(lines) <= 10
    build = info["build"]
    families = Counter(kernel["family"] for kernel in build["kernels"])
    assert f"families      {', '.join(f'{name} {count}' for name, count in families.items())}" in lines
    assert "--kernels" in lines[-1]


def test_info_of_kernels() -> None:
    """A line for each code object, below what `info` says."""
    few, every = _run("info").stdout.splitlines(), _run("info", "--kernels").stdout.splitlines()
    build = _json("info")["build"]
    assert every[: len(few) - 1] == few[:-1]
    listed = [line.split() for line in every[len(few) - 1 :]]
    assert [(arch, name, int(count)) for arch, name, count, *_ in listed] == [
        (x["arch"], x["name"], sum(kernel["code_object"] == i for kernel in build["kernels"]))
        for i, x in enumerate(build["code_objects"])
    ]
    assert [words[-1] for words in listed] == [x["sha256"][:16] for x in build["code_objects"]]


@pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")
def test_info_of_many_devices() -> None:
    """Devices that are alike share a line."""
    text = _run("info", FMHA_EMU_DEVICES="8")
    assert text.returncode == 0, text.stderr
    lines = text.stdout.splitlines()
    assert len(lines) <= 10
    (line,) = [line for line in lines if line.startswith("device")]
    assert line.startswith("devices 0-7 ")


def test_prove() -> None:
    proof = _json("prove")
    assert proof["ok"] is True
    for name in prove.RESULTS:
        assert 0 < proof[f"{name}_max_error"] <= proof[f"{name}_bound"]
        assert 0 < proof[f"{name}_max_error_over_tolerance"] <= 1
    *of_attention, decoding = proof["features"]
    assert [x["feature"] for x in of_attention] == list(features.FEATURES)
    assert decoding["feature"] == features.DECODING
    assert decoding["ok"] is True
    assert not decoding["reason"]
    assert 0 < decoding["o_ratio"] <= 1
    assert 0 < decoding["lse_ratio"] <= 1
    for x in of_attention:
        assert x["ok"] is True
        assert x["shape"] == features.FEATURES[x["feature"]].extents()
        # The smallest kernel set has all of them for gfx942.
        assert x["reason"] == "" or proof["arch"] != "gfx942"
        assert x["reason"] or (0 < x["o_ratio"] <= 1 and 0 <= x["lse_ratio"] <= 1)
        # Gradients are proved, or the library has said why not.
        shares = [x[f"{name}_ratio"] for name in ("dq", "dk", "dv")]
        if x["gradient_reason"]:
            assert (x["gradient_dtype"], shares) == (None, [None] * 3)
        else:
            assert all(0 < share <= 1 for share in shares)
            assert (x["dbias_ratio"] is None) == ("bias, " not in x["feature"])
            assert x["dbias_ratio"] is None or 0 < x["dbias_ratio"] <= 1
    # Every kernel set has gradients of these, in one type or the other.
    proved = {x["feature"] for x in of_attention if not x["gradient_reason"]}
    assert {"varlen, causal, ALiBi", "dropout, causal", "head dims 192 and 128"} <= proved
    kernels = {
        kernel["name"]: kernel["sha256"]
        for kernel in json.loads(library.build_info_json())["kernels"]
        if kernel["arch"] == proof["arch"]
    }
    assert kernels[proof["kernel"]] == proof["code_object_sha256"]
    assert kernels[proof["backward_kernel"]] == proof["backward_code_object_sha256"]
    text = _run("prove")
    assert text.returncode == 0, text.stderr
    for key in (
        "device", "arch", "hip_runtime", "library", "kernel", "pipeline", "code_object_sha256",
        "backward_function", "backward_kernel", "backward_code_object_sha256",
    ):  # fmt: skip
        assert str(proof[key]) in text.stdout


@pytest.mark.parametrize(("backend", "function"), [("numpy", "pyfa_rocm.flash_attn_func"), ("c", "fmha_fwd")])
def test_backends(backend: str, function: str) -> None:
    """Each runs the forward and the backward kernel that it says, once, and only small ones around them."""
    proof = _json("prove", "--backend", backend)
    assert (proof["ok"], proof["backend"], proof["function"]) == (True, backend, function)
    if proof["emulated"]:
        first, *rest = proof["launched"]
        assert first == proof["kernel"]
        assert rest.count(proof["backward_kernel"]) == 1
        others = [name for name in rest if name != proof["backward_kernel"]]
        # D, and the sums of dK and dV, whose group's heads workgroups have divided
        assert [name.split("_")[2] for name in others] == ["dot", "sum", "sum"]
    else:
        assert proof["launched"] is None
    for name in prove.RESULTS:
        assert proof[f"{name}_max_error"] <= proof[f"{name}_bound"]
    assert {"python", "libfmha_rocm", "hip_runtime", "hip-python"} <= proof["versions"].keys()
    assert all(proof["versions"].values())


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_backend_without_its_framework(backend: str, tmp_path: Path) -> None:
    (tmp_path / f"{backend}.py").write_text(f"raise ModuleNotFoundError('no {backend}', name='{backend}')")
    done = _run("prove", "--backend", backend, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"pyfa-rocm prove: pyfa_rocm.{backend}.flash_attn_func needs {backend}")
    assert f"pip install {backend}" in done.stderr
    assert done.stdout == ""


def test_paths() -> None:
    """One by name for `$(...)`; all of them otherwise, with nothing for what is not installed."""
    printed = _json("paths")
    assert list(printed) == ["include", "lib", "cmake_dir", "emulator"]
    assert printed["include"] == pyfa_rocm.get_include()
    assert printed["lib"] == pyfa_rocm.get_lib()
    assert printed["emulator"] == str(paths.emulator_path())
    for name, path in printed.items():
        done = _run("paths", name)
        assert (done.returncode, done.stdout) == ((0, f"{path}\n") if path else (2, ""))
        assert path or done.stderr.startswith(f"pyfa-rocm paths: no CMake package in {ROOT}")
    text = _run("paths").stdout
    assert text.splitlines() == [f"{name:10} {path}" for name, path in printed.items()]


def test_unknown_backend() -> None:
    done = _run("prove", "--backend", "cuda")
    assert done.returncode == 2
    assert "'cuda'" in done.stderr
    for name in backends.BACKENDS:
        assert name in done.stderr


def test_a_launch_of_another_kernel_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An adapter that computes attention in another way than by our kernel has proved nothing."""

    def twice(problem: Problem, gradients: bool) -> trial.Results:
        c.run(problem, gradients)
        return c.run(problem, gradients)

    if not pyfa_rocm.runtime().emulated:
        pytest.skip("a GPU does not say what was launched")
    c = backends.BACKENDS["c"]
    monkeypatch.setitem(backends.BACKENDS, "c", replace(c, run=twice))
    assert main.main(["prove", "--backend", "c"]) == 1
    said = r"WRONG: the device was asked to run fmha_fwd_(?s:.*)result        WRONG\n\Z"
    assert re.search(said, capsys.readouterr().out)


def test_without_backward_kernels_forward_is_proved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prove, "no_gradients", lambda _: "no such kernel")
    monkeypatch.setattr(trial, "no_gradients", lambda _: "no such kernel")
    monkeypatch.setattr(demo, "SEQLENS", (128,))
    assert main.main(["prove", "--backend", "c", "--json"]) == 0
    proof = json.loads(capsys.readouterr().out)
    assert (proof["backward_kernel"], proof["backward_reason"]) == (None, "no such kernel")
    assert [proof[f"{name}_max_error"] for name in ("dq", "dk", "dv")] == [None] * 3
    assert proof["launched"] in (None, [proof["kernel"]])
    assert main.main(["prove", "--backend", "c"]) == 0
    text = capsys.readouterr().out
    assert "not built     gradients of the problem (" in text
    assert "dQ error" not in text
    assert main.main(["demo"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  causal "))
    assert line.split()[-5:] == ["-", "-", "-", "-", "right"]


def test_a_wrong_feature_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shape, nan = Problem(1, 2, 1, 1, 64, False, "float16"), float("nan")
    proofs = [
        features.Proof("wrong", shape, 2.0, 0.5, gradient_reason="no such kernel"),
        features.Proof("not a number", shape, 0.5, nan, gradient_reason="no such kernel"),
        features.Proof("wrong gradient", shape, 0.5, 0.5, "", "float16", 0.5, 2.0, 0.5),
        features.Proof("wrong gradient of a bias", shape, 0.5, 0.5, "", "float16", 0.5, 0.5, 0.5, 2.0),
        features.Proof("absent", shape, reason="no such kernel", gradient_reason="no forward pass"),
        features.Proof("gradients", shape, None, None, "no such kernel", "float32", 0.5, 0.5, 0.5),
    ]
    monkeypatch.setattr(features, "prove", lambda: iter(proofs))
    assert main.main(["prove", "--json"]) == 1
    proof = json.loads(capsys.readouterr().out)
    assert [(x["ok"], x["reason"]) for x in proof["features"]] == [
        *[(False, "")] * 4,
        *[(True, "no such kernel")] * 2,
    ]
    assert demo.proof_table(proof).count("WRONG") == 4
    assert main.main(["prove"]) == 1
    text = capsys.readouterr().out
    assert text.count("WRONG: O") == 4
    assert "dV 0.50, dBias 2.00 of the tolerance" in text
    assert text.count("absent") == 1
    missing = r"absent; the forward pass of gradients; gradients of (the problem; )?wrong; not a number \("
    assert re.search(rf"not built {missing}", " ".join(text.split()))  # some builds lack the problem's too


@pytest.mark.parametrize(
    ("chosen", "rest"),
    [
        ("_exact$", "this build has only a part of the kernel set ci; `make build` builds all of it"),
        ("", "the kernel set ci has none for gfx942; README.md lists what each set has"),
    ],
)
def test_what_was_not_built_is_one_line(
    chosen: str, rest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A build with a part of the kernels is right, and says where the others are."""
    missing = [*features.FEATURES, features.DECODING]
    monkeypatch.setattr(features, "_forward", _unsupported)
    monkeypatch.setattr(features, "_backward", _unsupported)
    monkeypatch.setattr(features_decode, "errors", _unsupported)
    monkeypatch.setattr(demo, "SEQLENS", (128,))
    build = json.loads(library.build_info_json()) | {"kernel_set": "ci", "kernel_filter": chosen}
    monkeypatch.setattr(library, "build_info_json", lambda: json.dumps(build))
    rest = rest.replace("gfx942", pyfa_rocm.devices()[0].arch)
    for command in ("prove", "demo"):
        assert main.main([command]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert text.count("; ".join(missing)) == 1
        assert text.count(f"({rest})") == text.lower().count("not built") == 1


@pytest.mark.parametrize("command", ["prove", "demo"])
def test_a_wrong_result_is_said(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1 with a tolerance that nothing can meet."""
    monkeypatch.setattr(reference, "lse_tolerance", lambda head, *_: 1e-9 * abs(head.lse))
    monkeypatch.setattr(demo, "SEQLENS", (128,))
    assert main.main([command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main.main([command]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_cannot_run() -> None:
    """No library: status 2, and one line that says so."""
    done = _run("prove", PYFA_ROCM_LIBRARY="/nonexistent.so")
    assert done.returncode == 2
    assert done.stderr.startswith("pyfa-rocm prove: PYFA_ROCM_LIBRARY")
    assert done.stdout == ""


def test_no_command() -> None:
    done = _run()
    assert done.returncode == 2
    assert "info,prove,demo" in done.stderr.replace(" ", "") or "COMMAND" in done.stderr


@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["paths", "lib"]])
def test_output_that_cannot_be_written(arguments: list[str]) -> None:
    """A full disk: one line, and the status of a command that could not run."""
    with Path("/dev/full").open("w") as full:
        done = _run_into(full.fileno(), *arguments)
    assert done.returncode == 2
    assert done.stderr == "pyfa-rocm: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["paths"]])
def test_a_reader_that_has_seen_enough(arguments: list[str]) -> None:
    """The status of a program that SIGPIPE ended, and no word."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = _run_into(writer, *arguments)
    finally:
        os.close(writer)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == ""


def _run_into(output: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )


def test_an_interrupted_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_args: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(info, "run", interrupted)
    assert main.main(["info"]) == 128 + signal.SIGINT
    assert capsys.readouterr().err == "pyfa-rocm: interrupted\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_path_that_the_locale_cannot_say(encoding: str, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + "/é".encode() + b"\xff"
    Path(os.fsdecode(folder)).mkdir()
    library = os.fsdecode(folder + b"/libfmha_rocm.so.0")
    shutil.copy(paths.library_path(), library)
    done = subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", "paths", "lib"],
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": f"{encoding}:strict", "PYFA_ROCM_LIBRARY": library},
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    escaped = os.fsdecode(folder).encode("ascii", "backslashreplace")
    assert done.stdout.strip() == (folder if encoding == "utf-8" else escaped)
