# SPDX-License-Identifier: MIT OR Apache-2.0
"""Puts `pyfa_rocm.flash_attn` in flash-attn's place, in each Python that `pyfa-rocm flash-attn` starts.

The command puts this folder on PYTHONPATH, so Python imports this file when it starts. Then the sitecustomize
that this one hides runs, if there is one.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib slows each start
_WORDS = os.environ.get("PYFA_ROCM_FLASH_ATTN", "").split(",")
_HAS_3 = "fa3" in _WORDS
_NAMES = ("flash_attn", "flash_attn_2_cuda") + ("flash_attn_3", "flash_attn_interface") * _HAS_3


def _other(name: str) -> ModuleSpec | None:
    """Return the spec of the module of this name that Python finds without this folder, or None."""
    return PathFinder.find_spec(name, [path for path in sys.path if path != _HERE])


class _Finder:
    """Finds flash-attn's top-level modules ahead of everything else."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, _Loader, origin=_HERE) if name in _NAMES else None  # type: ignore[arg-type]

    @staticmethod
    def find_distributions(context: object = None) -> object:
        from pyfa_rocm_distributions import distributions  # type: ignore[import-not-found]

        return distributions(getattr(context, "name", None), _HAS_3)


class _Loader:
    """Loads `pyfa_rocm.flash_attn` in place of the module that was asked for.

    Errors are no ImportError: a program would take that for the absence of flash-attn.
    """

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        for name in () if "replace" in _WORDS else _NAMES:
            other = _other(name)
            if other is not None and other.origin:
                raise RuntimeError(
                    f"{name}: got one installed ({other.origin}), expected none under `pyfa-rocm "
                    "flash-attn`: uninstall it, or give `--replace` to run pyfa_rocm's in its place"
                )
        try:
            import pyfa_rocm  # noqa: F401
        except ImportError as error:
            raise RuntimeError(
                f"pyfa_rocm: got none in {sys.executable}, expected it there, for {module.__name__}: install "
                "it with the pip of that Python"
            ) from error
        del sys.modules[module.__name__]
        from pyfa_rocm.flash_attn import install

        install(flash_attn_3=_HAS_3)
        if _Finder in sys.meta_path:  # install() has put one of its own there
            sys.meta_path.remove(_Finder)


sys.meta_path.insert(0, _Finder)
_hidden = _other(__name__)
if _hidden is not None and _hidden.loader is not None:
    _module = module_from_spec(_hidden)
    sys.modules[__name__] = _module
    _hidden.loader.exec_module(_module)
