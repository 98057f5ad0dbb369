# SPDX-License-Identifier: MIT OR Apache-2.0
"""PennyLane's simulator for AMD GPUs: gates, measurements and gradients by Kokkos' kernels, against NumPy."""

from __future__ import annotations

import importlib
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

# The folder of the unpacked wheel; it holds no more of the package than this module.
sys.path.append(str(Path(__file__).resolve().parents[3] / "build/clients/pennylane"))
ops: Any = importlib.import_module("pennylane_lightning.lightning_amdgpu_ops")

Array = NDArray[Any]
QUBITS = 9
ANGLE = 0.7
TYPES = {"C64": (np.complex64, 2.0**-23), "C128": (np.complex128, 2.0**-52)}

I2, X, Y, Z = np.eye(2), np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])
H = (X + Z) / np.sqrt(2)


def product(*factors: Array) -> Array:
    out: Array = reduce(np.kron, factors)
    return out


def rotation(generator: Array, angle: float = ANGLE) -> Array:
    """exp(-i angle / 2 generator), whose square is a projection or 1."""
    values, vectors = np.linalg.eigh(generator)
    out: Array = (vectors * np.exp(-0.5j * angle * values)) @ vectors.conj().T
    return out


def controlled(matrix: Array, controls: int = 1) -> Array:
    """The matrix if all qubits in front are 1."""
    out = np.eye(len(matrix) << controls, dtype=complex)
    out[-len(matrix) :, -len(matrix) :] = matrix
    return out


def excitation(qubits: int, others: float) -> Array:
    """Turns 0..1.. and 1..0.. into each other; `others` is the sign of all other states' phase, or 0."""
    size, half = 1 << qubits, qubits // 2
    low, high = (1 << half) - 1, ((1 << half) - 1) << half
    out: Array = np.eye(size, dtype=complex) * np.exp(0.5j * ANGLE * others)
    cos, sin = np.cos(ANGLE / 2), np.sin(ANGLE / 2)
    out[[low, low, high, high], [low, high, low, high]] = [cos, -sin, sin, cos]
    return out


SWAP = np.eye(4)[[0, 2, 1, 3]]
PHASE = np.diag([1, np.exp(1j * ANGLE)])
ROT = rotation(Z, 0.3) @ rotation(Y, ANGLE) @ rotation(Z, -0.4)
ONE, THREE = [ANGLE], [-0.4, ANGLE, 0.3]
# Name: matrix and numbers.
GATES: dict[str, tuple[Array, list[float]]] = {
    **{name: (matrix, []) for name, matrix in {"PauliX": X, "PauliY": Y, "PauliZ": Z, "Hadamard": H}.items()},
    "S": (np.diag([1, 1j]), []),
    "T": (np.diag([1, np.exp(0.25j * np.pi)]), []),
    "SX": (0.5 * np.array([[1 + 1j, 1 - 1j], [1 - 1j, 1 + 1j]]), []),
    "PhaseShift": (PHASE, ONE),
    **{f"R{name}": (rotation(matrix), ONE) for name, matrix in {"X": X, "Y": Y, "Z": Z}.items()},
    "Rot": (ROT, THREE),
    "CNOT": (controlled(X), []),
    "CY": (controlled(Y), []),
    "CZ": (controlled(Z), []),
    "SWAP": (SWAP, []),
    "CSWAP": (controlled(SWAP), []),
    "Toffoli": (controlled(X, 2), []),
    "ControlledPhaseShift": (controlled(PHASE), ONE),
    **{f"CR{name}": (controlled(rotation(m)), ONE) for name, m in {"X": X, "Y": Y, "Z": Z}.items()},
    "CRot": (controlled(ROT), THREE),
    **{f"Ising{n}{n}": (rotation(product(m, m)), ONE) for n, m in {"X": X, "Y": Y, "Z": Z}.items()},
    "IsingXY": (rotation(-(product(X, X) + product(Y, Y)) / 2), ONE),
    "MultiRZ": (rotation(product(Z, Z, Z)), ONE),
    "PSWAP": (SWAP * np.array([1, np.exp(1j * ANGLE), np.exp(1j * ANGLE), 1]), ONE),
    "SingleExcitation": (excitation(2, 0), ONE),
    "SingleExcitationMinus": (excitation(2, -1), ONE),
    "SingleExcitationPlus": (excitation(2, 1), ONE),
    "DoubleExcitation": (excitation(4, 0), ONE),
    "DoubleExcitationMinus": (excitation(4, -1), ONE),
    "DoubleExcitationPlus": (excitation(4, 1), ONE),
}
WIRES = [5, 0, 7, 3]


def applied(matrix: Array, wires: list[int], state: Array) -> Array:
    """A matrix on some qubits of a state; qubit 0 is the highest bit."""
    count = len(wires)
    shaped = matrix.reshape((2,) * (2 * count))
    out = np.tensordot(shaped, state.reshape((2,) * QUBITS), (range(count, 2 * count), wires))
    return np.moveaxis(out, range(count), wires).ravel()


def drawn(kind: str) -> tuple[Any, Array]:
    """A state on the device, and the same in complex128."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, 1 << QUBITS))
    host = ((values[0] + 1j * values[1]) / np.linalg.norm(values)).astype(TYPES[kind][0])
    state = getattr(ops, f"StateVector{kind}")(QUBITS)
    state.HostToDevice(host)
    return state, host.astype(np.complex128)


def check(state: Any, exact: Array, kind: str, gates: int = 1) -> None:
    dtype, unit = TYPES[kind]
    got = np.zeros(len(exact), dtype)
    state.DeviceToHost(got)
    assert np.abs(got - exact).max() <= 16 * gates * unit * np.abs(exact).max()


@pytest.mark.parametrize("kind", TYPES)
def test_gates(kind: str) -> None:
    """Each on other qubits than the lowest, and back again."""
    for name, (matrix, numbers) in GATES.items():
        state, host = drawn(kind)
        wires = WIRES[: len(matrix).bit_length() - 1]
        getattr(state, name)(wires, False, numbers)
        check(state, applied(matrix, wires, host), kind)
        getattr(state, name)(wires, True, numbers)
        check(state, host, kind, 2)


@pytest.mark.parametrize("kind", TYPES)
def test_controlled_gates(kind: str) -> None:
    """The control is a qubit that is 0, then one that is 1."""
    for name in (
        "PauliX",
        "Hadamard",
        "RY",
        "Rot",
        "IsingXX",
        "SWAP",
        "SingleExcitation",
        "DoubleExcitation",
    ):
        matrix, numbers = GATES[name]
        state, host = drawn(kind)
        count = len(matrix).bit_length() - 1
        getattr(state, name)([2, 8], [False, True], WIRES[:count], False, numbers)
        both = product(np.diag([1, 0]), np.diag([0, 1]))
        full = np.kron(both, matrix - np.eye(len(matrix))) + np.eye(len(matrix) * 4)
        check(state, applied(full, [2, 8, *WIRES[:count]], host), kind)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_any_matrix(count: int, kind: str) -> None:
    rng = np.random.default_rng(count)
    matrix, _ = np.linalg.qr(rng.standard_normal((2, 1 << count, 1 << count)).T @ np.array([1, 1j]))
    given = np.ascontiguousarray(matrix.astype(TYPES[kind][0]))
    state, host = drawn(kind)
    state.applyMatrix(given.ravel(), WIRES[:count], False)
    check(state, applied(given.astype(complex), WIRES[:count], host), kind, count)


@pytest.mark.parametrize("kind", TYPES)
def test_measurements(kind: str) -> None:
    state, host = drawn(kind)
    measured, unit = getattr(ops, f"Measurements{kind}")(state), TYPES[kind][1]
    chances = np.abs(host) ** 2
    np.testing.assert_allclose(measured.probs(), chances, atol=64 * unit * chances.max())
    some = chances.reshape((2,) * QUBITS).sum((1, 2, 3, 4, 6, 7, 8))
    np.testing.assert_allclose(measured.probs([0, 5]), some.ravel(), atol=64 * unit)
    for name, matrix in {"PauliX": X, "PauliY": Y, "PauliZ": Z, "Hadamard": H}.items():
        mean = np.vdot(host, applied(matrix, [3], host)).real
        assert abs(measured.expval(name, [3]) - mean) <= 64 * unit
        assert abs(measured.var(name, [3]) - (1 - mean**2)) <= 128 * unit
    state.setBasisState([1, 0, 1], [0, 4, 8])
    samples = measured.generate_samples(QUBITS, 50)
    np.testing.assert_array_equal(np.reshape(samples, (50, QUBITS)), [[1, 0, 0, 0, 0, 0, 0, 0, 1]] * 50)


@pytest.mark.parametrize("kind", TYPES)
def test_gradient_by_the_adjoint_method(kind: str) -> None:
    """The sum of two observables has gradients by the angles of three gates."""
    named = getattr(ops.observables, f"NamedObs{kind}")
    both = getattr(ops.observables, f"Hamiltonian{kind}")
    observable = both(np.array([0.5, -2], TYPES[kind][0]).real, [named("PauliZ", [1]), named("PauliX", [2])])
    names, angles, wires = ["RX", "RY", "IsingXX"], [0.3, -0.8, 1.1], [[1], [2], [1, 2]]
    generators = [X, Y, product(X, X)]
    steps = getattr(ops.algorithms, f"create_ops_list{kind}")(
        names,
        [[a] for a in angles],
        wires,
        [False] * 3,
        [np.zeros(0, TYPES[kind][0])] * 3,
        [[]] * 3,
        [[]] * 3,
    )

    def run(values: list[float]) -> Array:
        host: Array = np.eye(1, 1 << QUBITS, dtype=complex)[0]
        for generator, angle, where in zip(generators, values, wires, strict=True):
            host = applied(rotation(generator, angle), where, host)
        return host

    def mean(values: list[float]) -> float:
        host = run(values)
        out = 0.5 * applied(Z, [1], host) - 2 * applied(X, [2], host)
        return float(np.vdot(host, out).real)

    exact = []
    for n in range(3):  # a rotation's derivative is half the difference of two means, a quarter turn away
        turned = [[a + turn * (m == n) for m, a in enumerate(angles)] for turn in (np.pi / 2, -np.pi / 2)]
        exact.append((mean(turned[0]) - mean(turned[1])) / 2)
    state = getattr(ops, f"StateVector{kind}")(QUBITS)
    for name, angle, where in zip(names, angles, wires, strict=True):
        getattr(state, name)(where, False, [angle])
    check(state, run(angles), kind, 3)
    adjoint = getattr(ops.algorithms, f"AdjointJacobian{kind}")()
    got = adjoint(state, [observable], steps, [0, 1, 2])
    np.testing.assert_allclose(np.ravel(got), exact, atol=256 * TYPES[kind][1])
