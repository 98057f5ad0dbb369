# SPDX-License-Identifier: MIT OR Apache-2.0
"""OpenMM's platform for HIP: forces, FFTs, constraints and steps, against NumPy and its reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from clients.rounding import U32
from clients.with_openmm.openmm_systems import (
    COULOMB,
    GRAIN,
    STEP,
    Array,
    add,
    bonded,
    context,
    evaluated,
    lattice,
    mm,
    periodic,
    plain,
)

SIDE, CUTOFF = 2.25, 0.97
DIELECTRIC = 78.3
# The platform keeps sigma / 2 and 2 sqrt(epsilon) in float32, where these are exact.
SIGMA, EPSILON = 0.3125, 0.5625
PAIRS, CHAIN, WRITTEN, BORN = range(4)  # groups of forces
FIXED = 2.0**-32  # the platform adds up forces in units of this
Pair = Callable[[Array, Array], tuple[Array, Array, Array]]


@pytest.fixture(scope="module")
def positions() -> Array:
    return lattice(np.random.default_rng(0), 6, SIDE / 6, 0.04)


@pytest.fixture(scope="module")
def charges(positions: Array) -> Array:
    return np.random.default_rng(1).integers(-8, 9, len(positions)) / 16


@pytest.fixture(scope="module")
def particles(positions: Array, charges: Array) -> Any:
    """Charged particles on a chain, with two kinds of forces between pairs, and in a solvent."""
    system = periodic(SIDE)
    pairs, born = mm.NonbondedForce(), mm.GBSAOBCForce()
    written = mm.CustomNonbondedForce("a1 * a2 * exp(-2 * r) * sin(3 * r)")
    written.addPerParticleParameter("a")
    for charge in charges:
        system.addParticle(12)
        pairs.addParticle(charge, SIGMA, EPSILON)
        written.addParticle([1 + charge])
        born.addParticle(charge, 0.15 + abs(charge) / 16, 0.8)
    pairs.setReactionFieldDielectric(DIELECTRIC)
    pairs.setUseDispersionCorrection(False)
    for group, force in {PAIRS: pairs, WRITTEN: written, BORN: born}.items():
        force.setNonbondedMethod(force.CutoffPeriodic)
        force.setCutoffDistance(CUTOFF)
        add(system, force, group)
    for force in bonded(len(charges)):
        add(system, force, CHAIN)
    return system


@pytest.fixture(scope="module", params=["single", "double"])
def on_device(particles: Any, positions: Array, request: pytest.FixtureRequest) -> Any:
    return context(particles, positions, request.param)


@pytest.fixture(scope="module")
def reference(particles: Any, positions: Array) -> Any:
    return context(particles, positions, None)


def summed(positions: Array, pair: Pair) -> tuple[float, Array, float, Array]:
    """Energy and forces of all pairs nearer than the cutoff, and the sums of the sizes of their terms."""
    ways = positions[:, None] - positions[None]
    ways -= np.round(ways / SIDE) * SIDE
    squares = (ways**2).sum(-1)
    near = (squares < CUTOFF**2) & ~np.eye(len(positions), dtype=bool)
    assert np.abs(squares - CUTOFF**2).min() > 4 * U32  # float32 agrees which are nearer
    r = np.sqrt(np.where(near, squares, 1))
    energies, slopes, sizes = (np.where(near, values, 0) for values in pair(r, near))
    forces = -(slopes / r)[..., None] * ways
    return energies.sum() / 2, forces.sum(1), (sizes * r).sum() / 2, sizes.sum(1)[:, None]


def check(got: Any, want: tuple[float, Array, float, Array], relative: float) -> None:
    energy, forces, energy_size, sizes = want
    assert np.all(np.abs(got.forces - forces) <= relative * sizes + len(forces) * FIXED)
    assert abs(got.energy - energy) <= relative * energy_size


def unit_of(made: Any) -> float:
    """Half an ulp of 1 in a context's precision."""
    single = made.getPlatform().getPropertyValue(made, "Precision") == "single"
    return U32 if single else 2.0**-53


def test_pairs(on_device: Any, positions: Array, charges: Array) -> None:
    """Lennard-Jones' forces, and Coulomb's with a reaction field."""
    field = (DIELECTRIC - 1) / (2 * DIELECTRIC + 1) / CUTOFF**3
    shift = 3 * DIELECTRIC / (2 * DIELECTRIC + 1) / CUTOFF
    products = COULOMB * charges[:, None] * charges

    def pair(r: Array, near: Array) -> tuple[Array, Array, Array]:
        sixth = (SIGMA / r) ** 6
        energy = 4 * EPSILON * (sixth**2 - sixth) + products * (1 / r + field * r**2 - shift)
        slope = 4 * EPSILON * (-12 * sixth**2 + 6 * sixth) / r + products * (-1 / r**2 + 2 * field * r)
        size = 4 * EPSILON * (12 * sixth**2 + 6 * sixth) / r
        return energy, slope, size + np.abs(products) * (1 / r**2 + 2 * field * r + shift / r)

    # 1/r is within 4 units, its 13th power within 52; some products, and a sum of 32 in float32, come on top.
    check(evaluated(on_device, PAIRS), summed(positions, pair), 128 * unit_of(on_device))


def test_an_expression(on_device: Any, positions: Array, charges: Array) -> None:
    """A force that is compiled from a formula and its derivative."""
    products = (1 + charges[:, None]) * (1 + charges)

    def pair(r: Array, near: Array) -> tuple[Array, Array, Array]:
        power = products * np.exp(-2 * r)
        energy, slope = power * np.sin(3 * r), power * (3 * np.cos(3 * r) - 2 * np.sin(3 * r))
        return energy, slope, power * (3 + 2 / r)

    check(evaluated(on_device, WRITTEN), summed(positions, pair), 128 * unit_of(on_device))


@pytest.mark.parametrize("group", [CHAIN, BORN])
def test_the_chain_and_the_solvent(group: int, on_device: Any, reference: Any) -> None:
    """Bonds, angles and torsions; the generalized Born model, which needs two passes over the pairs."""
    got, want = evaluated(on_device, group), evaluated(reference, group)
    unit = U32 if group == BORN else unit_of(on_device)  # the platform keeps radii in float32
    size = np.abs(want.forces).max()
    np.testing.assert_allclose(got.forces, want.forces, atol=2048 * unit * size + 64 * FIXED)
    assert abs(got.energy - want.energy) <= 2048 * unit * abs(want.energy)


# A molecule of three sites, as water's, and its charges.
MOLECULE = np.round(np.array([[0, 0, 0], [0.0957, 0, 0], [-0.024, 0.0927, 0]]) / GRAIN) * GRAIN
MOLECULE_CHARGES = (-0.834, 0.417, 0.417)
GRID = 24


@pytest.fixture(scope="module")
def water() -> Any:
    """Molecules that are rigid, and pairs of particles a fixed way apart; Ewald's sum on a grid."""
    system = periodic(SIDE)
    force = mm.NonbondedForce()
    force.setNonbondedMethod(force.PME)
    force.setCutoffDistance(CUTOFF)
    force.setPMEParameters(3.0, GRID, GRID, GRID)
    centres = lattice(np.random.default_rng(2), 5, SIDE / 5, 0.03)
    points = []
    for n, centre in enumerate(centres):
        sites = range(3) if n % 5 else range(2)
        first = system.getNumParticles()
        for i in sites:
            system.addParticle((16, 1, 1)[i])
            force.addParticle(MOLECULE_CHARGES[i] if n % 5 else 0.5 - i, SIGMA, EPSILON if i == 0 else 0)
            points.append(centre + MOLECULE[i])
        for i in sites:
            for j in range(i):
                system.addConstraint(first + i, first + j, np.linalg.norm(MOLECULE[i] - MOLECULE[j]))
                force.addException(first + i, first + j, 0, 1, 0)
    add(system, force, 0)
    return system, np.array(points)


def test_ewald_sums_and_steps(water: Any) -> None:
    """Forces in double precision, and where ten steps with constraints lead."""
    system, points = water
    made = [context(system, points, precision) for precision in ("double", None)]
    got, want = (evaluated(x, 0) for x in made)
    # A cell of the grid may be wrong by FIXED for each of 125 charges near it, which act at any distance.
    cells = np.stack(np.meshgrid(*[np.arange(1, GRID + 1) / GRID * SIDE] * 3), -1)
    error = COULOMB * (FIXED * 5**3 / (cells**2).sum(-1)).sum()
    np.testing.assert_allclose(got.forces, want.forces, atol=error)
    np.testing.assert_allclose(got.energy, want.energy, rtol=1e-6)
    velocities = np.random.default_rng(3).standard_normal(points.shape)
    states = []
    for x in made:
        x.setVelocities(velocities)
        x.getIntegrator().step(10)
        states.append(plain(x.getState(getPositions=True).getPositions(asNumpy=True)))
    here, there = states
    np.testing.assert_allclose(here, there, atol=error * (10 * STEP) ** 2 + 1e-8)
    assert np.abs(here - points).max() > 1e-3
