# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention for JAX, as a custom call of XLA.

Works under ``jax.jit``, ``jax.grad``, ``jax.vmap``, ``jax.checkpoint`` and ``jax.shard_map``, and with
ahead-of-time compilation, on the platforms ``rocm`` and, on the software device, ``cpu``.

Importing this module registers the custom calls ``pyfa_rocm_fmha_fwd``, ``pyfa_rocm_fmha_bwd``,
``pyfa_rocm_fmha_decode``, ``pyfa_rocm_fmha_kv_append`` and ``pyfa_rocm_fmha_merge``, which a stored
executable, or a function from ``jax.export``, needs as well. Exporting has to allow those that it has::

    calls = ("pyfa_rocm_fmha_fwd", "pyfa_rocm_fmha_bwd")
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name) for name in calls]
    jax.export.export(jax.jit(f), disabled_checks=allowed)

The partitioner of ``jax.jit`` knows nothing about the calls, and gathers what is sharded before it:
``shard_map`` is the way to several devices. Heads of q and of k are sharded alike, so that each device has
whole groups of them; ALiBi slopes and bias with the heads. Random numbers of dropout are counted from a
device's own first batch and head: give each device a philox of its own (`philox_of_key` says how).
"""

from __future__ import annotations

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError("pyfa_rocm.jax needs jax 0.6 or newer: pip install jax") from error

from pyfa_rocm.jax import _library
from pyfa_rocm.jax._operands import philox_of_key
from pyfa_rocm.jax.attention import flash_attn_func
from pyfa_rocm.jax.kv_append import flash_attn_kv_append
from pyfa_rocm.jax.kvcache import flash_attn_with_kvcache
from pyfa_rocm.jax.merge import flash_attn_merge
from pyfa_rocm.jax.nn import dot_product_attention
from pyfa_rocm.jax.varlen import flash_attn_varlen_func

__all__ = [
    "dot_product_attention",
    "flash_attn_func",
    "flash_attn_kv_append",
    "flash_attn_merge",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "philox_of_key",
]

_library.register()
