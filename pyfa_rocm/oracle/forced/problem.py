# SPDX-License-Identifier: MIT OR Apache-2.0
"""A random problem of attention for a kernel's row: what the kernel can do, and seldom more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyfa_rocm.oracle.forced.outcome import DTYPE_OF, Row, Sizes, choose, hdim_of

__all__ = ["Drawn", "backward_problem", "forward_problem"]

_FORWARD_MASKS = ("causal", "causal", "window", "causal_top_left", "window_top_left", "none")
_BACKWARD_MASKS = ("none", "causal", "window", "causal_top_left")
_SLOPES = (0.5, 0.25, 0.125, 0.0625)
_P_DROP = 0.3


@dataclass(frozen=True)
class Drawn:
    """A problem.

    Attributes
    ----------
    lengths : tuple of (int, int)
        Rows of queries and of keys of each sequence. Those of a batch are all alike.
    packed : bool
        True: the sequences are packed; False: they are a batch.
    mask : str
        As in FwdParams, with `window` for the windows.
    """

    dtype: str
    o_dtype: str
    lengths: tuple[tuple[int, int], ...]
    packed: bool
    nhead_q: int
    nhead_k: int
    hdim_q: int
    hdim_v: int
    mask: str = "none"
    window: tuple[int, int] = (0, 0)
    bias: bool = False
    alibi: bool = False
    softcap: float = 0.0
    p_drop: float = 0.0
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0)

    @property
    def longest(self) -> tuple[int, int]:
        """The most queries and the most keys of a sequence."""
        return max(m for m, _ in self.lengths), max(n for _, n in self.lengths)

    @property
    def same_lengths(self) -> bool:
        """Tell whether each sequence has as many queries as keys."""
        return all(m == n for m, n in self.lengths)

    @property
    def slopes(self) -> Any:
        """ALiBi's slopes of the query heads; None without."""
        return np.resize(np.array(_SLOPES, np.float32), self.nhead_q) if self.alibi else None

    def mask_arguments(self) -> dict[str, Any]:
        """Return the oracle's arguments for the mask."""
        side = {"top_left": self.mask.endswith("top_left"), "max_seqlen_k": self.longest[1]}
        if self.mask.startswith("window"):
            return side | {"window_size": self.window}
        return side | {"causal": self.mask != "none"}

    def __str__(self) -> str:
        """Say it in a line."""
        hdims = "/".join(map(str, dict.fromkeys((self.hdim_q, self.hdim_v))))
        lengths = (
            ", ".join(f"{m}x{n}" for m, n in self.lengths)
            if self.packed
            else "{}x{}".format(*self.lengths[0])
        )
        how = "packed" if self.packed else f"batch {len(self.lengths)}"
        mask = f"{self.mask} {self.window}" if self.mask.startswith("window") else self.mask
        named = {"bias": self.bias, "alibi": self.alibi, f"softcap {self.softcap:g}": self.softcap,
                 f"dropout {self.p_drop:g}": self.p_drop}  # fmt: skip
        more = [name for name, has in named.items() if has]
        words = [f"{how} {lengths}", f"heads {self.nhead_q}/{self.nhead_k}", f"d{hdims}", f"mask {mask}"]
        return ", ".join([*words, *more])


def _lengths(
    rng: np.random.Generator, packed: bool, sizes: Sizes, pad: bool, tile: int, square: bool
) -> tuple[tuple[int, int], ...]:
    """Return lengths: any, or for a kernel without padding whole tiles of keys."""

    def keys() -> int:
        if pad:
            return int(rng.integers(1, sizes.longest + 1))
        return int(rng.integers(1, max(2, sizes.longest // tile + 1))) * tile

    def pair() -> tuple[int, int]:
        n = keys()
        return (n if square else int(rng.integers(1, sizes.longest + 1))), n

    if packed:
        return tuple(pair() for _ in range(3))
    return (pair(),) * int(rng.integers(1, 3))


def _heads(rng: np.random.Generator, sizes: Sizes, equal: bool = False) -> dict[str, Any]:
    nhead_k = int(rng.integers(1, max(2, sizes.most_heads // 2 + 1)))
    return {"nhead_k": nhead_k, "nhead_q": nhead_k * (1 if equal else int(rng.integers(1, 3)))}


def _window(rng: np.random.Generator, sizes: Sizes) -> tuple[int, int]:
    return int(rng.integers(0, sizes.longest)), int(rng.integers(0, sizes.longest))


def forward_problem(row: Row, rng: np.random.Generator, sizes: Sizes) -> Drawn:
    """Draw a problem for a forward kernel. A hand-written kernel wants a plain causal mask, or none."""
    prebuilt = row["origin"] == "aiter"
    mask = choose(rng, _FORWARD_MASKS) if row["mask"] else "none"
    if prebuilt and row["mask"]:
        mask = "causal"
    dtype = DTYPE_OF[row["dtype"]]
    same = row["hdim_q"] == row["hdim_v"]
    hdim_q = hdim_of(rng, row["hdim_q"], row["hdim_step"])
    hdim_v = hdim_q if same and rng.random() < 0.5 else hdim_of(rng, row["hdim_v"], row["hdim_step"])
    heads = _heads(rng, sizes)
    if prebuilt and heads["nhead_q"] == 1:
        heads = {"nhead_k": 1, "nhead_q": 2}
    return Drawn(
        dtype=dtype,
        o_dtype=DTYPE_OF[row["o_dtype"]],
        lengths=_lengths(rng, row["group"], sizes, row["pad"], row["tile_n"], prebuilt),
        packed=row["group"],
        hdim_q=hdim_q,
        hdim_v=hdim_v,
        mask=mask,
        window=_window(rng, sizes),
        bias=row["bias"] == "elementwise",
        alibi=row["bias"] == "alibi",
        softcap=float(choose(rng, (2.0, 20.0))) if row["softcap"] else 0.0,
        p_drop=_P_DROP if row["dropout"] else 0.0,
        descale=(0.5, 1.5, 2.0) if dtype.startswith("float8") else (1.0, 1.0, 1.0),
        **heads,
    )


def backward_problem(row: Row, rng: np.random.Generator, sizes: Sizes) -> Drawn:
    """Draw a problem for a backward kernel."""
    masks = {"any": _BACKWARD_MASKS, "none": ("none",), "top_left": ("causal_top_left",)}
    packed = {"any": rng.random() < 0.5, "batch": False, "group": True}[row["layout"]]
    hdim_q = hdim_of(rng, row["hdim_q"], row["hdim_step"], row["hdim_least"])
    equal = row["equal_hdims"] or (row["hdim_q"] == row["hdim_v"] and rng.random() < 0.5)
    hdim_v = min(hdim_q, row["hdim_v"]) if equal else hdim_of(rng, row["hdim_v"], row["hdim_step"])
    dtype = DTYPE_OF[row["dtype"]]

    def has(feature: str) -> bool:
        return bool(row[feature]) and not (row["optional"] and rng.random() < 0.5)

    bias = has("bias")
    return Drawn(
        dtype=dtype,
        o_dtype=dtype,
        lengths=_lengths(rng, packed, sizes, True, row["tile_n"], row["mask"] == "top_left"),
        packed=packed,
        hdim_q=hdim_q,
        hdim_v=hdim_v,
        mask=choose(rng, masks[row["mask"]]),
        window=_window(rng, sizes),
        bias=bias,
        alibi=has("alibi") and not bias,
        softcap=2.0 if has("softcap") else 0.0,
        p_drop=_P_DROP if has("dropout") else 0.0,
        **_heads(rng, sizes, row["equal_hdims"]),
    )
