# SPDX-License-Identifier: MIT OR Apache-2.0
"""The package's own shape: imports without circles, and options that are described once."""

from __future__ import annotations

import ast
import graphlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import pyfa_rocm
from pyfa_rocm._call.params import FwdParams, Keywords, Options

PACKAGE = Path(pyfa_rocm.__file__).resolve().parent
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
# The public modules that commands and the oracle call.
CALLED = {"array", "attention", "backward", "device", "fmha", "kvcache", "varlen"}
# Modules that a folder may import besides its own, and besides those that they may import in turn.
BELOW = {
    "pyfa_rocm._runtime": {"device", "errors"},
    "pyfa_rocm._call": {"_runtime", "array", "device", "errors", "fmha"},
    "pyfa_rocm.oracle": {"_call", "_runtime", "errors", *CALLED},
    "pyfa_rocm.clock": {"_call", "_runtime", "emulator", "errors", "oracle", *CALLED},
    "pyfa_rocm.cli": {"_call", "_public", "_runtime", "clock", "emulator", "errors", "oracle", *CALLED},
}
# Rooms that use the package as its users do: nothing else of it imports them.
ABOVE = ("pyfa_rocm.oracle", "pyfa_rocm.clock", "pyfa_rocm.cli")
# Arguments that say where a call goes, and what only flash-attention's backward pass looks at.
NOT_OPTIONS = {"q", "k", "v", "out", "stream", "deterministic"}


def imported(module: str, tree: ast.AST) -> Iterator[str]:
    """The package's modules that a piece of a module imports."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: got a relative import, expected its full name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == "pyfa_rocm":
                parent = name.rpartition(".")[0]
                # Names of the package itself are those of _public, imported when first asked for.
                yield name if name in FILES else parent if parent != "pyfa_rocm" else "pyfa_rocm._public"


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Return the imports of each module, wherever in it; the package's own lazy import aside."""
    trees = {name: ast.parse(path.read_text()) for name, path in FILES.items() if name != "pyfa_rocm"}
    return {name: set(imported(name, tree)) for name, tree in trees.items()}


def test_imports_have_no_circle(graph: dict[str, set[str]]) -> None:
    """Neither at run time nor for type hints."""
    assert len(graph) > 40
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


# The package imports on demand. Python runs a sitecustomize, which belongs to no package, at its start.
# SGLang calls its entry point in every process, and the backend only in those that ask for it.
LAZY = ("pyfa_rocm", "pyfa_rocm.flash_attn._site.sitecustomize", "pyfa_rocm.sglang._register")


def test_no_import_hides_in_a_function() -> None:
    """Where it could hide a circle."""
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if name not in LAZY and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert not list(imported(name, node)), f"{name}.{node.name}"


@pytest.mark.parametrize("folder", BELOW)
def test_what_lies_below(folder: str, graph: dict[str, set[str]]) -> None:
    """A room imports only rooms below it: no public function, framework's module or command from below."""
    allowed = {folder, *(f"pyfa_rocm.{name}" for name in BELOW[folder])}
    for module, names in graph.items():
        if module.startswith(folder + "."):
            rooms = {".".join(name.split(".")[:2]) for name in names}
            assert rooms <= allowed, module


def test_what_lies_above(graph: dict[str, set[str]]) -> None:
    """Only the command line's entry imports a room that is there to use the package."""
    for module, names in graph.items():
        if not module.startswith(ABOVE) and module != "pyfa_rocm.__main__":
            assert not [name for name in names if name.startswith(ABOVE)], module


def test_a_wheel_needs_no_checkout() -> None:
    """No module imports benchmarks, which no wheel has; `bench --against` asks for it when it is there."""
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [x for x in names if x.split(".")[0] in ("benchmarks", "tests")], name


@pytest.mark.parametrize("folder", ["benchmarks", "native/tools", "tests/support"])
def test_programs_leave_the_path_as_it_is(folder: str) -> None:
    """Programs run as modules, and pytest's configuration says where tests find the rest."""
    for path in (Path(__file__).parents[2] / folder).rglob("*.py"):
        assert "sys.path" not in path.read_text(encoding="utf-8"), path


def test_only_context_parallel_communicates() -> None:
    """Plain functions import no communication library."""
    found = set()
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(x.startswith("torch.distributed") for x in names):
                found.add(name)
        if name in found:
            assert name.startswith("pyfa_rocm.torch.context_parallel."), name
    assert found


def test_options_are_described_once() -> None:
    """`flash_attn_func` spells out the fields of `Options`, defaults included."""
    parameters = inspect.signature(pyfa_rocm.flash_attn_func).parameters
    spelled = {name: x.default for name, x in parameters.items() if name not in NOT_OPTIONS}
    assert spelled == {x.name: x.default for x in fields(Options)}
    by_keyword = [n for n, x in parameters.items() if x.kind is inspect.Parameter.KEYWORD_ONLY]
    assert [n for n in by_keyword if n not in NOT_OPTIONS] == list(Keywords.__annotations__)
    hints = {x.name: x.type for x in fields(Options)}
    assert {name: parameters[name].annotation for name in spelled} == hints


def test_keywords_are_options() -> None:
    options = {x.name: x.type for x in fields(Options)}
    for name, hint in Keywords.__annotations__.items():
        assert getattr(hint, "__forward_arg__", hint) == options[name], name


def test_numbers_go_to_fields_of_the_struct() -> None:
    names = {x.name for x in fields(FwdParams)}
    passed_on = [x.metadata["number"].field for x in fields(Options) if "number" in x.metadata]
    assert "softcap" in passed_on
    assert set(passed_on) <= names


FUNCTIONS = [getattr(pyfa_rocm, name) for name in pyfa_rocm.__all__ if name.endswith("_func")]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_keywords_are_shown(function: Callable[..., Any]) -> None:
    """`help` shows each keyword, though a function takes them as ``**ours``."""
    parameters = inspect.signature(function).parameters
    assert not [x for x in parameters.values() if x.kind is inspect.Parameter.VAR_KEYWORD]
    defaults = {x.name: x.default for x in fields(Options)}
    for name in Keywords.__annotations__:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == defaults[name]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_unknown_keyword(function: Callable[..., Any]) -> None:
    q, cu = pyfa_rocm.DeviceArray.empty((1, 1, 1, 64), "float16"), pyfa_rocm.DeviceArray.empty((2,), "int32")
    parts = {"qkv": [1, 1, 3, 1, 64], "kv": [1, 1, 2, 1, 64]}
    arguments: dict[str, Any] = {}
    for name, x in inspect.signature(function).parameters.items():
        if x.default is inspect.Parameter.empty and name in parts:
            arguments[name] = pyfa_rocm.DeviceArray.empty(tuple(parts[name]), "float16")
        elif x.default is inspect.Parameter.empty:
            arguments[name] = 1 if name.startswith("max") else cu if name.startswith("cu") else q
    if "varlen" in function.__name__:
        arguments = {n: x[0] if n in ("q", "k", "v", *parts) else x for n, x in arguments.items()}
    with pytest.raises(TypeError, match=r"flash_attn_\w*func\(\) got an unexpected keyword .* 'sofcap'"):
        function(**arguments, sofcap=1.0)
