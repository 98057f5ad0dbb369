# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases."""

from __future__ import annotations

import math
from typing import Any

from cases_types import Bias, Case, Dropout, Layout, Varlen
from hypothesis import strategies as st

# Workgroup-by-key tiles (128 x 128, hdim 128) of a random case at most: some 50 ms on the software device.
MAX_TILES = 48
HALVES = ("float16", "bfloat16")
# Head dims of the kernels that are in every set, most of the time; and others, which fill a tile or a part.
HDIMS = (64, 128) * 4 + (8, 32, 40, 72, 96, 104, 136, 160, 192, 200, 248, 256)
_EDGES = (
    1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 255, 256, 257, 384, 512, 599, 600,
)  # fmt: skip
seqlens = st.integers(1, 600) | st.sampled_from(_EDGES)
layouts = st.builds(
    Layout,
    order=st.permutations((0, 1, 2)).map(tuple),
    gaps=st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 2), st.sampled_from((0, 8, 64))),
    start=st.sampled_from((8, 64, 200)),
)
# 16 bytes are 16 elements of fp8.
_layouts_fp8 = st.builds(
    Layout,
    order=st.permutations((0, 1, 2)).map(tuple),
    gaps=st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 2), st.sampled_from((0, 16, 64))),
    start=st.sampled_from((16, 64, 208)),
)
_bias_layouts = st.builds(
    Layout,
    order=st.permutations((0, 1, 2)).map(tuple),
    gaps=st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3), st.integers(0, 9)),
    start=st.sampled_from((8, 64, 72)),
)
_biases = st.builds(
    Bias,
    dims=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    layout=_bias_layouts,
    infinities=st.booleans(),
)
_words = st.integers(0, 2**64 - 1)
_dropouts = st.builds(
    Dropout,
    p=st.sampled_from((0.1, 0.2, 0.5, 0.9)) | st.floats(1 / 256, 255 / 256, width=32),
    seed=_words,
    offset=st.integers(0, 2**40) | st.just(2**64 - 1),
    on_device=st.booleans(),
    randval=st.booleans(),
)


@st.composite
def _varlens(draw: st.DrawFn, batch: int, seqlen_q: int, seqlen_k: int) -> Varlen:
    """Sequences of up to these lengths, some of them empty."""

    def lengths(most: int) -> tuple[int, ...]:
        found = [draw(st.integers(0, most) | st.sampled_from((0, 1, most))) for _ in range(batch)]
        return tuple(found) if any(found) else (1, *found[1:])  # no rows at all are a case of their own

    def slack() -> tuple[int, ...] | None:
        return tuple(draw(st.integers(0, 70)) for _ in range(batch)) if draw(st.booleans()) else None

    return Varlen(lengths(seqlen_q), lengths(seqlen_k), slack(), slack())


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    dtypes: tuple[str, ...] = HALVES,
    hdims: tuple[int, ...] = HDIMS,
    variants: tuple[str, ...] = ("none",),
    varlen: tuple[bool, ...] = (False,),
    dropout: tuple[bool, ...] = (False,),
    sinks: tuple[bool, ...] = (False,),
    max_tiles: int = MAX_TILES,
) -> Case:
    """Random cases, of a bounded number of tiles."""
    seqlen_q, seqlen_k = draw(seqlens), draw(seqlens)
    hdim = draw(st.sampled_from(hdims))
    budget = max(1, max_tiles // (math.ceil(seqlen_q / 128) * math.ceil(seqlen_k / 128)))
    ratio = draw(st.integers(1, min(8, budget)))
    batch = draw(st.integers(1, min(3, budget // ratio)))
    nhead_k = draw(st.integers(1, min(3, budget // ratio // batch)))
    dtype, variant = draw(st.sampled_from(dtypes)), draw(st.sampled_from(variants))
    fp8 = dtype.startswith("float8")
    placed = _layouts_fp8 if fp8 else layouts
    packed = draw(st.sampled_from(varlen))
    return Case(
        batch=batch,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        nhead_k=nhead_k,
        ratio=ratio,
        hdim=hdim,
        hdim_v=draw(st.just(0) | st.sampled_from(hdims)),
        dtype=dtype,
        o_dtype=draw(st.sampled_from((*HALVES, "float32"))) if fp8 else "",
        lse=draw(st.booleans()),
        scale=draw(st.none() | st.sampled_from((0.02, 0.125, 0.3))),
        layouts=draw(st.tuples(placed, placed, placed, placed)),
        seed=draw(st.integers(0, 2**32 - 1)),
        softcap=draw(st.sampled_from((1.0, 5.0, 30.0))) if variant == "softcap" else 0.0,
        bias=draw(_biases) if variant == "bias" else None,
        alibi=draw(st.integers(1, 2)) if variant == "alibi" else 0,
        varlen=draw(_varlens(batch, seqlen_q, seqlen_k)) if packed else None,
        dropout=draw(_dropouts) if draw(st.sampled_from(dropout)) else None,
        descale=draw(st.sampled_from(((1.0, 1.0, 1.0), (0.5, 1.5, 3.0)))) if fp8 else (1.0, 1.0, 1.0),
        broadcast_kv=(draw(st.booleans()) and not packed, draw(st.booleans())),
        sinks=draw(st.sampled_from(sinks)),
        **draw(_masks()),
    )


@st.composite
def _masks(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(("none", "causal", "window", "causal_window")))
    side = st.just(-1) | st.integers(0, 80) | st.integers(0, 650)
    window = draw(st.tuples(side, side)) if "window" in kind else (-1, -1)
    masked = "causal" in kind or window != (-1, -1)
    top_left = masked and draw(st.booleans())
    return {"causal": "causal" in kind, "window": window, "top_left": top_left}
