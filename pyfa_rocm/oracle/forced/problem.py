# SPDX-License-Identifier: MIT OR Apache-2.0
"""A random problem of attention for a kernel's row: what the kernel can do, and seldom more."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyfa_rocm.oracle.forced.outcome import DTYPE_OF, Row, Sizes, choose, hdim_of
from pyfa_rocm.oracle.problem import Problem

__all__ = ["backward_problem", "forward_problem", "words"]

_FORWARD_MASKS = ("causal", "causal", "window", "causal_top_left", "window_top_left", "none")
_BACKWARD_MASKS = ("none", "causal", "window", "causal_top_left")
_SLOPES = (0.5, 0.25, 0.125, 0.0625)
_P_DROP = 0.3


def words(p: Problem) -> str:
    """Say a drawn problem in a line."""
    hdims = "/".join(map(str, dict.fromkeys((p.hdim, p.v_shape[3]))))
    pairs = ", ".join(f"{m}x{n}" for m, n in zip(p.lengths, p.lengths_k, strict=True))
    how = f"packed {pairs}" if p.lengths else f"batch {p.batch} {p.seqlen}x{p.k_shape[1]}"
    mask = f"window {p.window_size}" if p.window_size else "causal" if p.causal else "none"
    named = {"top left": p.top_left, "bias": p.bias, "alibi": p.alibi_slopes,
             f"softcap {p.softcap:g}": p.softcap, f"dropout {p.dropout_p:g}": p.dropout_p}  # fmt: skip
    more = [name for name, has in named.items() if has]
    return ", ".join([how, f"heads {p.nhead_q}/{p.nhead_k}", f"d{hdims}", f"mask {mask}", *more])


def _lengths(
    rng: np.random.Generator, packed: bool, sizes: Sizes, pad: bool, tile: int, square: bool
) -> dict[str, Any]:
    """Return lengths and a batch: any, or for a kernel without padding whole tiles of keys."""

    def keys() -> int:
        if pad:
            return int(rng.integers(1, sizes.longest + 1))
        return int(rng.integers(1, max(2, sizes.longest // tile + 1))) * tile

    def pair() -> tuple[int, int]:
        n = keys()
        return (n if square else int(rng.integers(1, sizes.longest + 1))), n

    if not packed:
        return dict(zip(("seqlen", "seqlen_k"), pair(), strict=True), batch=int(rng.integers(1, 3)))
    q, k = zip(*(pair() for _ in range(3)), strict=True)
    return {"batch": 1, "seqlen": sum(q), "seqlen_k": sum(k), "lengths": q, "lengths_k": k}


def _heads(rng: np.random.Generator, sizes: Sizes, equal: bool = False) -> dict[str, Any]:
    nhead_k = int(rng.integers(1, max(2, sizes.most_heads // 2 + 1)))
    return {"nhead_k": nhead_k, "nhead_q": nhead_k * (1 if equal else int(rng.integers(1, 3)))}


def _mask(rng: np.random.Generator, mask: str, sizes: Sizes) -> dict[str, Any]:
    sides = int(rng.integers(0, sizes.longest)), int(rng.integers(0, sizes.longest))
    return {
        "causal": mask.startswith("causal"),
        "window_size": sides if mask.startswith("window") else (),
        "top_left": mask.endswith("top_left"),
    }


def _slopes(nhead: int) -> tuple[float, ...]:
    return tuple(_SLOPES[h % len(_SLOPES)] for h in range(nhead))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def forward_problem(row: Row, rng: np.random.Generator, sizes: Sizes) -> Problem:
    """Draw a problem for a forward kernel. A hand-written kernel wants a plain causal mask, or none."""
    prebuilt = row["origin"] == "aiter"
    mask = choose(rng, _FORWARD_MASKS) if row["mask"] else "none"
    if prebuilt and row["mask"]:
        mask = "causal"
    dtype = DTYPE_OF[row["dtype"]]
    same = row["hdim_q"] == row["hdim_v"]
    hdim = hdim_of(rng, row["hdim_q"], row["hdim_step"])
    hdim_v = hdim if same and rng.random() < 0.5 else hdim_of(rng, row["hdim_v"], row["hdim_step"])
    heads = _heads(rng, sizes)
    if prebuilt and heads["nhead_q"] == 1:
        heads = {"nhead_k": 1, "nhead_q": 2}
    return Problem(
        dtype=dtype,
        o_dtype=DTYPE_OF[row["o_dtype"]],
        hdim=hdim,
        hdim_v=hdim_v,
        bias=row["bias"] == "elementwise",
        alibi_slopes=_slopes(heads["nhead_q"]) if row["bias"] == "alibi" else (),
        softcap=float(choose(rng, (2.0, 20.0))) if row["softcap"] else 0.0,
        dropout_p=_P_DROP if row["dropout"] else 0.0,
        descale=(0.5, 1.5, 2.0) if dtype.startswith("float8") else (),
        seed=_seed(rng),
        **heads,
        **_lengths(rng, row["group"], sizes, row["pad"], row["tile_n"], prebuilt),
        **_mask(rng, mask, sizes),
    )


def backward_problem(row: Row, rng: np.random.Generator, sizes: Sizes) -> Problem:
    """Draw a problem for a backward kernel."""
    masks = {"any": _BACKWARD_MASKS, "none": ("none",), "top_left": ("causal_top_left",)}
    packed = {"any": rng.random() < 0.5, "batch": False, "group": True}[row["layout"]]
    hdim = hdim_of(rng, row["hdim_q"], row["hdim_step"], row["hdim_least"])
    equal = row["equal_hdims"] or (row["hdim_q"] == row["hdim_v"] and rng.random() < 0.5)
    hdim_v = min(hdim, row["hdim_v"]) if equal else hdim_of(rng, row["hdim_v"], row["hdim_step"])

    def has(feature: str) -> bool:
        return bool(row[feature]) and not (row["optional"] and rng.random() < 0.5)

    bias = has("bias")
    heads = _heads(rng, sizes, row["equal_hdims"])
    return Problem(
        dtype=DTYPE_OF[row["dtype"]],
        hdim=hdim,
        hdim_v=hdim_v,
        bias=bias,
        alibi_slopes=_slopes(heads["nhead_q"]) if has("alibi") and not bias else (),
        softcap=2.0 if has("softcap") else 0.0,
        dropout_p=_P_DROP if has("dropout") else 0.0,
        seed=_seed(rng),
        **heads,
        **_lengths(rng, packed, sizes, True, row["tile_n"], row["mask"] == "top_left"),
        **_mask(rng, choose(rng, masks[row["mask"]]), sizes),
    )
