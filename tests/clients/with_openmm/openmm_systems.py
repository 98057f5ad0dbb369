# SPDX-License-Identifier: MIT OR Apache-2.0
"""Opens OpenMM with its platform for HIP, and makes the systems that the tests simulate."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The folder of the unpacked wheels.
sys.path.append(str(Path(__file__).resolve().parents[3] / "build/clients/openmm"))
mm: Any = importlib.import_module("openmm")

# In kJ/mol nm/e^2: e^2 N_A / (4 pi epsilon_0), by the constants of CODATA 2018.
COULOMB = 1e6 * 1.602176634e-19**2 * 6.02214076e23 / (4 * np.pi * 8.8541878128e-12)
GRAIN = 2.0**-10  # nm: differences of positions are exact in float32
STEP = 0.001  # ps


@dataclass
class Forces:
    """Energy and forces of a group, as a context has them."""

    energy: float
    forces: Array


def context(system: Any, positions: Array, precision: str | None) -> Any:
    """A system on the software device in a precision, or, if that is None, on OpenMM's reference platform."""
    integrator = mm.VerletIntegrator(STEP)
    integrator.setConstraintTolerance(1e-9)
    platform = mm.Platform.getPlatformByName("HIP" if precision else "Reference")
    made = mm.Context(system, integrator, platform, {"Precision": precision} if precision else {})
    made.setPositions(positions)
    return made


def evaluated(made: Any, group: int) -> Forces:
    """Energy and forces of a group."""
    state = made.getState(getEnergy=True, getForces=True, groups={group})
    return Forces(plain(state.getPotentialEnergy()), plain(state.getForces(asNumpy=True)))


def plain(quantity: Any) -> Any:
    """A quantity in nm, ps, amu, e, mol and K."""
    return quantity.value_in_unit_system(mm.unit.md_unit_system)


def lattice(rng: np.random.Generator, count: int, spacing: float, jitter: float) -> Array:
    """Points near those of a cubic lattice, count of them a side, at multiples of GRAIN."""
    axes = np.meshgrid(*[np.arange(count) * spacing] * 3, indexing="ij")
    points = np.stack(axes, -1).reshape(-1, 3) + spacing / 2
    out: Array = np.round((points + rng.uniform(-jitter, jitter, points.shape)) / GRAIN) * GRAIN
    return out


def periodic(side: float) -> Any:
    """An empty system in a cubic box."""
    system = mm.System()
    system.setDefaultPeriodicBoxVectors(*np.eye(3) * side)
    return system


def add(system: Any, force: Any, group: int) -> None:
    """Add a force of a group."""
    force.setForceGroup(group)
    system.addForce(force)


def bonded(count: int) -> list[Any]:
    """Bonds, angles and torsions of a chain of all particles, by parameters that are exact in float32."""
    bonds, angles = mm.HarmonicBondForce(), mm.HarmonicAngleForce()
    torsions, series = mm.PeriodicTorsionForce(), mm.RBTorsionForce()
    for i in range(count - 3):
        bonds.addBond(i, i + 1, 0.34375, 1000 + i)
        angles.addAngle(i, i + 1, i + 2, 1.8125, 50 + i)
        torsions.addTorsion(i, i + 1, i + 2, i + 3, 1 + i % 3, 0.5, 4)
        series.addTorsion(i, i + 1, i + 2, i + 3, 1, -2, 3, 0.5, -0.25, 0.125)
    forces = [bonds, angles, torsions, series]
    for force in forces:
        force.setUsesPeriodicBoundaryConditions(True)
    return forces
