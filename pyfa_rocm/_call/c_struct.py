# SPDX-License-Identifier: MIT OR Apache-2.0
"""``fmha_fwd_params`` as the installed header has it, filled from FwdParams field by field, by name."""

from __future__ import annotations

import functools
import struct
from dataclasses import fields
from typing import Any

from pyfa_rocm._call.numbers import NOT_OF_C
from pyfa_rocm._call.params import DTYPES, MASKS, FwdParams
from pyfa_rocm._runtime import library
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["CLayout", "c_layout", "fields_of", "fill", "new", "to_c"]

_STRUCT_NAME = "fmha_fwd_params"
# The struct module's code of a field, by its C type; pointers are "Q".
_CODES = {"float": "f", "int32_t": "i", "int64_t": "q", "uint32_t": "I", "uint64_t": "Q"}
# Fields that FwdParams gives as names of constants.
_NAMED = {"dtype": DTYPES, "o_dtype": DTYPES, "mask": MASKS}
_DEFAULTS = {field.name: field.default for field in fields(FwdParams)}


def _walk(ctype: Any, prefix: str = "", base: int = 0) -> list[tuple[str, int, str]]:
    """List the plain fields of a C struct: dotted name, offset, and code of the struct module."""
    found = []
    for name, field in ctype.fields:
        if field.type.kind == "struct":
            found += _walk(field.type, f"{prefix}{name}.", base + field.offset)
        else:
            code = "Q" if field.type.kind == "pointer" else _CODES[field.type.cname]
            found.append((prefix + name, base + field.offset, code))
    return found


def fields_of(struct_name: str) -> list[tuple[str, int, str]]:
    """List the plain fields of a struct of the installed header, as `_walk`."""
    return _walk(library.load()[0].typeof(struct_name))


class CLayout:
    """Layout of ``fmha_fwd_params`` as the installed header has it, and the constants it is filled with.

    Attributes
    ----------
    size : int
        Bytes of the struct.
    offsets : dict
        Bytes from the start to each plain field, by dotted name ("q.data").
    codes : dict
        The struct module's codes of each field of the struct, by its name ("q": "=Qqqq").
    constants : dict
        By field, the values of the C constants behind the names that FwdParams has for it.
    values, pack_into, new, buffer : callable
        Return the values of all fields of FwdParams; pack them; make a struct; return its memory.
    """

    def __init__(self) -> None:
        self.ffi, lib = library.load()
        struct_type = self.ffi.typeof(_STRUCT_NAME)
        self.size = int(self.ffi.sizeof(_STRUCT_NAME))
        plain = _walk(struct_type)
        self.offsets = {name: offset for name, offset, _ in plain}
        self.codes: dict[str, str] = {}
        for dotted, _, code in plain:
            name = dotted.partition(".")[0]
            self.codes[name] = self.codes.get(name, "=") + code
        self.constants: dict[str, dict[str | None, int]] = {
            field: {name: int(getattr(lib, constant)) for name, constant in names.items()}
            for field, names in _NAMED.items()
        }
        self.constants["o_dtype"][None] = 0
        # One expression for all values: the raw functions fill a struct in each call.
        values = ", ".join(_value(name, field) for name, field in struct_type.fields)
        known = {"struct_size": self.size, "reserved": 0}
        self.values = eval(f"lambda p: ({values})", self.constants | known)
        code, end = "=", 0
        for _, offset, item in plain:
            code += "x" * (offset - end) + item
            end = offset + struct.calcsize("=" + item)
        self.pack_into = struct.Struct(code + "x" * (self.size - end)).pack_into
        self.buffer = self.ffi.buffer
        self.new = functools.partial(self.ffi.new, self.ffi.typeof(_STRUCT_NAME + " *"))


def _value(name: str, field: Any) -> str:
    """Return the expression for the values of a field of the struct: FwdParams has the same names."""
    if name in ("struct_size", "reserved"):
        return name
    if name in _NAMED:
        return f"{name}[p.{name}]"
    if field.type.kind != "struct":
        return f"p.{name}"
    members = [f"p.{name}.{member}" for member, _ in field.type.fields]
    if _DEFAULTS[name] is not None:
        return ", ".join(members)
    return f"*({(0,) * len(members)} if p.{name} is None else ({', '.join(members)}))"


@functools.cache
def c_layout() -> CLayout:
    """Return the layout, read from the header once."""
    return CLayout()


def new() -> tuple[Any, memoryview]:
    """Return a zeroed ``fmha_fwd_params *`` and its bytes."""
    layout = c_layout()
    c = layout.new()
    return c, memoryview(layout.buffer(c))


def fill(view: Any, p: FwdParams) -> None:
    """Write parameters to the bytes of an ``fmha_fwd_params``."""
    _fill(c_layout(), view, p)


def _fill(layout: CLayout, view: Any, p: FwdParams) -> None:
    try:
        layout.pack_into(view, 0, *layout.values(p))
    except (*NOT_OF_C, struct.error) as error:
        raise _bad_field(p) from error


def to_c(p: FwdParams) -> Any:
    """Return parameters as a new ``fmha_fwd_params *``."""
    layout = c_layout()
    c = layout.new()
    _fill(layout, layout.buffer(c), p)
    return c


def _bad_field(p: FwdParams) -> InvalidArgumentError:
    """Find the field that a C struct cannot hold, and say so."""
    if not isinstance(p, FwdParams):
        return InvalidArgumentError(f"params: got {type(p).__name__}, expected FwdParams")
    for name, names in _NAMED.items():
        value = getattr(p, name)
        if (not isinstance(value, str) or value not in names) and not (name == "o_dtype" and value is None):
            return InvalidArgumentError(f"{name}: got {value!r}, expected one of {', '.join(names)}")
    for field in fields(p):
        value = getattr(p, field.name)
        if field.name in _NAMED or value is None:
            continue
        try:
            items = value if isinstance(value, tuple) else (value,)
            struct.pack(c_layout().codes[field.name], *items)
        except (*NOT_OF_C, struct.error) as error:
            return InvalidArgumentError(
                f"{field.name}: got {value!r}, expected a value of the C field ({error})"
            )
    return InvalidArgumentError(f"params: got {p!r}, expected values of the C struct")
