# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments of the public functions, checked while JAX traces; and dropout's random state, of JAX's keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pyfa_rocm._call.call import Call, Checked
from pyfa_rocm._call.checks import check, output_layout, plain_fields
from pyfa_rocm._call.keywords import options_of
from pyfa_rocm._call.lengths import LENGTHS, require_packed
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.optional import ADDRESS_FIELDS, DESCALES, OptionalArguments, require_chance
from pyfa_rocm._call.params import Options
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.jax._traced import Result, TracedCall

__all__ = ["Arrays", "Operands", "philox_of_key", "require_static", "static_options"]

# JAX says where an array is; to the checks here they are all on one device.
_DEVICE = 0
_ARRAYS = ("alibi_slopes", "bias", "sinks", "philox", *DESCALES)


def static_options(function: str, ours: Mapping[str, Any], *, deterministic: bool, **own: Any) -> Options:
    """Return the options, which must be known while tracing, but for arrays and scales.

    So must `deterministic`, which is no option of the forward pass.
    """
    given = {"deterministic": deterministic} | own | dict(ours)
    require_static({name: value for name, value in given.items() if name not in _ARRAYS})
    options = options_of(function, ours, **own)
    if options.return_attn_probs:
        raise UnsupportedError(
            "return_attn_probs: got True, expected False: pyfa_rocm.flash_attn_func has it, and here there "
            "is return_lse"
        )
    return options


def require_static(values: Mapping[str, Any]) -> None:
    """Raise unless arguments are known while tracing."""
    for name, value in values.items():
        if isinstance(value, jax.core.Tracer):
            raise InvalidArgumentError(
                f"{name}: got a traced value, expected a Python value: it decides which kernel runs. Under "
                "jax.jit make it a static argument"
            )


class Arrays:
    """Arrays in order of their names.

    Attributes
    ----------
    arrays : dict
        JAX arrays or tracers by name.
    layouts : dict
        Their layouts by name.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.layouts: dict[str, Layout] = {}

    def add(self, name: str, array: Any) -> None:
        """Take an array; None: there is none."""
        if array is None:
            return
        if not isinstance(array, (jax.Array, np.ndarray)):
            raise TypeError(f"{name}: got {type(array).__name__}, expected a JAX or NumPy array")
        if not all(isinstance(n, int) for n in array.shape):
            raise InvalidArgumentError(
                f"{name}: got shape {array.shape}, expected sizes that are known while tracing"
            )
        # Checked before JAX sees it: JAX would silently make 32 bits of 64.
        self.layouts[name] = contiguous(tuple(array.shape), str(array.dtype), _DEVICE)
        self.arrays[name] = array

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Their shapes by name."""
        return {name: layout.shape for name, layout in self.layouts.items()}

    @property
    def known_lengths(self) -> dict[str, list[int]]:
        """The numbers of those of a call's lengths that are NumPy's, by name."""
        arrays = {name: self.arrays.get(name) for name in LENGTHS}
        return {name: x.tolist() for name, x in arrays.items() if isinstance(x, np.ndarray)}

    def values(self) -> list[Any]:
        """Return the arrays as JAX's."""
        return [jnp.asarray(array) for array in self.arrays.values()]


class Operands(Arrays):
    """The arrays of a call, in order of their names, and what is checked of it.

    Parameters
    ----------
    options : Options
        The call's options; its arrays are taken from here.
    **arrays
        q, k, v, and arrays of lengths.
    """

    def __init__(self, options: Options, **arrays: Any) -> None:
        super().__init__()
        self.options = options
        q, k, v = (arrays.pop(name) for name in "qkv")
        optional = {name: getattr(options, name) for name in ("bias", "alibi_slopes", "sinks")} | arrays
        for name, array in ({"q": q, "k": k, "v": v} | optional).items():
            self.add(name, array)
        self._numbers: dict[str, Any] = {}
        numbers, philox = OptionalArguments(0), options.philox
        if options.dropout_p and isinstance(philox, (tuple, list)):
            numbers.add_philox(philox, options.dropout_p)
            seed, offset = philox
            self._numbers |= {"philox_seed": int(seed), "philox_offset": int(offset)}
        elif options.dropout_p:
            require_chance(options.dropout_p)
            self._add_philox(philox)
        for name in DESCALES:
            numbers.add_descale(name, getattr(options, name))
            self._numbers[name] = float(getattr(options, name) or 0)

    def _add_philox(self, philox: Any) -> None:
        if philox is None:
            raise InvalidArgumentError(
                "philox: got None, expected (seed, offset), or an array of uint32 (4,) as philox_of_key "
                "makes it, because dropout_p is above 0: no random state is kept here"
            )
        if isinstance(philox, np.ndarray) and philox.dtype.name in ("uint64", "int64"):
            philox = np.ascontiguousarray(philox).view(np.uint32)
        self.add("philox", philox)
        layout = self.layouts["philox"]
        expected = {"uint32": (4,), "uint64": (2,), "int64": (2,)}
        if layout.shape != expected.get(layout.dtype):
            raise InvalidArgumentError(
                f"philox: got {layout.dtype} {layout.shape}, expected uint32 (4,): seed and offset of 64 "
                "bits each, the low half first (philox_of_key makes it), or uint64 (2,)"
            )

    def check(self, max_seqlen_q: Any = None, max_seqlen_k: Any = None, *, packed: bool = False) -> Checked:
        """Check the call; lengths are those of packed sequences."""
        if packed:
            max_seqlen_q = to_integer("max_seqlen_q", max_seqlen_q)
            max_seqlen_k = to_integer("max_seqlen_k", max_seqlen_k)
        # A philox of JAX's has been checked: it is of other types.
        arrays = {n: x for n, x in self.layouts.items() if n in ADDRESS_FIELDS and n != "philox"}
        q, k, v = (self.layouts[name] for name in "qkv")
        checked = check(
            Call(
                q=q,
                k=k,
                v=v,
                options=self.options,
                arrays=arrays,
                max_seqlen_q=max_seqlen_q,
                max_seqlen_k=max_seqlen_k,
            )
        )
        if packed:
            totals = {"q": q.shape[0], "k": k.shape[0]}
            longest = {"q": max_seqlen_q, "k": max_seqlen_k}
            require_packed(self.known_lengths, self.layouts, totals, longest)
        return checked

    def traced(self, checked: Checked, *, deterministic: bool = False) -> TracedCall:
        """Return the call as JAX traces it."""
        o = output_layout(None, checked.o, self.options.out_dtype, self.layouts["q"])
        fields = plain_fields(checked) | self._numbers | {"o_dtype": o.dtype}
        for name in ("bias", "alibi_stride_batch"):  # of arrays, whose strides vmap changes
            fields.pop(name, None)
        results = (Result("o", o.shape, o.dtype),)
        call = TracedCall(tuple(self.arrays), tuple(fields.items()), results, bool(deterministic))
        return call.with_lse() if self.options.wants_lse else call


def philox_of_key(key: Any) -> Any:
    """Make the `philox` that the attention functions take for dropout, out of a JAX key.

    The same key gives the same state, so split it for each call as usual. If heads or batches are sharded,
    also fold in the index of the device, since each device counts its own from 0.

    Parameters
    ----------
    key : array
        From ``jax.random.key`` or ``jax.random.PRNGKey``, with any implementation.

    Returns
    -------
    array, uint32 (4)
        Seed and offset of 64 bits each, the low half first; the offset is 0.

    Examples
    --------
    >>> import jax
    >>> from pyfa_rocm.jax import philox_of_key
    >>> key = jax.random.fold_in(jax.random.key(0), 7)  # inside shard_map: jax.lax.axis_index("heads")
    >>> philox_of_key(key).shape
    (4,)
    """
    seed = jax.random.bits(key, (2,), jnp.uint32)
    return jnp.concatenate([seed, jnp.zeros_like(seed)])
