# SPDX-License-Identifier: MIT OR Apache-2.0
"""C structs filled field by field from objects with fields of the same names."""

from __future__ import annotations

import operator
from typing import Any

from pyfa_rocm._call.numbers import NOT_OF_C
from pyfa_rocm._call.params import DTYPES
from pyfa_rocm._runtime import library
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["pointer", "require_class", "set_dtype", "set_fields", "struct_of"]


def struct_of(name: str, params: Any, fields: tuple[str, ...]) -> Any:
    """Return a new C struct, with struct_size and these fields of an object.

    A field is a number, an address for a pointer, or a tuple for a struct; None leaves zeros.

    Raises
    ------
    InvalidArgumentError
        A value is none that the C field can hold.
    """
    ffi, _ = library.load()
    c = ffi.new(f"{name} *")
    c.struct_size = ffi.sizeof(name)
    set_fields(c, name, params, fields)
    return c


def set_fields(c: Any, name: str, params: Any, fields: tuple[str, ...], owner: str = "") -> None:
    """Fill these fields of a C struct of this type, as struct_of; `owner` begins their names in errors."""
    ffi, _ = library.load()
    types = dict(ffi.typeof(name).fields)
    for field in fields:
        value = getattr(params, field)
        try:
            if value is not None:
                _set(ffi, c, field, types[field].type, value)
        except NOT_OF_C as error:
            raise InvalidArgumentError(
                f"{owner}{field}: got {value!r}, expected a value of the C field ({error})"
            ) from error


def _set(ffi: Any, c: Any, field: str, ctype: Any, value: Any) -> None:
    if ctype.kind == "struct":
        inner = getattr(c, field)
        for name, member in ctype.fields:
            _set(ffi, inner, name, member.type, getattr(value, name))
    elif ctype.kind == "pointer":
        setattr(c, field, pointer(ffi, value))
    else:
        setattr(c, field, int(value) if isinstance(value, bool) else value)


def pointer(ffi: Any, address: Any) -> Any:
    """Return an address as a C pointer; cffi would cut a larger number, or one below 0, to 64 bits."""
    number = operator.index(address)
    if not 0 <= number < 1 << 64:
        raise OverflowError(f"{number} is no address")
    return ffi.cast("void *", number)


def require_class(name: str, value: Any, expected: type) -> None:
    """Raise InvalidArgumentError unless an argument is of the class that it must be."""
    if not isinstance(value, expected):
        raise InvalidArgumentError(f"{name}: got {type(value).__name__}, expected {expected.__name__}")


def set_dtype(c: Any, field: str, dtype: str | None) -> None:
    """Set a C field to the constant of a type's name; None leaves 0, the default."""
    if dtype is None:
        return
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InvalidArgumentError(f"{field}: got {dtype!r}, expected one of {', '.join(DTYPES)}")
    _, lib = library.load()
    setattr(c, field, getattr(lib, DTYPES[dtype]))
