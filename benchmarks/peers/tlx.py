# SPDX-License-Identifier: MIT OR Apache-2.0
"""TLX's forward attention for an MI355X, from the tutorials in an installed fbtriton: `--peer tlx`."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.triton_code import Configured, Kernel, imported
from pyfa_rocm.clock.cards import played
from pyfa_rocm.clock.code import Launch
from pyfa_rocm.clock.subjects import ProblemArrays, Subject
from pyfa_rocm.device import devices
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

_TUTORIALS = "triton.language.extra.tlx.tutorials"
_ROWS = 256  # of a workgroup


def _arguments(arrays: ProblemArrays) -> dict[str, Any]:
    """Return what all its kernels take."""
    shape = arrays.shape
    found: dict[str, Any] = {"Q": arrays.q, "K": arrays.k, "V": arrays.v, "Out": arrays.o}
    for letter, axes in (("q", "zhmk"), ("k", "zhnk"), ("v", "zhnk"), ("o", "zhmk")):
        found |= {f"stride_{letter}{axis}": n for axis, n in zip(axes, arrays.q.strides, strict=True)}
    found |= {"Z": shape.batch, "H": shape.nhead_q, "N_CTX": shape.seqlen, "sm_scale": shape.hdim**-0.5}
    return found | {"HEAD_DIM": shape.hdim, "IS_CAUSAL": shape.causal, "BLOCK_M": _ROWS}


def _launches(arrays: ProblemArrays, direction: str, config: dict[str, Any]) -> list[Launch]:
    shape = arrays.shape
    if direction != "forward" or shape.nhead_q != shape.nhead_k:
        raise UnsupportedError(
            f"tlx: got {direction}, {shape}, expected forward, as many key heads as query heads"
        )
    tiles, heads = -(-shape.seqlen // _ROWS), shape.nhead_q
    arguments = _arguments(arrays)
    if config["kernel"] == "prefetch":
        function = imported(f"{_TUTORIALS}.amd_fa_pipelined")._attn_fwd_async_prefetch
        keys = 128 if shape.hdim <= 64 and not shape.causal else 64
        arguments |= {"BLOCK_N": keys, "num_warps": 4}
        grid: tuple[int, ...] = (tiles, shape.batch * heads)
    else:
        module = imported(f"{_TUTORIALS}.amd_fa_cluster")
        function = module._attn_fwd_cluster_pipeline
        depth = module.CLUSTER_BUF_DEPTH
        arguments |= {"BLOCK_N": 32 if shape.causal else 64, "BUF_DEPTH": getattr(depth, "value", depth)}
        arguments |= {"num_warps": 8, "waves_per_eu": 0 if shape.causal else 2}
        grid = (heads, tiles, shape.batch) if shape.causal else (tiles, heads, shape.batch)
        del arguments["Z"], arguments["H"]
    kernel = Kernel.compiled(function, arguments)
    return [kernel.launch(grid, arguments)]


def peers(path: str) -> list[Subject]:
    """Return the faster of its two pipelines.

    Raises
    ------
    InvalidArgumentError
        A path was given, the card is another, or fbtriton is not here.
    """
    if path or played() != "mi355x":
        raise InvalidArgumentError(
            f"--peer tlx: got {path or devices()[0].name}, expected no path, an MI355X"
        )
    imported(f"{_TUTORIALS}.amd_fa_cluster")
    return [Configured("tlx", [{"kernel": "prefetch"}, {"kernel": "cluster"}], _launches)]
