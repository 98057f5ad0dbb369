# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs many lines of assembly from the same registers, in few launches, and hands back what each one leaves.

A :class:`Program` is a kernel: it loads registers, and for each of its lines puts back what the lines before
it have written, runs it, and stores the registers it may have written.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from . import hip
from .asm import LANES, Kernel, assemble
from .fp import Array

U32 = np.uint32
EXEC = 0xFFFF_7FFE_8001_F0F7
# Values of the scalar registers that a line may read. s[40:59] and s[80:95] are the harness's.
SCALARS = {
    "s2": 0x0013_0021,
    "s3": 0x8765_4321,
    "s6": 0xC2A0_4005,
    "s7": 0x40A9_3C01,
    "s8": 0x5A5A_0FF0,
    "s9": 0x0123_8765,
    "s10": 0xFFFF_FFF3,
    "s11": 0x7FFF_0003,
    "s14": 0xA5A5_3C3C,
    "s15": 0x9669_F00F,
    "s100": 0x8123_4567,
    "s101": 0xC049_3E11,
    "m0": 0x3F99_4B07,
    "vcc_lo": 0x3CC3_5AA5,
    "vcc_hi": 0xF00F_1248,
    "flat_scratch_lo": 0x4123_C567,
    "flat_scratch_hi": 0xBF12_3456,
    "xnack_mask_lo": 0x0000_7FFF,
    "xnack_mask_hi": 0xC1A0_B900,
    "src_vccz": 0,
    "src_execz": 0,
    "src_scc": 1,
}
APERTURES = ("src_shared_base", "src_private_limit")
_SAVED = {"exec_lo": "s48", "exec_hi": "s49"}
_ROW = 4 * LANES
# Destinations, and the registers that say what they hold before a line: v8, or the same moved by M0.
_KEPT = {"v8": "v40", "v9": "v41", "v28": "v42", "v29": "v43"}


@dataclass
class Program:
    """Lines with the vector registers they start from, at most 16; `looks` are the registers to store."""

    lines: Sequence[Sequence[str]]
    looks: Sequence[Sequence[str]]
    vgprs: Mapping[str, Array]
    mode: int
    exec_mask: int = EXEC
    results: list[dict[str, Array]] = field(default_factory=list)
    error: str = ""

    def registers(self) -> dict[str, Array]:
        """Return the values that a line finds, by the name of the register."""
        found = {name: np.full(LANES, value, U32) for name, value in (SCALARS | apertures()).items()}
        kept = {name: self.vgprs[source] for name, source in _KEPT.items() if source in self.vgprs}
        masks = [np.full(LANES, self.exec_mask >> at & 0xFFFFFFFF, U32) for at in (0, 32)]
        return found | dict(self.vgprs) | kept | dict(zip(("exec_lo", "exec_hi"), masks, strict=True))


_apertures: dict[str, int] = {}


def apertures() -> dict[str, int]:
    """The aperture registers, read by scalar moves."""
    if not _apertures:
        moves = [f"s_mov_b64 s[{40 + 2 * i}:{41 + 2 * i}], {name}" for i, name in enumerate(APERTURES)]
        stores = [f"v_mov_b32 v{2 + i}, s{40 + i}" for i in range(4)]
        names = [f"v{2 + i}" for i in range(4)]
        program = Program([[*moves, *stores]], [names], {}, 0x3F0)
        run([program])
        values = [int(program.results[0][n][0]) for n in names]
        for i, name in enumerate(APERTURES):
            _apertures[f"{name}.lo"], _apertures[f"{name}.hi"] = values[2 * i : 2 * i + 2]
    return _apertures


def _set(name: str) -> str:
    return f"s_mov_b32 {name}, 0x{SCALARS[name]:x}"


_SETTABLE = [n for n in SCALARS if not n.startswith("src_")]


def _text(program: Program) -> list[str]:
    out = [
        "s_load_dwordx4 s[80:83], s[0:1], 0x0",
        f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 10), 0x{program.mode:x}",
        "s_waitcnt lgkmcnt(0)",
        "v_lshlrev_b32 v120, 2, v0",
    ]
    for i, name in enumerate(program.vgprs):
        out.append(f"global_load_dword {name}, v120, s[80:81] offset:{i * _ROW}")
    out += [
        *map(_set, _SETTABLE),
        f"s_mov_b32 s42, 0x{program.exec_mask & 0xFFFFFFFF:x}",
        f"s_mov_b32 s43, 0x{program.exec_mask >> 32:x}",
        "s_mov_b64 s[46:47], exec",
        "s_waitcnt vmcnt(0)",
    ]
    for lines, looks in zip(program.lines, program.looks, strict=True):
        out += _one(lines, looks, program.vgprs)
    return [*out, "s_endpgm"]


def _one(lines: Sequence[str], looks: Sequence[str], vgprs: Mapping[str, Array]) -> list[str]:
    out = [f"v_mov_b32 {to}, {source}" for to, source in _KEPT.items() if to in looks and source in vgprs]
    out += ["s_mov_b64 exec, s[42:43]", "s_cmp_eq_u32 s80, s80", "s_nop 4", *lines, "s_nop 4"]
    out += ["s_mov_b64 s[48:49], exec", "s_mov_b64 exec, s[46:47]"]
    for i, name in enumerate(looks):
        source = _SAVED.get(name, name)
        if source[0] != "v" or not source[1].isdigit():
            out.append(f"v_mov_b32 v121, {source}")
            source = "v121"
        out.append(f"global_store_dword v120, {source}, s[82:83] offset:{i * _ROW}")
    out += [f"s_add_u32 s82, s82, {len(looks) * _ROW}", "s_addc_u32 s83, s83, 0"]
    return out + [_set(name) for name in looks if name in _SETTABLE]


def run(programs: Sequence[Program]) -> None:
    """Assemble and launch them; each gets its results, or the device's error."""
    kernels = [Kernel(f"k{i}", _text(p), arch_vgprs=256) for i, p in enumerate(programs)]
    module = hip.Module(assemble(kernels))
    for program, kernel in zip(programs, kernels, strict=True):
        try:
            _launch(module, program, kernel.name)
        except hip.HipError as error:
            program.error = error.fault
            hip.recover()
    module.unload()


def _launch(module: hip.Module, program: Program, name: str) -> None:
    parts = [np.asarray(v, U32) for v in program.vgprs.values()] or [np.zeros(LANES, U32)]
    count = sum(len(looks) for looks in program.looks)
    inputs = hip.Buffer.of(np.concatenate(parts))
    outputs = hip.Buffer.of(np.zeros(count * LANES, U32))
    try:
        module.launch(name, struct.pack("<QQIIQ", inputs.address, outputs.address, 0, 0, 0))
        raw = outputs.read().reshape(count, LANES)
    finally:
        inputs.free()
        outputs.free()
    at = 0
    for looks in program.looks:
        program.results.append({n: raw[at + i] for i, n in enumerate(looks)})
        at += len(looks)
