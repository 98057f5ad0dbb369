# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kernels in Triton, compiled without a GPU by the triton of this environment, as launches for the clock.

A source is a Python file that imports torch for its host side. Only its kernels are taken, so an object that
has every attribute stands in for torch where that is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pyfa_rocm.array import DeviceArray
from pyfa_rocm.clock.code import Code, Launch, loaded
from pyfa_rocm.clock.subjects import Peer, ProblemArrays
from pyfa_rocm.device import current_device, devices
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Configured", "Kernel", "configurations", "imported", "source"]

# How the types of Triton's signatures lie in memory; pointers begin with an asterisk.
_FORMATS = {"i1": "?", "i8": "b", "i16": "h", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "fp32": "f"}
_WAVE = 64  # lanes, on the cards of these kernels


class _Anything:
    """An object in the place of torch's: a decorator, a base class or a value, whatever a source needs."""

    def __class_getitem__(cls, key: object) -> type:
        return cls

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Anything,), {})

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else _Anything()


class _Stand(ModuleType):
    """A module with every attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Namespace(name, (_Anything,), {})


class _Namespace(type):
    """A class with every attribute, such as torch.autograd."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Namespace(name, (_Anything,), {})


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Let a source import torch and pytest, whether they are here or not."""
    missing = [name for name in ("torch", "pytest") if importlib.util.find_spec(name) is None]
    try:
        sys.modules.update({name: _Stand(name) for name in missing})
        yield
    finally:
        for name in missing:
            del sys.modules[name]


class _Driver:
    """A driver that can only be asked for the card, which is the one that is played."""

    def get_current_device(self) -> int:
        """Return the only one."""
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        """Return the null stream; nothing is launched."""
        del device
        return 0

    def get_current_target(self) -> Any:
        """Return the arch that is played."""
        target = importlib.import_module("triton.backends.compiler").GPUTarget
        return target("hip", devices()[current_device()].arch, _WAVE)

    def get_active_torch_device(self) -> str:
        """Return torch's word for a GPU."""
        return "cuda"


@cache
def _triton() -> ModuleType:
    try:
        triton = importlib.import_module("triton")
    except ImportError as error:
        raise InvalidArgumentError(
            f"--peer: its kernels are in Triton, which is not here ({error})"
        ) from error
    if linker := shutil.which("ld.lld-19") or shutil.which("ld.lld"):  # some wheels have none
        os.environ.setdefault("TRITON_HIP_LLD_PATH", linker)
    return triton


@contextmanager
def _compiling() -> Iterator[None]:
    """Let Triton compile for the card that is played, and have its driver again afterwards."""
    drivers = _triton().runtime.driver
    before = vars(drivers).get("_active", vars(drivers).get("active"))
    drivers.set_active(_Driver())
    try:
        yield
    finally:
        drivers.set_active(before)


@cache
def source(path: str) -> ModuleType:
    """Import a source by its path, for its kernels.

    Raises
    ------
    InvalidArgumentError
        There is no such file, or no Triton.
    """
    if not Path(path).is_file():
        raise InvalidArgumentError(f"--peer: got {path or 'no path'}, expected the kernels' Python source")
    _triton()
    spec = importlib.util.spec_from_file_location(f"source_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _stand_ins(), _compiling():
        spec.loader.exec_module(module)
    return module


def imported(name: str) -> ModuleType:
    """Import a module of an installed package, for its kernels.

    Raises
    ------
    InvalidArgumentError
        It is not installed.
    """
    _triton()
    try:
        with _stand_ins(), _compiling():
            return importlib.import_module(name)
    except ImportError as error:
        raise InvalidArgumentError(f"--peer: cannot import {name}: {error}") from error


@dataclass(frozen=True)
class _Tensor:
    """A device array, as Triton wants one."""

    address: int
    dtype: str

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address


def _tensor(value: Any) -> Any:
    return _Tensor(value.data, str(value.dtype)) if isinstance(value, DeviceArray) else value


def _plain(function: Any) -> Any:
    """Return a kernel without what tunes it."""
    while hasattr(function, "configs") or hasattr(function, "values"):
        function = function.fn
    return function


def configurations(function: Any) -> list[dict[str, Any]]:
    """Return the configurations among which a kernel is tuned, as its arguments; [{}]: it is not."""
    return [config.all_kwargs() for config in getattr(function, "configs", [])] or [{}]


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and how its arguments lie in memory."""

    code: Code
    symbol: str
    threads: int
    lds_bytes: int
    types: dict[str, str]

    @staticmethod
    def compiled(function: Any, arguments: dict[str, Any]) -> Kernel:
        """Compile a kernel for the card that is played.

        Parameters
        ----------
        function : triton.JITFunction
            With or without what tunes it.
        arguments : dict of str to object
            All its arguments, device arrays as such, and options of the compiler.

        Raises
        ------
        UnsupportedError
            Triton cannot.
        """
        given = {name: _tensor(value) for name, value in arguments.items()}
        try:
            with _compiling():
                found = _plain(function).run(grid=(1, 1, 1), warmup=True, **given)
                if hasattr(found, "result"):
                    found = found.result()
        except Exception as error:  # what its compiler raises is of any type
            raise UnsupportedError(f"Triton: {type(error).__name__}: {str(error)[-300:]}") from error
        about = found.metadata
        code = loaded(found.asm["hsaco"], about.name)
        types = {name: kind for name, kind in found.src.signature.items() if kind != "constexpr"}
        return Kernel(code, about.name, about.num_warps * _WAVE, about.shared, types)

    def launch(self, grid: Sequence[int], arguments: dict[str, Any]) -> Launch:
        """Return a launch of so many workgroups."""
        memory = b""
        for name, kind in self.types.items():
            value = arguments[name]
            value = value.data if isinstance(value, DeviceArray) else value
            format_ = "Q" if kind.startswith("*") else _FORMATS[kind]
            memory += bytes(-len(memory) % struct.calcsize(format_)) + struct.pack(format_, value)
        memory += bytes(-len(memory) % 8 + 16)  # two pointers to memory that these kernels do not use
        x, y, z, *_ = (*grid, 1, 1)
        return Launch(self.code, self.symbol, (x, y, z), self.threads, memory, self.lds_bytes)


class Configured(Peer):
    """A way with a kernel that is tuned: of its configurations the fastest is taken.

    Parameters
    ----------
    name : str
        The subject's name.
    configs : sequence of dict
        As `configurations` returns them.
    launches : function
        Returns the launches of a problem's arrays and direction with a configuration.
    """

    def __init__(
        self,
        name: str,
        configs: Sequence[dict[str, Any]],
        launches: Callable[[ProblemArrays, str, dict[str, Any]], list[Launch]],
    ) -> None:
        self.name = name
        self._configs, self._launches = configs, launches

    def variants(self) -> Sequence[Configured]:
        """See Subject."""
        return [Configured(self.name, [config], self._launches) for config in self._configs]

    def launches(self, arrays: ProblemArrays, direction: str) -> list[Launch]:
        """See Peer."""
        return self._launches(arrays, direction, self._configs[0])
