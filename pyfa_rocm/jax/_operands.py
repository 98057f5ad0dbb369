# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments of the public functions, checked while JAX traces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pyfa_rocm._call.arguments import (
    Options,
    array_fields,
    option_fields,
    require_inputs,
    require_shape,
)
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._runtime.tensor import Layout, Tensor, contiguous
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Operands", "options_of"]

# JAX says where an array is; to the checks here they are all on one device.
_DEVICE = 0
_DESCALES = ("q_descale", "k_descale", "v_descale")


def options_of(**options: Any) -> Options:
    """Return the options, which must be known while tracing."""
    for name, value in options.items():
        if isinstance(value, jax.core.Tracer):
            raise InvalidArgumentError(
                f"{name}: got a traced value, expected a Python value: it decides which kernel runs. Under "
                "jax.jit make it a static argument"
            )
    if options["return_attn_probs"]:
        raise UnsupportedError(
            "return_attn_probs: got True, expected False: pyfa_rocm.flash_attn_func has it, and here there "
            "is return_lse"
        )
    return Options(**options)


class Operands:
    """The arrays of a call, in order of their names.

    Attributes
    ----------
    arrays : dict
        JAX arrays or tracers by name.
    layouts : dict
        Their layouts by name.
    """

    def __init__(self, dropout_p: Any, philox: Any, descales: tuple[Any, Any, Any], **arrays: Any) -> None:
        self.arrays: dict[str, Any] = {}
        self.layouts: dict[str, Layout] = {}
        for name, array in arrays.items():
            if array is not None:
                self._add(name, array)
        pair = philox if isinstance(philox, (tuple, list)) else None
        if dropout_p and pair is None:
            self._add_philox(philox)
        # It checks the numbers.
        self._optional = OptionalArguments(None, None, dropout_p if pair else 0.0, pair, descales, 0)
        seed, offset = pair if dropout_p and pair else (0, 0)
        self._numbers: dict[str, Any] = {"philox_seed": int(seed), "philox_offset": int(offset)}
        self._numbers |= {name: float(x or 0) for name, x in zip(_DESCALES, descales, strict=True)}
        for name in ("bias", "alibi_slopes"):
            if name in self.layouts:
                self._optional.arrays[name] = Tensor(0, self.layouts[name], True, None)

    def _add(self, name: str, array: Any) -> None:
        if not isinstance(array, (jax.Array, np.ndarray)):
            raise TypeError(f"{name}: got {type(array).__name__}, expected a JAX or NumPy array")
        if not all(isinstance(n, int) for n in array.shape):
            raise InvalidArgumentError(
                f"{name}: got shape {array.shape}, expected sizes that are known while tracing"
            )
        # Before JAX sees it, which would make 32 bits of 64 without a word.
        self.layouts[name] = contiguous(tuple(array.shape), str(array.dtype), _DEVICE)
        self.arrays[name] = array

    def _add_philox(self, philox: Any) -> None:
        if philox is None:
            raise InvalidArgumentError(
                "philox: got None, expected (seed, offset), or an array of uint32 (4,) as philox_of_key "
                "makes it, because dropout_p is above 0: no random state is kept here"
            )
        if isinstance(philox, np.ndarray) and philox.dtype.name in ("uint64", "int64"):
            philox = np.ascontiguousarray(philox).view(np.uint32)
        self._add("philox", philox)
        layout = self.layouts["philox"]
        expected = {"uint32": (4,), "uint64": (2,), "int64": (2,)}
        if layout.shape != expected.get(layout.dtype):
            raise InvalidArgumentError(
                f"philox: got {layout.dtype} {layout.shape}, expected uint32 (4,): seed and offset of 64 "
                "bits each, the low half first (philox_of_key makes it), or uint64 (2,)"
            )

    def require_inputs(self, dims: str) -> tuple[Layout, Layout, Layout]:
        """Return the layouts of q, k, v, after checking all that does not depend on packing."""
        q, k, v = (self.layouts[name] for name in "qkv")
        require_inputs(q, k, v, dims)
        require_shape("k", k.shape, (*q.shape[:-3], *k.shape[-3:-1], q.shape[-1]), "q")
        require_shape("v", v.shape, (*k.shape[:-1], v.shape[-1]), "k")
        return q, k, v

    def fields(self, options: Options, batch: int, scores: tuple[int, ...]) -> dict[str, Any]:
        """Check numbers, bias and slopes; return the numbers among the fields of FwdParams.

        `scores` is the shape that a bias has, nhead_q being the third from last.
        """
        q, k, v = (self.layouts[name] for name in "qkv")
        fields = option_fields(options, q, self._optional)
        array_fields(self._optional, batch, scores, q)
        return fields | self._numbers | {
            "dtype": q.dtype, "batch": batch, "nhead_q": q.shape[-2], "nhead_k": k.shape[-2],
            "hdim_q": q.shape[-1], "hdim_v": v.shape[-1],
        }  # fmt: skip

    def values(self) -> list[Any]:
        """Return the arrays as JAX's."""
        return [jnp.asarray(array) for array in self.arrays.values()]
