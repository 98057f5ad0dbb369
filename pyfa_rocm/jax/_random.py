# SPDX-License-Identifier: MIT OR Apache-2.0
"""The random state of dropout out of JAX's keys."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["philox_of_key"]


def philox_of_key(key: Any) -> Any:
    """Make the `philox` that the attention functions take for dropout, out of a JAX key.

    The same key gives the same: split it as ever, one for each call, and fold in the index of the device
    where heads or batches are sharded, since each device counts its own from 0.

    Parameters
    ----------
    key : array
        Of ``jax.random.key`` or ``jax.random.PRNGKey``, of any implementation.

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
