# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments of a call that are mostly absent, or differ from call to call: arrays and numbers beside q, k, v.

Bias, ALiBi slopes, sequence lengths, the random state of dropout, and the scales of 8-bit floats.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from pyfa_rocm._call.numbers import to_float
from pyfa_rocm._call.params import FwdParams, c_layout
from pyfa_rocm._runtime.tensor import Tensor, as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["OptionalArguments"]

_DESCALES = ("q_descale", "k_descale", "v_descale")
_NO_DESCALES = (None, None, None)
_MOST_UINT64 = 2**64 - 1


@functools.cache
def _word(field: str) -> int:
    """Where a field of the C struct is, in units of its size."""
    return c_layout().offsets[field] // (4 if field in _DESCALES else 8)


class OptionalArguments:
    """Optional arguments of one call, by their names of the public functions.

    Attributes
    ----------
    key : tuple
        What a plan depends on: a layout for each array, which numbers there are.
    words, floats : list of (int, number)
        What goes into the C struct anew in each call: index of the 64-bit word, or of the float, and value.
    arrays : dict
        The arrays: DeviceArray or Tensor by name.
    """

    __slots__ = ("arrays", "floats", "key", "words")

    def __init__(
        self, bias: Any, alibi_slopes: Any, dropout_p: float, philox: Any,
        descales: tuple[float | None, float | None, float | None], handle: int,
    ) -> None:  # fmt: skip
        self.key: tuple[Any, ...] = ()
        self.words: list[tuple[int, int]] = []
        self.floats: list[tuple[int, float]] = []
        self.arrays: dict[str, DeviceArray | Tensor] = {}
        self.add("bias", bias, handle, "bias.data")
        self.add("alibi_slopes", alibi_slopes, handle, "alibi_slopes")
        if dropout_p:
            self._add_philox(philox, handle)
        if descales != _NO_DESCALES:
            self._add_descales(descales)

    def add(self, name: str, array: Any, handle: int, field: str) -> None:
        """Take an array, whose address goes to this field; None: there is none."""
        if array is None:
            self.key += (None,)
            return
        tensor = array if type(array) is DeviceArray else as_tensor(array, name, handle)
        self.arrays[name] = tensor
        self.key += (tensor.layout,)
        self.words.append((_word(field), tensor.data))

    def _add_philox(self, philox: Any, handle: int) -> None:
        """Take the random state of dropout: two integers, or an array of two."""
        if philox is None:
            raise InvalidArgumentError(
                "philox: got None, expected (seed, offset), or a device array of these two as uint64, "
                "because dropout_p is above 0: no random state is kept here"
            )
        if isinstance(philox, Tensor) or not isinstance(philox, (tuple, list)):
            self.add("philox", philox, handle, "philox_seed_offset")
            return
        try:
            seed, offset = (_uint64(x) for x in philox)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"philox: got {philox!r}, expected (seed, offset) of two integers from 0 to 2**64 - 1"
            ) from error
        self.key += ("values",)
        self.words += ((_word("philox_seed"), seed), (_word("philox_offset"), offset))

    def _add_descales(self, descales: tuple[float | None, float | None, float | None]) -> None:
        for name, descale in zip(_DESCALES, descales, strict=True):
            if descale is None:
                continue
            value = to_float(name, descale)
            if not 0 < value < math.inf:
                raise InvalidArgumentError(f"{name}: got {value}, expected a finite number above 0")
            self.key += (name,)
            self.floats.append((_word(name), value))

    def fields(self, params: FwdParams) -> dict[str, Any]:
        """Return the fields of FwdParams with the addresses and numbers of this call."""
        result: dict[str, Any] = {}
        words, floats = dict(self.words), dict(self.floats)
        for name in ("alibi_slopes", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"):
            result[name] = words.get(_word(name), 0)
        for name in ("philox_seed", "philox_offset", "philox_seed_offset"):
            result[name] = words.get(_word(name), 0)
        for name in _DESCALES:
            result[name] = floats.get(_word(name), 0.0)
        if params.bias is not None:
            result["bias"] = params.bias._replace(data=words[_word("bias.data")])
        return result


def _uint64(value: Any) -> int:
    number = int(value)
    if number != value or not 0 <= number <= _MOST_UINT64:
        raise ValueError(value)
    return number
