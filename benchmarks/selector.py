# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward selector's estimates, from the clock of the software device: kRowsOfAKey, kRowsOfALoad, paces.

A key costs a wave `unit ((rows + load) / waves + key)` cycles of its SIMD, `rows` and `waves` those of a
workgroup. Kernels that differ in their tile only are timed on a problem that fills the card: at head dim 128
tiles of 128 and 64 rows by four waves, at 64 of 128 by four and of 16 by one. The first pair gives load / 4 +
key, the second then load + key. `--write` puts both, with the date, into native/host/select/fwd.cc.

A pace is what a key costs a wave of another origin's kernel in time, in percent of what the size of its tile
lets expect by the constants that the source has. `--paces` prints them instead, for the arch that is played
(FMHA_EMU_ARCH), and `--paces --write` puts them into native/archs.toml. The build must have the kernels.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import sys
from pathlib import Path

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from pyfa_rocm import fmha
from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm.cli.clock import Estimate, estimate
from pyfa_rocm.cli.clock_subjects import Ours
from pyfa_rocm.cli.published import Shape
from pyfa_rocm.device import current_device, devices

NATIVE = Path(__file__).parents[1] / "native"
SOURCE, ARCHS = NATIVE / "host" / "select" / "fwd.cc", NATIVE / "archs.toml"
TALL, SHORT, NARROW = "{}_mask_pad", "{}_mask_pad_m64", "{}_mask_pad_m16"
# Without a mask, each beside the instance of Composable Kernel for the same head dim.
EXACT = "{}_exact"
PACES = {
    "aiter": (("{}_pad_aiter_rtna", "{}_pad_aiter"), 128),
    "pingpong64": (("{}_pad_pingpong",), 64),
    "pingpong128": (("{}_pad_pingpong",), 128),
}
SIMDS = 4
SEQLEN = 4096


class Named(Ours):
    """The library's kernel of a name, or of the first of some that it has."""

    def __init__(self, *names: str) -> None:
        self.name, self.names = names[0], names
        self.info: fmha.KernelInfo | None = None

    def choose(self, params: FwdParams | BwdParams, info: object) -> None:
        """See Ours."""
        del info
        assert isinstance(params, FwdParams)
        for number in range(1, fmha.fmha_fwd_kernel(params).candidate_count + 1):
            params.kernel = number
            self.info = fmha.fmha_fwd_kernel(params)
            if self.info.name in self.names:
                return
        raise SystemExit(f"this build has no kernel {self.name}: build another set of kernels")


def measure(hdim: int, *names: str) -> tuple[Estimate, float, fmha.KernelInfo]:
    """Time a kernel; return that, the keys of all waves of a SIMD, and the kernel."""
    shape = Shape(8, 32, 32, SEQLEN, hdim, False)
    way = Named(*(name.format(f"fmha_fwd_bf16_d{hdim}") for name in names))
    found = estimate(way, shape)
    assert way.info is not None
    x, y, z = way.info.grid
    waves = x * y * z * way.info.block_size // 64
    units = list(devices())[current_device()].compute_units
    return found, waves * SEQLEN / (units * SIMDS), way.info


def cost(name: str, hdim: int) -> float:
    """Return the SIMD cycles that a key costs a wave of a kernel, in the middle of the clock's range."""
    found, keys, info = measure(hdim, name)
    cycles = (found.cycles.low + found.cycles.high) / 2 / keys
    print(f"{info.name}: {cycles:.2f} cycles a key and wave", file=sys.stderr)
    return cycles


def number_of(name: str) -> int:
    """Return a constant of the selector's source."""
    (found,) = re.findall(rf"constexpr int {name} = (\d+);", SOURCE.read_text())
    return int(found)


def seconds_of_a_row(hdim: int, *names: str) -> float:
    """Return the time that a key costs a wave, over what the size of the tile lets expect."""
    found, keys, info = measure(hdim, *names)
    waves = info.block_size // 64
    rows = (info.tile_m + number_of("kRowsOfALoad")) / waves + number_of("kRowsOfAKey")
    return found.middle_seconds / keys / rows


def paces() -> dict[str, int]:
    """Return the paces in percent, rounded."""
    return {
        name: round(100 * seconds_of_a_row(hdim, *kernels) / seconds_of_a_row(hdim, EXACT))
        for name, (kernels, hdim) in PACES.items()
    }


def constants() -> dict[str, int]:
    """Return both, rounded."""
    tall, short = cost(TALL, 128), cost(SHORT, 128)
    unit = (tall - short) / 16  # (128 - 64) / 4 rows
    shared = short / unit - 64 / 4  # load / 4 + key
    unit = cost(TALL, 64) / (128 / 4 + shared)
    alone = cost(NARROW, 64) / unit - 16  # load + key
    load = (alone - shared) * 4 / 3
    return {"kRowsOfAKey": round(shared - load / 4), "kRowsOfALoad": round(load)}


def write(source: Path, values: dict[str, int], date: str) -> None:
    """Replace the numbers in a source, and say when in a line before the first of them."""
    text = re.sub(r"// By benchmarks/selector\.py, [0-9-]+\.\n", "", source.read_text())
    for name, value in values.items():
        text, count = re.subn(rf"(constexpr int {name} = )-?\d+;", rf"\g<1>{value};", text)
        if count != 1:
            raise SystemExit(f"{source}: expected one line that defines {name}, got {count}")
    first = re.search(rf"^.*constexpr int {next(iter(values))} ", text, re.M)
    assert first is not None
    said = f"// By benchmarks/selector.py, {date}.\n"
    source.write_text(text[: first.start()] + said + text[first.start() :])


def write_paces(arch: str, values: dict[str, int], date: str) -> None:
    """Replace an arch's paces, and the line before them that says when."""
    table = ", ".join(f"{name} = {value}" for name, value in values.items())
    old = rf"# By benchmarks/selector\.py, [0-9-]+\.\nfwd_paces = .*\n(?=\n\[{arch}\.unit\])"
    new = f"# By benchmarks/selector.py, {date}.\nfwd_paces = {{{table}}}\n"
    text, count = re.subn(old, new, ARCHS.read_text())
    if count != 1:
        raise SystemExit(f"{ARCHS}: expected one line of fwd_paces before [{arch}.unit], got {count}")
    ARCHS.write_text(text)


def main() -> None:
    """Print the constants, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paces", action="store_true", help="of kernels that are not Composable Kernel's")
    parser.add_argument("--write", action="store_true", help="into the sources")
    args = parser.parse_args()
    values, date = paces() if args.paces else constants(), datetime.date.today().isoformat()
    for name, value in values.items():
        print(f"{name} = {value}" if args.paces else f"constexpr int {name} = {value};  // {date}")
    if args.write and args.paces:
        write_paces(list(devices())[current_device()].arch, values, date)
    elif args.write:
        write(SOURCE, values, date)


if __name__ == "__main__":
    main()
