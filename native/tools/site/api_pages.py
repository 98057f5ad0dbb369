# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pages of the package's docstrings, read from the source.

Nothing of the package is imported, so no device and no framework is needed. A page documents the names in its
module's ``__all__``. A public name without a docstring is an error.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Each module that has a page, and the page of the site that introduces it
MODULES = {
    "pyfa_rocm": "python",
    "pyfa_rocm.emulator": "software-device",
    "pyfa_rocm.torch": "adapters",
    "pyfa_rocm.torch.context_parallel": "context-parallel",
    "pyfa_rocm.jax": "adapters",
    "pyfa_rocm.jax.context_parallel": "context-parallel",
    "pyfa_rocm.transformers": "adapters",
    "pyfa_rocm.flash_attn": "adapters",
    "pyfa_rocm.flash_attn.flash_attn_3": "adapters",
    "pyfa_rocm.vllm": "vllm",
    "pyfa_rocm.sglang": "sglang",
}
# The module that has the public names of a package, if that is not its __init__
NAMES_OF = {"pyfa_rocm": "pyfa_rocm._public"}
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
# A value that is longer is left out.
_LONGEST_VALUE = 60

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """A module's syntax tree and lines."""

    name: str
    tree: ast.Module
    lines: list[str]

    def exported(self) -> list[str]:
        """Return the names in ``__all__``."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        raise ValueError(f"{self.name}: has no __all__")

    def comment_above(self, line: int) -> str:
        """Return the comment that ends right above a line, "" if there is none."""
        found: list[str] = []
        while line > 1 and self.lines[line - 2].startswith("# "):
            line -= 1
            found.insert(0, self.lines[line - 1][2:])
        return "\n".join(found)


class Package:
    """The modules of the repository, parsed when first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.module = cache(self._module)

    def path(self, name: str) -> Path | None:
        """Return the file of a module; None if there is none."""
        base = self._root.joinpath(*name.split("."))
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)

    def _module(self, name: str) -> Module:
        path = self.path(name)
        if path is None:
            raise ValueError(f"{name}: expected a module of the package")
        text = path.read_text(encoding="utf-8")
        return Module(name, ast.parse(text), text.splitlines())

    def find(self, module: str, name: str) -> tuple[Module, ast.stmt] | None:
        """Return the statement that defines a name, wherever a module has it from; None for a module.

        Raises
        ------
        ValueError
            No statement does.
        """
        here = self.module(module)
        for node in here.tree.body:
            if isinstance(node, _DEFINITIONS) and node.name == name:
                return here, node
            if name in assigned(node):
                return here, node
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        if self.path(f"{node.module}.{alias.name}"):
                            return None
                        return self.find(node.module, alias.name)
        raise ValueError(f"{module}: {name} is in __all__, and no statement defines or imports it")


def assigned(node: ast.stmt) -> list[str]:
    """Return the names that a statement assigns to."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def indented(text: str) -> str:
    """Return text as a directive's content."""
    return textwrap.indent(text, "   ")


def converted(docstring: str) -> str:
    """Return a docstring as Sphinx reads it."""
    from sphinx.ext.napoleon import Config, NumpyDocstring

    # Attributes share a line, which only this style of section takes for names.
    sections = [("Attributes", "params_style"), ("Parameters", "params_style")]
    config = Config(napoleon_use_rtype=False, napoleon_custom_sections=sections)
    return "\n".join(NumpyDocstring(docstring, config).lines())


def docstring_of(module: Module, node: Definition) -> str:
    """Return it.

    Raises
    ------
    ValueError
        There is none.
    """
    found = ast.get_docstring(node)
    if not found:
        raise ValueError(f"{module.name}: {node.name} is public, and has no docstring")
    return converted(found)


def directive(kind: str, head: str, body: str, *options: str) -> str:
    """Return a directive of Sphinx's Python domain."""
    lines = [f".. py:{kind}:: {head}", *(f"   :{option}" for option in options)]
    return "\n".join(lines) + f"\n\n{indented(body)}\n"


def signature(node: ast.FunctionDef, *, bound: bool = False) -> str:
    """Return the arguments in parentheses, without the first if it is bound, and the result."""
    arguments = node.args
    if bound:
        first = arguments.posonlyargs or arguments.args
        del first[0]
    said = node.returns and not isinstance(node.returns, ast.Constant)
    result = f" -> {ast.unparse(node.returns)}" if node.returns and said else ""
    return f"({ast.unparse(arguments)}){result}"


def decorators(node: Definition) -> set[str]:
    """Return the names of its decorators, without arguments."""
    return {ast.unparse(item.func if isinstance(item, ast.Call) else item) for item in node.decorator_list}


def fields_of(node: ast.ClassDef) -> list[tuple[str, str]]:
    """Return the fields of a dataclass or a NamedTuple, with their types."""
    if "dataclass" not in decorators(node) and "NamedTuple" not in map(ast.unparse, node.bases):
        return []
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    return [(assigned(item)[0], ast.unparse(item.annotation)) for item in fields]


def members(module: Module, node: ast.ClassDef) -> Iterator[str]:
    """Yield what a class has: fields that its docstring does not describe, values of an enum, methods."""
    docstring = ast.get_docstring(node) or ""
    if "\nAttributes\n" not in docstring:
        for name, annotation in fields_of(node):
            yield directive("attribute", name, "", f"type: {annotation}")
    if any(ast.unparse(base).endswith("Enum") for base in node.bases):
        for item in node.body:
            for name in assigned(item):
                value = ast.unparse(item.value)  # type: ignore[attr-defined]
                yield directive("attribute", name, "", f"value: {value}")
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
            yield method(module, item)


def method(module: Module, node: ast.FunctionDef) -> str:
    """Return the entry of a method or a property."""
    found, body = decorators(node), docstring_of(module, node)
    if found & {"property", "functools.cached_property", "cached_property"}:
        options = [f"type: {ast.unparse(node.returns)}"] if node.returns else []
        return directive("property", node.name, body, *options)
    kinds = [f"{kind}:" for kind in ("classmethod", "staticmethod") if kind in found]
    return directive("method", node.name + signature(node, bound="staticmethod" not in found), body, *kinds)


def entry(package: Package, module: str, name: str) -> tuple[str, str]:
    """Return the kind of a public name, "" for a module, and its entry."""
    found = package.find(module, name)
    if found is None:
        return "", ""
    where, node = found
    if isinstance(node, ast.FunctionDef):
        return "Functions", directive("function", name + signature(node), docstring_of(where, node))
    if isinstance(node, ast.ClassDef):
        body = "\n".join([docstring_of(where, node), "", *members(where, node)])
        return "Classes", directive("class", name, body)
    return "Values", value_entry(package, where, node, name)


def value_entry(package: Package, module: Module, node: ast.stmt, name: str) -> str:
    """Return the entry of a value: the comment above it, or the docstrings of its class."""
    value = node.value  # type: ignore[attr-defined]
    text = ast.unparse(value)
    options = [f"value: {text}"] if len(text) <= _LONGEST_VALUE else []
    classes = {item.name: item for item in module.tree.body if isinstance(item, ast.ClassDef)}
    if isinstance(value, ast.Call) and ast.unparse(value.func) in classes:
        made = classes[ast.unparse(value.func)]
        functions = [
            directive(
                "function", f"{name}.{item.name}{signature(item, bound=True)}", docstring_of(module, item)
            )
            for item in made.body
            if isinstance(item, ast.FunctionDef) and not item.name.startswith("_") and not decorators(item)
        ]
        return "\n".join([directive("data", name, docstring_of(module, made)), *functions])
    comment = module.comment_above(node.lineno)
    return directive("data", name, comment, *options)


def page(package: Package, name: str, guide: str) -> str:
    """Return the page of a module."""
    module = package.module(name)
    names_of = NAMES_OF.get(name, name)
    sections: dict[str, list[str]] = {"Functions": [], "Classes": [], "Values": []}
    for public in sorted(package.module(names_of).exported(), key=str.lower):
        kind, text = entry(package, names_of, public)
        if kind:
            sections[kind].append(text)
    parts = [
        f"{name}\n{'=' * len(name)}",
        f".. py:module:: {name}",
        f"This page is for those who call ``{name}``: it has the docstrings of all its public names.\n"
        f":doc:`/{guide}` is the guide, with examples.",
        ast.get_docstring(module.tree) or "",
    ]
    for kind, entries in sections.items():
        if entries:
            parts += [f"{kind}\n{'-' * len(kind)}", *entries]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """Return the page that lists the modules."""
    entries = "\n".join(f"   {name.removeprefix('pyfa_rocm.')} <{name}>" for name in MODULES)
    return (
        "Python reference\n================\n\n"
        "This page is for those who call the package from Python and look for a function: it lists the\n"
        "public modules. Each name is described as in its docstring, which ``help()`` shows too.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n{entries}\n"
    )


def write(root: Path, folder: Path) -> None:
    """Write all pages."""
    package = Package(root)
    folder.mkdir(parents=True)
    (folder / "index.rst").write_text(index(), encoding="utf-8")
    for name, guide in MODULES.items():
        (folder / f"{name}.rst").write_text(page(package, name, guide), encoding="utf-8")
