# SPDX-License-Identifier: MIT OR Apache-2.0
"""Backward kernels of Composable Kernel: their tiles, and their line of a translation unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from family import check_keys
from family_bwd import BwdRow, Origin
from origins.ck import CK_TYPES, initializer, read_hdim_step, read_numbers

_LENGTHS = {"block": 9, "waves_s": 3, "waves_dkv": 3, "waves_dq": 3, "mfma_s": 3, "mfma_dkv": 3}


@dataclass(frozen=True)
class CkBwdTile:
    """How a workgroup divides the work: what CK calls block tile, waves and wave tile of five products."""

    block: tuple[int, ...]  # kM0, kN0, kK0, kK1, kK2, kK3, kK4, head dim of q and k, of v
    waves_s: tuple[int, ...]  # S = Q K^T and dP = dO V^T
    waves_dkv: tuple[int, ...]  # dV = P^T dO and dK = dS^T Q
    waves_dq: tuple[int, ...]  # dQ = dS K
    mfma_s: tuple[int, ...]  # M, N, K
    mfma_dkv: tuple[int, ...]  # of dV, dK and dQ
    hdim_step: int = 8
    tag: str | None = None
    origin: str = "ck"
    dtypes: tuple[str, ...] = ("fp16", "bf16")
    optional: bool = False
    whole: bool = False
    divides_groups: bool = False
    pipeline: str = "kr_ktr_vr_iglp"  # the only one of CK's for this generation

    @property
    def hdim_q(self) -> int:
        """The largest head dim of q and k."""
        return self.block[7]

    @property
    def hdim_v(self) -> int:
        """The largest head dim of v and o."""
        return self.block[8]

    @property
    def tile_m(self) -> int:
        """Query rows of a step."""
        return self.block[0]

    @property
    def tile_n(self) -> int:
        """Keys of a workgroup's tile."""
        return self.block[1]


class CkBwd(Origin):
    """CK's kernels, as the backward family sees them."""

    header = "ck/bwd_kernel.h"

    def read_tile(self, content: dict[str, Any], where: str) -> CkBwdTile:
        check_keys(content, set(_LENGTHS), {"hdim_step", "tag"}, where)
        read_hdim_step(content, where)
        return CkBwdTile(**{**content, **read_numbers(content, _LENGTHS, where)})

    def line(self, row: BwdRow, tile: CkBwdTile) -> str:
        """Return the line that native/kernels/ck/bwd_kernel.h makes a kernel of."""
        traits = {key: getattr(tile, key) for key in (*_LENGTHS, "hdim_step")}
        traits |= {key: getattr(row, key) for key in ("alibi", "bias", "softcap", "dropout", "dbias")}
        return f"FMHA_BWD_KERNEL({row.name}, {CK_TYPES[row.dtype]}, {initializer(traits)})"
