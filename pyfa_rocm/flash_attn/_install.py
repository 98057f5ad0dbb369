# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes ``import flash_attn`` find this package, and whoever asks for the version of flash-attn an answer."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from pyfa_rocm.flash_attn._site.pyfa_rocm_distributions import distributions

__all__ = ["VERSION", "install", "missing", "missing_3", "uninstall"]

VERSION = "2.8.3"
_NAME = "flash_attn"
_OURS = "pyfa_rocm.flash_attn"
_MODULES = (
    "",
    ".bert_padding",
    ".flash_attn_interface",
    ".layers",
    ".layers.rotary",
    ".losses",
    ".losses.cross_entropy",
    ".ops",
    ".ops.triton",
    ".ops.triton.cross_entropy",
    ".ops.triton.rotary",
)
_EXTENSION = "flash_attn_2_cuda"
# flash-attention 3 has one module, which programs know by these names.
_NAMES_3 = ("flash_attn_3", "flash_attn_3.flash_attn_interface", "flash_attn_interface")
_OURS_3 = f"{_OURS}.flash_attn_3"
# Answers about installed packages that transformers keeps, by their names in transformers.utils.import_utils.
_KEPT_ANSWERS = (
    "_package_distribution_mapping",
    "is_flash_attn_2_available",
    "is_flash_attn_3_available",
    "is_flash_attn_4_available",
)


def missing(name: str) -> str:
    """Return what to say of a part of flash-attn that is not here; `name` is without "flash_attn."."""
    functions = ", ".join(importlib.import_module(f"{_OURS}.flash_attn_interface").__all__)
    modules = ", ".join(module[1:] for module in _MODULES[1:])
    return (
        f"flash_attn.{name}: not part of {_OURS}, which is in flash-attn's place here; it has {functions}, "
        f"and the modules {modules}"
    )


def missing_3(name: str) -> str:
    """Return what to say of a part of flash-attention 3 that is not here."""
    functions = ", ".join(importlib.import_module(_OURS_3).__all__)
    return (
        f"flash_attn_interface.{name}: not part of {_OURS_3}, which is in flash-attention 3's place here; it "
        f"has {functions}"
    )


class _Finder(MetaPathFinder):
    """Finds the distribution, and says of modules that there are none; ours are in sys.modules already."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for package in (_NAMES_3[0], _OURS_3, _NAME, _OURS):
            if fullname.startswith(package + ".") and PathFinder.find_spec(fullname, path) is None:
                name = fullname.removeprefix(package + ".")
                say = missing_3 if package in (_NAMES_3[0], _OURS_3) else missing
                raise ModuleNotFoundError(say(name), name=f"{_NAME}.{name}")
        return None

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        return distributions(getattr(context, "name", None), _NAMES_3[0] in sys.modules)


_finder = _Finder()


def _forget_answers() -> None:
    """Make transformers look again, if it is there and has looked already."""
    module = sys.modules.get("transformers.utils.import_utils")
    for name in _KEPT_ANSWERS:
        forget = getattr(getattr(module, name, None), "cache_clear", None)
        if forget is not None:
            forget()
    # Up to transformers 5.20 one of them is a table made at its import.
    table = getattr(module, "PACKAGE_DISTRIBUTION_MAPPING", None)
    if table is not None:
        table.clear()
        table.update(importlib.metadata.packages_distributions())


def _ours(flash_attn_3: bool) -> dict[str, ModuleType]:
    """Return our modules by the names that flash-attn has them under."""
    modules = {_NAME + module: importlib.import_module(_OURS + module) for module in _MODULES}
    modules[_EXTENSION] = importlib.import_module(f"{_OURS}.{_EXTENSION}")
    if flash_attn_3:
        modules |= dict.fromkeys(_NAMES_3, importlib.import_module(_OURS_3))
    return modules


def install(*, flash_attn_3: bool = False) -> None:
    """Make ``import flash_attn`` find `pyfa_rocm.flash_attn` in this process, ahead of an installed one.

    Its modules that are here too, and ``flash_attn_2_cuda``; other modules and names of flash-attn raise an
    ImportError that says what there is. The operators ``torch.ops.flash_attn._flash_attn_forward`` and so on
    are defined, unless they are already. ``importlib.metadata.version("flash-attn")`` is that of the
    flash-attn whose functions these are, so that programs which ask before they import, as transformers does,
    find it. Again is no error. ``pyfa-rocm flash-attn -- PROGRAM`` does this in a program that cannot be
    changed, and in the Python processes that it starts.

    Parameters
    ----------
    flash_attn_3 : bool
        Let ``import flash_attn_interface`` and ``import flash_attn_3`` find
        `pyfa_rocm.flash_attn.flash_attn_3`. Many programs take these, where they find them, instead of
        flash-attn, and some of them expect what betas of flash-attention 3 returned.

    Raises
    ------
    RuntimeError
        Another module of these names has been imported: what holds its functions would keep them.

    Notes
    -----
    Source: ``sys.modules``, and the finder protocol of `importlib.metadata`.

    Examples
    --------
    >>> import pyfa_rocm.flash_attn
    >>> pyfa_rocm.flash_attn.install()
    >>> from flash_attn import flash_attn_func
    >>> flash_attn_func is pyfa_rocm.flash_attn.flash_attn_func
    True
    >>> pyfa_rocm.flash_attn.uninstall()
    """
    ours = _ours(flash_attn_3)
    for name in ours:
        other = sys.modules.get(name, ours[name])
        if other is not ours[name] and "." not in name:
            raise RuntimeError(
                f"{name}: got one already imported ({getattr(other, '__file__', None)}), expected none: call "
                f"pyfa_rocm.flash_attn.install() before the first import of {name}"
            )
    sys.modules.update(ours)
    importlib.import_module(f"{_OURS}._private").define(_NAME)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _forget_answers()


def uninstall() -> None:
    """Undo `install`: the next ``import flash_attn`` finds what is installed, if anything. Again is no error.

    Functions that were imported from it stay in use. Operators stay until another flash_attn defines them.
    """
    for name, module in _ours(flash_attn_3=True).items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    _forget_answers()
