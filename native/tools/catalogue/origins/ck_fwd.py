# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forward kernels of Composable Kernel: their tiles, their limits, their line of a translation unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from archs import read_archs
from family import check_keys, check_known, enumerator
from family_fwd import FwdRow, Origin
from origins.ck import CK_TYPES, initializer, read_hdim_step, read_numbers

PIPELINES = ("qr_async", "qr")
_REQUIRED = {"pipeline", "block", "waves", "mfma"}
_OPTIONAL = {"blocks_per_cu", "hdim_step", "k0", "k_ahead", "no_slp", "tag"}


@dataclass(frozen=True)
class CkTile:
    """How a workgroup divides the work: what CK calls pipeline, block tile, waves and wave tile."""

    pipeline: str
    block: tuple[int, ...]  # kM0, kN0, kK0, kN1, kK1, head dim of q and k
    waves: int
    mfma: tuple[int, ...]  # M, N, K
    blocks_per_cu: int = -1
    hdim_step: int = 8
    k0: dict[str, int] = field(default_factory=dict)  # arch: kK0
    k_ahead: dict[str, list[bool]] = field(default_factory=dict)  # arch: values of mask
    no_slp: dict[str, list[bool]] = field(default_factory=dict)  # arch: values of mask
    tag: str | None = None
    origin: str = "ck"

    @property
    def hdim_q(self) -> int:
        """The largest head dim of q and k."""
        return self.block[5]

    @property
    def hdim_v(self) -> int:
        """The largest head dim of v and o: one workgroup does all of its columns."""
        return self.block[3]

    @property
    def tile_m(self) -> int:
        """Query rows of a workgroup."""
        return self.block[0]

    @property
    def tile_n(self) -> int:
        """Keys of a step."""
        return self.block[1]


class CkFwd(Origin):
    """CK's kernels, as the forward family sees them."""

    header = "ck/fwd_kernel.h"

    def read_tile(self, content: dict[str, Any], where: str) -> CkTile:
        check_keys(content, _REQUIRED, _OPTIONAL, where)
        check_known("pipeline", content["pipeline"], PIPELINES, where)
        numbers = read_numbers(content, {"block": 6, "mfma": 3}, where)
        read_hdim_step(content, where)
        archs = tuple(x.name for x in read_archs().archs)
        for key in ("no_slp", "k_ahead"):
            for arch, masks in content.get(key, {}).items():
                check_known(key, arch, archs, where)
                for mask in masks:
                    check_known(f"{key}.{arch}", mask, (False, True), where)
        if "k_ahead" in content:
            check_known("pipeline", content["pipeline"], ("qr_async",), f"{where} with k_ahead")
            if content["block"][5] < 2 * content["block"][2]:
                raise ValueError(f"{where}: block is {content['block']}, k_ahead wants two slices of K")
        for arch, k0 in content.get("k0", {}).items():
            check_known("k0", arch, archs, where)
            check_known(f"k0.{arch}", k0, (16, 32, 64, 128), where)
        return CkTile(**{**content, **numbers})

    def more(self, fields: dict[str, Any], tile: CkTile) -> dict[str, Any]:
        return {"slp": fields["mask"] not in tile.no_slp.get(fields["arch"], [])}

    def why_not(self, row: FwdRow, tile: Any) -> str | None:
        if row.group and not row.pad:
            return "group mode needs pad = true: only the device knows the lengths"
        if row.softcap and row.bias != "none":
            return f"CK has no softcap together with a bias, got {row.bias!r}"
        return None

    def line(self, row: FwdRow, tile: CkTile) -> str:
        """Return the line that native/kernels/ck/fwd_kernel.h makes a kernel of."""
        rows, keys, k0, *columns = tile.block
        traits = {
            "pipeline": f"fmha::PipelineKind::{enumerator(tile.pipeline)}",
            "block": (rows, keys, tile.k0.get(row.arch, k0), *columns),
            **{key: getattr(tile, key) for key in ("waves", "mfma", "blocks_per_cu")},
            "k_ahead": row.mask in tile.k_ahead.get(row.arch, []),
            "hdim_step": tile.hdim_step,
            **{key: getattr(row, key) for key in ("group", "mask", "pad")},
            "bias": f"fmha::CkBias::{enumerator(row.bias)}",
            **{key: getattr(row, key) for key in ("softcap", "dropout")},
        }
        types = f"{CK_TYPES[row.dtype]}, {CK_TYPES[row.o_dtype]}"
        return f"FMHA_FWD_KERNEL({row.name}, {types}, {initializer(traits)})"
