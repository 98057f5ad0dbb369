# SPDX-License-Identifier: MIT OR Apache-2.0
"""The Triton kernel that attn-dsl-bench timed: `--peer triton=PATH` of HipKittens' triton_baseline_v02.py.

It is AMD's flash attention in Triton. Like its tuner, the clock takes the fastest of its configurations.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.triton_code import Configured, Kernel, configurations, source
from pyfa_rocm.clock.code import Launch
from pyfa_rocm.clock.subjects import ProblemArrays, Subject
from pyfa_rocm.errors import UnsupportedError

# Arguments of options that are off: they have no array, or are no number that matters.
_ABSENT = (
    "bias", "Q_descale", "K_descale", "P_scale", "P_descale", "V_descale", "cu_seqlens_q", "cu_seqlens_k",
    "encoded_softmax", "alibi_slopes",
)  # fmt: skip
_OFF = (
    "PERSISTENT", "PERSISTENT_DYNAMIC", "VARLEN", "USE_BIAS", "ENABLE_DROPOUT", "RETURN_ENCODED_SOFTMAX",
    "USE_ALIBI", "INT8", "USE_P_SCALE", "INT8_KV",
)  # fmt: skip


def _arguments(arrays: ProblemArrays, config: dict[str, Any]) -> dict[str, Any]:
    """Return the kernel's arguments."""
    shape = arrays.shape
    found: dict[str, Any] = dict.fromkeys(_ABSENT) | dict.fromkeys(_OFF, False)
    found |= {"Q": arrays.q, "K": arrays.k, "V": arrays.v, "L": arrays.lse, "Out": arrays.o}
    for letter, axes, tensor in (
        ("q", "zhmk", arrays.q), ("k", "zhnk", arrays.k), ("v", "zhkn", arrays.v), ("o", "zhmn", arrays.o),
    ):  # fmt: skip
        found |= {f"stride_{letter}{axis}": n for axis, n in zip(axes, tensor.strides, strict=True)}
    found |= {f"stride_{name}": 0 for name in ("bz", "bh", "bm", "bn", "az", "ah")}
    found |= {"SM_SCALE": shape.hdim**-0.5, "dropout_p": 0.0, "philox_seed": 1, "philox_offset_base": 1}
    found |= {"NUM_CU": 304, "atomic_counter": arrays.lse, "B": shape.batch}
    found |= {"HQ": shape.nhead_q, "HK": shape.nhead_k}
    found |= {"ACTUAL_BLOCK_DMODEL": shape.hdim, "BLOCK_DMODEL": shape.hdim}
    found |= {"MAX_SEQLENS_Q": shape.seqlen, "MAX_SEQLENS_K": shape.seqlen, "IS_CAUSAL": shape.causal}
    return found | config


def peers(path: str) -> list[Subject]:
    """Return the subject "triton".

    Raises
    ------
    InvalidArgumentError
        There is no source at `path`, or no Triton here.
    """
    kernel = source(path).attn_fwd

    def launches(arrays: ProblemArrays, direction: str, config: dict[str, Any]) -> list[Launch]:
        shape = arrays.shape
        if direction != "forward":
            raise UnsupportedError(f"triton: got direction {direction}, expected forward")
        arguments = _arguments(arrays, config)
        grid = (-(-shape.seqlen // config["BLOCK_M"]), shape.nhead_q, shape.batch)
        return [Kernel.compiled(kernel, arguments).launch(grid, arguments)]

    return [Configured("triton", configurations(kernel), launches)]
