# SPDX-License-Identifier: MIT OR Apache-2.0
"""Assembles tiny kernels with LLVM, runs them on the device, and hands back their registers.

A :class:`Case` is a few instructions with the registers they start from and those to look at afterwards. A
:class:`Suite` puts all its cases into one code object, since an assembler for each would take minutes.

Register use: the case may use v0..v119, all AccVGPRs, s0..s69, vcc, m0, exec and SCC. s[70:71] is the address
of the case's memory. The harness keeps v120 and up, and s72 and up.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from . import hip, rows
from .spelling import ARCHS as RDNA_ARCHS
from .spelling import GENERATION, LANES, NARROW, RDNA, RDNA_LANES, bare, renamed, spell
from .syntax.kept import kept, linked
from .toolchain import assembler, reader

U32 = NDArray[np.uint32]
ALL_LANES = (1 << LANES) - 1
# Denormals kept everywhere, round to nearest even, and, but for gfx12, DX10_CLAMP and IEEE.
MODE_DEFAULT = 0xF0 if GENERATION == 12 else 0x3F0
# Memory instructions' names for the bit that asks an atomic for the old value, and for device scope.
RETURN, SCOPE = {
    "gfx90a": ("glc", "glc"),
    "gfx1030": ("glc", "glc"),
    "gfx1100": ("glc", "glc"),
    "gfx1150": ("glc", "glc"),
    "gfx1201": ("th:TH_ATOMIC_RETURN", "scope:SCOPE_DEV"),
}.get(rows.arch(), ("sc0", "sc1"))
_ROW_BYTES = 4 * LANES
_GROUP = "ttmp9" if GENERATION == 12 else "s2"  # the workgroup's number
_SPECIAL_IN = ("vcc", "exec", "m0", "scc", "mode")  # loaded into s[72:78] in this order


def registers(name: str) -> list[str]:
    """Names of the single registers in "v3", "v[2:5]", "s[0:1]", "a7", "vcc"."""
    if name == "vcc":
        return ["vcc_lo", "vcc_hi"]
    if name == "exec":
        return ["s74", "s75"]
    match = re.fullmatch(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])", name)
    if not match:
        raise ValueError(f"not a register: {name!r}")
    first = int(match[2] or match[3])
    last = int(match[2] or match[4])
    return [f"{match[1]}{i}" for i in range(first, last + 1)]


def dword_rows(values: ArrayLike, count: int) -> U32:
    """Values of `count` registers as (count, lanes) dwords: 64 bits split, 16 zero-extended."""
    a = np.atleast_1d(np.asarray(values))
    if a.dtype.kind == "i" and a.dtype.itemsize > 4 and a.ndim == 1 and count == 1:
        a = a.astype(np.uint32)
    if a.dtype.itemsize == 8:
        a = np.ascontiguousarray(a).view(np.uint32).reshape(*a.shape, 2)
        a = np.moveaxis(a, -1, -2).reshape(-1, a.shape[-2]) if a.ndim == 3 else a.T
    elif a.dtype.itemsize == 4:
        a = np.ascontiguousarray(a).view(np.uint32)
    else:
        a = np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}").astype(np.uint32)
    a = a.reshape(count, -1)
    return np.ascontiguousarray(a)


@dataclass
class Result:
    """Registers and memory after a case; registers as (dwords, lanes); vcc, exec, scc: one a workgroup."""

    regs: dict[str, U32]
    vcc: list[int]
    exec: list[int]
    scc: list[int]
    mem: NDArray[np.uint8]
    address: int

    def scalar(self, name: str) -> list[int]:
        """A scalar register (or range) as one integer a workgroup."""
        return [
            sum(int(d) << (32 * i) for i, d in enumerate(column)) for column in self.regs[name][:, ::LANES].T
        ]

    def mask(self, name: str, before: int = 0) -> list[int]:
        """A mask of lanes a workgroup. That of 32 is one register; that behind it is as it was."""
        pairs = self.vcc if name == "vcc" else self.scalar(name)
        if NARROW:
            assert {p >> 32 for p in pairs} == {before >> 32}, f"the register behind {name} was written"
        return [p & ALL_LANES for p in pairs]

    def __getitem__(self, name: str) -> U32:
        """The dwords of a register or register range, one row a dword."""
        return self.regs[name]


Check = Callable[[Result], None]


@dataclass
class Case:
    """A few instructions, what they start from, and a check of what they leave."""

    name: str
    lines: Sequence[str]
    out: Sequence[str]
    check: Check
    vin: dict[str, Any] = field(default_factory=dict)
    # An int, a list of one for each workgroup, or a function of the memory's address that gives either.
    sin: dict[str, Any] = field(default_factory=dict)
    mem: NDArray[Any] | None = None
    lds: int = 0
    scratch: int = 0
    covers: Sequence[str] = ()  # mnemonics; the first line's when empty

    def mnemonics(self) -> list[str]:
        """Rows of the instruction table this case tests."""
        return [renamed(bare(m)) for m in (self.covers or [self.lines[0].split()[0]])]

    def spelled(self) -> list[str]:
        """Its lines as this arch writes them."""
        return [line for text in self.lines for line in spell(text)]

    def workgroups(self) -> int:
        """Workgroups of one wave that the lanes of the inputs fill."""
        widths = {dword_rows(v, len(registers(k))).shape[1] for k, v in self.vin.items()} - {1}
        widths |= {LANES * len(v) for v in self.sin.values() if isinstance(v, list)}
        if len(widths) > 1 or any(w % LANES for w in widths):
            raise ValueError(f"{self.name}: inputs of {widths} lanes")
        return (widths.pop() if widths else LANES) // LANES


def _move_to_vgpr(register: str) -> tuple[str, list[str]]:
    if register[0] == "v" and register[1].isdigit():
        return register, []
    if register[0] == "a":
        return "v121", [f"v_accvgpr_read_b32 v121, {register}", "s_nop 4"]
    return "v121", [f"v_mov_b32 v121, {register}"]


def _body(case: Case) -> tuple[list[str], int]:
    """The kernel's text and the number of input rows it reads."""
    text = [
        "s_load_dwordx4 s[80:83], s[0:1], 0x0",
        "s_load_dwordx2 s[84:85], s[0:1], 0x10",
        "s_load_dwordx2 s[70:71], s[0:1], 0x18",
        "s_waitcnt lgkmcnt(0)",
        f"s_mul_i32 s86, {_GROUP}, s84",
        "s_add_u32 s80, s80, s86",
        "s_addc_u32 s81, s81, 0",
        f"s_mul_i32 s86, {_GROUP}, s85",
        "s_add_u32 s82, s82, s86",
        "s_addc_u32 s83, s83, 0",
        "v_lshlrev_b32 v120, 2, v0",
        "v_mov_b32 v122, v120",
    ]
    row = 0
    for name in case.vin:
        for register in registers(name):
            target = register if register[0] == "v" else "v121"
            text.append(f"global_load_dword {target}, v122, s[80:81]")
            text.append(f"v_add_u32 v122, 0x{_ROW_BYTES:x}, v122")
            if register[0] == "a":
                text += ["s_waitcnt vmcnt(0)", f"v_accvgpr_write_b32 {register}, v121"]
            row += 1
    text.append("s_waitcnt vmcnt(0)")
    scalars = [r for name in case.sin if name not in _SPECIAL_IN for r in registers(name)]
    for register in [*(f"s{i}" for i in range(72, 79)), *scalars]:
        text.append(f"s_load_dword {register}, s[80:81], 0x{row * _ROW_BYTES:x}")
        row += 1
    text += [
        "s_waitcnt lgkmcnt(0)",
        "s_setreg_b32 hwreg(HW_REG_MODE, 0, 10), s78",
        "s_mov_b32 m0, s76",
        "s_mov_b64 vcc, s[72:73]",
        "s_mov_b64 exec, s[74:75]",
        "s_cmp_lg_u32 s77, 0",
        "s_nop 7",
        *case.lines,
        "s_nop 7",
        "s_nop 7",
        "s_cselect_b32 s77, 1, 0",
        "s_mov_b64 s[74:75], exec",
        "s_mov_b64 exec, -1",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
    ]
    for register in [
        *(r for name in case.out for r in registers(name)),
        "vcc_lo",
        "vcc_hi",
        "s74",
        "s75",
        "s77",
    ]:
        source, move = _move_to_vgpr(register)
        text += [
            *move,
            f"global_store_dword v120, {source}, s[82:83]",
            f"v_add_u32 v120, 0x{_ROW_BYTES:x}, v120",
        ]
    return [line for t in (*text, "s_endpgm") for line in spell(t)], row


def _input_rows(case: Case, groups: int, address: int) -> U32:
    parts: list[U32] = []
    for name, value in case.vin.items():
        count = len(registers(name))
        parts.append(np.broadcast_to(dword_rows(value, count), (count, groups * LANES)))
    values = {"exec": ALL_LANES, "mode": MODE_DEFAULT, "vcc": 0, "m0": 0, "scc": 0} | case.sin
    names = [*_SPECIAL_IN, *(name for name in case.sin if name not in _SPECIAL_IN)]
    for name in names:
        value = values[name](address) if callable(values[name]) else values[name]
        per_group = value if isinstance(value, list) else [value] * groups
        count = len(registers(name)) if name not in _SPECIAL_IN else 2 if name in ("vcc", "exec") else 1
        for i in range(count):
            dwords = np.array([int(v) >> (32 * i) & 0xFFFFFFFF for v in per_group], np.uint32)
            parts.append(np.repeat(dwords, LANES)[None])
    rows = np.concatenate(parts)
    return np.ascontiguousarray(rows.reshape(len(rows), groups, LANES).swapaxes(0, 1))


_DESCRIPTOR = """
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size {scratch}
{private}  .amdhsa_kernarg_size {kernarg}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_sgpr_workgroup_id_y 1
  .amdhsa_system_sgpr_workgroup_id_z 1
  .amdhsa_system_vgpr_workitem_id 2
  .amdhsa_next_free_vgpr {vgprs}
  .amdhsa_next_free_sgpr 96
  .amdhsa_float_denorm_mode_32 3
  .amdhsa_float_denorm_mode_16_64 3
{family}  {extra}
.end_amdhsa_kernel
"""

# gfx90a has no architected flat scratch: the kernel makes FLAT_SCRATCH of the two values it is handed.
_PRIVATE = {
    "gfx90a": "  .amdhsa_user_sgpr_flat_scratch_init 1\n"
    "  .amdhsa_system_sgpr_private_segment_wavefront_offset 1\n",
}
_PRIVATE["gfx1030"] = _PRIVATE["gfx90a"]
# Sets flat scratch, and puts the workgroup's x, which comes after it, where it is without.
_FLAT_SCRATCH = {
    "gfx90a": ["s_add_u32 flat_scratch_lo, s2, s7", "s_addc_u32 flat_scratch_hi, s3, 0", "s_mov_b32 s2, s4"],
    "gfx1030": [
        *("s_add_u32 s2, s2, s7", "s_addc_u32 s3, s3, 0", "s_setreg_b32 hwreg(HW_REG_FLAT_SCR_LO), s2"),
        *("s_setreg_b32 hwreg(HW_REG_FLAT_SCR_HI), s3", "s_mov_b32 s2, s4"),
    ],
}

_METADATA = """  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {kernarg}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .{family}
    .sgpr_count: 102
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
    .args:
{args}
"""


@dataclass
class Kernel:
    """A kernel in assembly text. `args` are (offset, bytes, value kind) of the metadata."""

    name: str
    lines: Sequence[str]
    lds: int = 0
    scratch: int = 0
    args: Sequence[tuple[int, int, str]] = (
        (0, 8, "global_buffer"),
        (8, 8, "global_buffer"),
        (16, 4, "by_value"),
        (20, 4, "by_value"),
        (24, 8, "global_buffer"),
    )
    extra: str = ""
    more_metadata: str = ""  # lines of the kernel's entry
    arch_vgprs: int = 128  # and 128 AccVGPRs
    lanes: int = RDNA_LANES  # of a wave, on RDNA

    def vgprs(self, cpu: str) -> int:
        """All vector registers."""
        return min(256, self.arch_vgprs + 128) if cpu in RDNA_ARCHS else self.arch_vgprs + 128

    def _family(self, cpu: str) -> list[str]:
        """Return the lines of a descriptor that only some archs have."""
        modes = [] if cpu == "gfx1201" else ["ieee_mode 1", "dx10_clamp 1"]
        return [
            *modes,
            f"wavefront_size32 {int(self.lanes == 32)}"
            if cpu in RDNA_ARCHS
            else f"accum_offset {self.arch_vgprs}",
        ]

    def text(self, cpu: str) -> str:
        """Code and descriptor."""
        private = ""
        if self.scratch:
            private = _PRIVATE.get(rows.arch(), "  .amdhsa_enable_private_segment 1\n")
        descriptor = _DESCRIPTOR.format(
            name=self.name,
            lds=self.lds,
            scratch=self.scratch,
            extra=self.extra,
            private=private,
            kernarg=self.kernarg(),
            family="".join(f"  .amdhsa_{line}\n" for line in self._family(cpu)),
            vgprs=self.vgprs(cpu),
        )
        head = f".text\n.globl {self.name}\n.p2align 8\n.type {self.name},@function\n{self.name}:\n"
        prologue = _FLAT_SCRATCH.get(rows.arch(), []) if self.scratch else []
        return head + "\n".join([*prologue, *self.lines]) + descriptor

    def kernarg(self) -> int:
        """Bytes of the argument block."""
        return max((offset + size for offset, size, _ in self.args), default=0) + 7 & ~7

    def metadata(self, cpu: str) -> str:
        """The kernel's entry in the metadata note."""
        rdna = cpu in RDNA_ARCHS
        space = "\n        .address_space: global"
        args = "\n".join(
            f"      - .offset: {o}\n        .size: {s}\n        .value_kind: {k}"
            + (space if k == "global_buffer" else "")
            for o, s, k in self.args
        )
        return (
            _METADATA.format(
                name=self.name,
                lds=self.lds,
                scratch=self.scratch,
                kernarg=self.kernarg(),
                args=args,
                vgprs=self.vgprs(cpu),
                family=f"wavefront_size: {self.lanes}"
                if rdna
                else "wavefront_size: 64\n    .agpr_count: 128",
            )
            + self.more_metadata
        )


def _target(cpu: str) -> str:
    """The arch as this process's tests have its waves."""
    return f"{cpu}:64" if cpu in RDNA_ARCHS and RDNA_LANES == 64 else cpu


def assemble(kernels: Sequence[Kernel], cpu: str = "") -> bytes:
    """A code object of these kernels, for the arch of this process if none is named."""
    cpu = cpu or rows.arch()
    text = f'.amdgcn_target "amdgcn-amd-amdhsa--{cpu}"\n' + "".join(k.text(cpu) for k in kernels)
    text += ".amdgpu_metadata\namdhsa.version: [1, 2]\namdhsa.target: amdgcn-amd-amdhsa--" + cpu
    text += "\namdhsa.kernels:\n" + "".join(k.metadata(cpu) for k in kernels) + ".end_amdgpu_metadata\n"
    return linked(assembler(_target(cpu)), text)


def legal(lines: Sequence[str], cpu: str = "", later: bool = False) -> list[bool]:
    """Return which of these instructions LLVM's assembler accepts, or clang 20's if `later`."""
    text = "".join(f"line_{i}:\n{line}\n" for i, line in enumerate(lines))
    command = reader(_target(cpu or rows.arch()), later)
    return list(map(bool, kept([command], text, lambda: _accepted(command, text, len(lines)))))


def _accepted(command: list[str], text: str, count: int) -> bytes:
    """Return a byte for each of the lines: 1 if the program accepts it."""
    # Lines that it prints are those it accepts. Its complaints come a few bytes at a time, which takes long.
    done = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    )
    printed = re.split(r"^line_\d+:$", done.stdout, flags=re.MULTILINE)[1:]
    assert done.returncode >= 0, f"{command} ended by signal {-done.returncode}"
    assert len(printed) == count, command
    return bytes(bool(line.strip()) for line in printed)


class Suite:
    """Cases that share one code object, assembled and run at the first test that asks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases: list[Case] = []
        self._results: dict[int, Result | Exception] = {}

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add a :class:`Case` of these arguments; on RDNA, if it has what the case is about."""
        case = Case(*args, **kwargs)
        if not RDNA or set(case.mnemonics()) <= rows.names():
            self.cases.append(case)

    def parametrize(self) -> pytest.MarkDecorator:
        """Decorator that calls a test with every case; the test calls :meth:`check`."""
        return pytest.mark.parametrize("case", self.cases, ids=[c.name for c in self.cases])

    def check(self, case: Case) -> None:
        """Run all cases if they have not been, and check this one."""
        if not self._results:
            self._run_all()
        result = self._results[id(case)]
        if isinstance(result, Exception):
            raise AssertionError(f"{case.name}: {'; '.join(case.lines)}: {result}") from result
        case.check(result)

    def _run_all(self) -> None:
        kernels: dict[tuple[Any, ...], Kernel] = {}
        used: list[tuple[Case, Kernel, int]] = []
        for case in self._assemblable():
            body, inputs = _body(case)
            key = (tuple(body), case.lds, case.scratch)
            kernel = kernels.setdefault(key, Kernel(f"k{len(kernels)}", body, case.lds, case.scratch))
            used.append((case, kernel, inputs))
        module = hip.Module(assemble(list(kernels.values())))
        for case, kernel, inputs in used:
            try:
                self._results[id(case)] = _launch(module, case, kernel.name, inputs)
            except hip.HipError as error:
                self._results[id(case)] = error
        module.unload()

    def _assemblable(self) -> list[Case]:
        """The cases LLVM accepts; the others fail, without taking the rest with them."""
        owners = [case for case in self.cases for _ in case.spelled()]
        accepted = legal([line for case in self.cases for line in case.spelled()])
        rejected = {id(case) for case, good in zip(owners, accepted, strict=True) if not good}
        for case in self.cases:
            if id(case) in rejected:
                self._results[id(case)] = ValueError("LLVM's assembler rejects this")
        return [case for case in self.cases if id(case) not in rejected]


def _launch(module: hip.Module, case: Case, kernel: str, rows: int) -> Result:
    groups = case.workgroups()
    out_registers = [(name, len(registers(name))) for name in case.out]
    out_rows = sum(n for _, n in out_registers) + 5
    memory = hip.Buffer.of(np.zeros(4, np.uint8) if case.mem is None else case.mem)
    inputs = hip.Buffer.of(_input_rows(case, groups, memory.address))
    outputs = hip.Buffer.of(np.full(groups * out_rows * LANES, 0xDEADBEEF, np.uint32))
    try:
        args = struct.pack(
            "<QQIIQ",
            inputs.address,
            outputs.address,
            rows * _ROW_BYTES,
            out_rows * _ROW_BYTES,
            memory.address,
        )
        module.launch(kernel, args, (groups, 1, 1), (LANES, 1, 1))
        raw = outputs.read().reshape(groups, out_rows, LANES).swapaxes(0, 1)
        return _result(raw, out_registers, memory)
    finally:
        for buffer in (memory, inputs, outputs):
            buffer.free()


def _result(raw: Any, out_registers: Iterable[tuple[str, int]], memory: hip.Buffer) -> Result:
    regs: dict[str, U32] = {}
    row = 0
    for name, count in out_registers:
        regs[name] = raw[row : row + count].reshape(count, -1).copy()
        row += count
    tail = raw[row:, :, 0].astype(object)
    vcc = [int(lo) | int(hi) << 32 for lo, hi in zip(tail[0], tail[1], strict=True)]
    mask = [int(lo) | int(hi) << 32 for lo, hi in zip(tail[2], tail[3], strict=True)]
    return Result(regs, vcc, mask, [int(s) for s in tail[4]], memory.read(np.uint8), memory.address)
