# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the arithmetic of `bench decode` takes a card for: how fast it issues, and its memory."""

from __future__ import annotations

from dataclasses import dataclass

from pyfa_rocm import emulator
from pyfa_rocm._runtime import library

__all__ = ["Rates", "rates"]


@dataclass(frozen=True)
class Rates:
    """Of a card: a SIMD is taken for so many cycles by an instruction of a wave, and by one of matrices."""

    compute_units: int
    simds: int
    clock_hz: float
    cycles: int
    matrix_cycles: int
    matrix_name: str
    memory_name: str
    memory_bytes_per_s: float

    def full(self, kv_bytes: int, instructions: int, matrices: int) -> float:
        """Return the bytes of K and V a second at which all compute units issue without a pause.

        Nothing is taken to overlap.
        """
        cycles = self.cycles * (instructions - matrices) + self.matrix_cycles * matrices
        return kv_bytes / cycles * self.simds * self.clock_hz


# Of waves of 32 lanes, 32 at a time; a WMMA of 16 x 16 x 16 by the published peaks of dense fp16, 123 and 195
# TFLOPS; memory as published.
_RADEON = {
    "gfx1100": Rates(96, 192, 2.5e9, 1, 32, "a WMMA", "GDDR6", 0.96e12),
    "gfx1201": Rates(64, 128, 2.97e9, 1, 16, "a WMMA", "GDDR6", 0.64e12),
}


def rates(arch: str) -> Rates:
    """Return those of the card whose arch this is, or of the card that the profile models."""
    if library.known_archs()[arch]["wave_size"] == 32:
        return _RADEON[arch]
    card = {name: constant["value"] for name, constant in emulator.constants().items()}
    units = card["compute_units"]
    # 64 lanes at 16 a cycle; an MFMA of 16 x 16 x 16 by the published peak of 512 operations a cycle and
    # SIMD; what the published memory clock and bus come to.
    clock_hz = card["clock_khz"] * 1e3
    return Rates(units, units * card["simds_per_cu"], clock_hz, 4, 16, "an MFMA", "HBM", 5.3e12)
