# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments of a call that are mostly absent, or differ from call to call: arrays and numbers beside q, k, v.

Bias, ALiBi slopes, sinks, sequence lengths, the random state of dropout, and the scales of 8-bit floats.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from pyfa_rocm._call.c_struct import c_layout
from pyfa_rocm._call.numbers import to_float
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm._runtime.tensor import Layout, Tensor, as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["ADDRESS_FIELDS", "DESCALES", "OptionalArguments", "require_chance"]

# The field of the C struct for the address of an array, by the array's name in the public functions.
ADDRESS_FIELDS = {
    "bias": "bias.data",
    "alibi_slopes": "alibi_slopes",
    "sinks": "sinks",
    "philox": "philox_seed_offset",
    "cu_seqlens_q": "cu_seqlens_q",
    "cu_seqlens_k": "cu_seqlens_k",
    "seqused_q": "seqused_q",
    "seqused_k": "seqused_k",
}
DESCALES = ("q_descale", "k_descale", "v_descale")
_MOST_UINT64 = 2**64 - 1


@functools.cache
def _index(field: str) -> int:
    """Return where a field of the C struct is, in units of its size."""
    return c_layout().offsets[field] // (4 if field in DESCALES else 8)


def require_chance(dropout_p: float) -> None:
    """Raise unless it is a chance that leaves something."""
    if not 0 <= dropout_p < 1:
        raise InvalidArgumentError(f"dropout_p: got {dropout_p}, expected from 0 to below 1")


class OptionalArguments:
    """Optional arguments of one call, by their names of the public functions.

    Parameters
    ----------
    handle : int
        The hipStream_t of the call, on which arrays are made ready.

    Attributes
    ----------
    key : tuple
        A plan depends on these: the arguments that are given, and the layouts of arrays.
    words, floats : list of (int, number)
        Numbers that each call writes to the C struct: index of the 64-bit word, or of the float, and value.
    arrays : dict
        The arrays: DeviceArray or Tensor by name.
    """

    __slots__ = ("arrays", "floats", "handle", "key", "words")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.key: tuple[Any, ...] = ()
        self.words: list[tuple[int, int]] = []
        self.floats: list[tuple[int, float]] = []
        self.arrays: dict[str, DeviceArray | Tensor] = {}

    def add(self, name: str, array: Any) -> None:
        """Take the array of this argument; None: there is none."""
        if array is None:
            return
        if type(array) is DeviceArray:
            tensor: DeviceArray | Tensor = array
            array.mark_used(self.handle)
        else:
            tensor = as_tensor(array, name, self.handle)
        self.arrays[name] = tensor
        self.key += (name, tensor.layout)
        if name == "cu_seqlens_k" and self._is_at(self.arrays.get("cu_seqlens_q"), tensor.address):
            self.key += ("one array of starts",)  # which some kernels are for: a plan's workspace is of one
        self.words.append((_index(ADDRESS_FIELDS[name]), tensor.address))

    @staticmethod
    def _is_at(array: DeviceArray | Tensor | None, address: int) -> bool:
        return array is not None and array.address == address

    def add_philox(self, philox: Any, dropout_p: float) -> None:
        """Take the random state of dropout: two integers, or an array of two."""
        if philox is None:
            require_chance(dropout_p)
            raise InvalidArgumentError(
                "philox: got None, expected (seed, offset), or a device array of these two as uint64, "
                "because dropout_p is above 0: no random state is kept here"
            )
        if isinstance(philox, Tensor) or not isinstance(philox, (tuple, list)):
            self.add("philox", philox)
            return
        try:
            seed, offset = (_uint64(x) for x in philox)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"philox: got {philox!r}, expected (seed, offset) of two integers from 0 to 2**64 - 1"
            ) from error
        self.key += ("philox values",)
        self.words += ((_index("philox_seed"), seed), (_index("philox_offset"), offset))

    def add_descale(self, name: str, descale: float | None) -> None:
        """Take the scale of an 8-bit float, one of DESCALES; None: there is none."""
        if descale is None:
            return
        value = to_float(name, descale)
        if not 0 < value < math.inf:
            raise InvalidArgumentError(f"{name}: got {value}, expected a finite number above 0")
        self.key += (name,)
        self.floats.append((_index(name), value))

    def layouts(self) -> dict[str, Layout]:
        """Return the layouts of the arrays, by name."""
        return {name: array.layout for name, array in self.arrays.items()}

    def fields(self, params: FwdParams) -> dict[str, Any]:
        """Return the fields of FwdParams with the addresses and numbers of this call."""
        words, floats = dict(self.words), dict(self.floats)
        result: dict[str, Any] = {name: floats.get(_index(name), 0.0) for name in DESCALES}
        for field in ("philox_seed", "philox_offset", *ADDRESS_FIELDS.values()):
            result[field] = words.get(_index(field), 0)
        bias = result.pop("bias.data")
        if params.bias is not None:
            result["bias"] = params.bias._replace(data=bias)
        return result


def _uint64(value: Any) -> int:
    number = int(value)
    if number != value or not 0 <= number <= _MOST_UINT64:
        raise ValueError(value)
    return number
