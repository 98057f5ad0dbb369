# SPDX-License-Identifier: MIT OR Apache-2.0
"""The rates of a card in the arithmetic of `bench decode`: how fast it issues, and its memory."""

from __future__ import annotations

from dataclasses import dataclass

from pyfa_rocm import emulator
from pyfa_rocm._runtime import library
from pyfa_rocm.errors import UnsupportedError

__all__ = ["Rates", "rates"]


@dataclass(frozen=True)
class Rates:
    """The rates of a card: an instruction of a wave, or of matrices, takes a SIMD for so many cycles."""

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


def rates(arch: str) -> Rates:
    """Return those of the software device's card, whose arch this is.

    Raises
    ------
    UnsupportedError
        If nobody has published how fast the card's matrix instructions are.
    """
    card = {name: constant["value"] for name, constant in emulator.constants().items()}
    timing = {name: constant["fast"] for name, constant in emulator.timing_constants().items()}
    units, clock_hz = card["compute_units"], card["clock_khz"] * 1e3
    simds, bandwidth = units * card["simds_per_cu"], timing["hbm_bandwidth"]
    if library.known_archs()[arch]["matrix"] == "mfma":
        # 64 lanes at 16 a cycle; an MFMA of 16 x 16 x 16 by the published peak of 512 operations a cycle and
        # SIMD.
        return Rates(units, simds, clock_hz, 4, 16, "an MFMA", "HBM", bandwidth)
    if not timing["matrix_slots"]:
        raise UnsupportedError(
            f"the software device plays {arch}: how fast its card multiplies matrices is unknown, expected "
            "one that `pyfa-rocm bench --model` names"
        )
    # 32 lanes a cycle; a WMMA of 16 x 16 x 16 by the published peak.
    return Rates(units, simds, clock_hz, 1, int(timing["matrix_slots"]), "a WMMA", "GDDR6", bandwidth)
