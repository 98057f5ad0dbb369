# SPDX-License-Identifier: MIT OR Apache-2.0
"""Small kernels with a defect that the device's checks must name, each with a repaired twin."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from . import hip
from .asm import Kernel, assemble
from .spelling import RDNA_LANES

ARGS = ((0, 8, "global_buffer"),)
BYTES = 16384
# s[8:9] the buffer, s[4:7] a resource of all of it, s10 the wave, v1 four times the work-item.
HEAD = (
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "v_and_b32 v1, 0x3ff, v0",
    "v_lshrrev_b32 v2, 6, v1",
    "v_lshlrev_b32 v1, 2, v1",
    "v_readfirstlane_b32 s10, v2",
    "s_waitcnt lgkmcnt(0)",
    "s_mov_b32 s4, s8",
    "s_mov_b32 s5, s9",
    f"s_mov_b32 s6, {BYTES:#x}",
    "s_mov_b32 s7, 0x20000",
    "s_nop 7",
    "s_nop 7",
)

_NO_GWS = "owns no global wave sync"
# Instructions that stop a launch on any arch, with their operands and the reason.
GWS = {
    "ds_gws_init": ("v2 gds", _NO_GWS),
    "ds_gws_barrier": ("v2 gds", _NO_GWS),
    "ds_gws_sema_v": ("gds", _NO_GWS),
    "ds_gws_sema_br": ("v2 gds", _NO_GWS),
    "ds_gws_sema_p": ("gds", _NO_GWS),
    "ds_gws_sema_release_all": ("gds", _NO_GWS),
}


def only(wave: int, label: str, lines: Sequence[str]) -> list[str]:
    """`lines` for one wave; the others jump to `label` behind them."""
    return [f"s_cmp_lg_u32 s10, {wave}", f"s_cbranch_scc1 {label}", *lines, f"{label}:"]


class Kernels:
    """Kernels in one code object, made when the first of them runs."""

    def __init__(self, bodies: Mapping[str, Sequence[str]], lds: int = 0, lanes: int = RDNA_LANES) -> None:
        self._bodies = bodies
        self._lds = lds
        self._lanes = lanes
        self._module: hip.Module | None = None

    def run(self, name: str, waves: int = 1) -> None:
        """Launch one workgroup of the kernel; HipError if the device objects."""
        if self._module is None:
            # A label belongs to its kernel.
            kernels = [
                Kernel(
                    n,
                    [line.replace("@", f"{n}_") for line in (*HEAD, *body, "s_nop 7", "s_nop 7", "s_endpgm")],
                    lds=self._lds,
                    args=ARGS,
                    lanes=self._lanes,
                )
                for n, body in self._bodies.items()
            ]
            self._module = hip.Module(assemble(kernels))
        buffer = hip.Buffer.of(np.zeros(BYTES, np.uint8))
        try:
            self._module.launch(name, struct.pack("<Q", buffer.address), block=(64 * waves, 1, 1))
        finally:
            buffer.free()

    def finding(self, name: str, waves: int = 1) -> str:
        """Return the message of a kernel that must fail; it names kernel, workgroup, wave and pc."""
        with pytest.raises(hip.HipError) as caught:
            self.run(name, waves)
        text = caught.value.fault
        assert re.search(rf"kernel {name}, workgroup \(0, 0, 0\), wave \d+, pc 0x[0-9a-f]+ ", text), text
        return text
