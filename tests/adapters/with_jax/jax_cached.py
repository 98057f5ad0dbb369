# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cases of `cached_cases` and of appends, of JAX arrays. To be imported before jax, as jax_cases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from adapters.with_jax import jax_cases  # noqa: F401  # isort: skip
import jax.numpy as jnp
import numpy as np
from adapters import cached_cases
from kv_append import Appending

from pyfa_rocm.jax import flash_attn_kv_append


@dataclass(frozen=True)
class Cached(cached_cases.Cached):
    """Sequences over a cache, in JAX arrays."""

    def arguments(self) -> dict[str, Any]:
        """The arrays of a call, as JAX's."""
        return {name: jnp.asarray(x) for name, x in self.hosts().items()}


def new_tokens(case: Cached, seqlen: int) -> dict[str, Any]:
    """k and v of `seqlen` tokens for each sequence of a case."""
    shape = (case.batch, seqlen, case.nhead_k)
    return {
        "k": jnp.asarray(case.normal(*shape, case.hdim, seed=7)),
        "v": jnp.asarray(case.normal(*shape, case.hdim_v, seed=8)),
    }


def rotary(case: Cached) -> dict[str, Any]:
    """Tables that turn 32 elements of a head, for 200 positions."""
    angles = np.arange(200)[:, None] * 10.0 ** -np.arange(0, 4, 0.25)
    dtype = jnp.dtype(case.dtype)
    return {
        "rotary_cos": jnp.asarray(np.cos(angles), dtype),
        "rotary_sin": jnp.asarray(np.sin(angles), dtype),
    }


class InJax(Appending):
    """An append of the first group of tests, by JAX's function."""

    def run_in_jax(self) -> None:
        """Append and judge the caches and q."""
        case, at = self.case, (0,) if self.case.packed else ()
        arrays: dict[str, Any] = {name: x[at] for name, x in self.values.items()} | self.hosts()
        parts = {}
        for name, (offset, _), hdim in zip(
            ("k_cache", "v_cache"), self.places, (case.hdim_q, case.hdim_v), strict=True
        ):
            shape = (self.pages, self.page_size, case.nhead_k, hdim)
            parts[name] = slice(offset, offset + math.prod(shape))
            arrays[name] = self.before[parts[name]].reshape(shape)
        results = flash_attn_kv_append(
            **{name: jnp.asarray(x) for name, x in arrays.items()},
            rotary_interleaved=case.interleaved,
            scale_per_page=case.scales == "page",
        )
        now = self.before.copy()
        for part, result in zip(parts.values(), results, strict=False):
            now[part] = np.asarray(result).reshape(-1)
        self.judge_cache(now)
        if "q" in case.parts:
            self.judge_q(np.asarray(results[2])[None] if case.packed else np.asarray(results[2]))
