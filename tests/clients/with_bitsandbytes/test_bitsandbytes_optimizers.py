# SPDX-License-Identifier: MIT OR Apache-2.0
"""bitsandbytes' optimizers for ROCm, a step of each: states in float32, and in 8 bits by blocks of 256."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from clients.rounding import U32, draw, eps
from clients.with_bitsandbytes.bitsandbytes_library import DTYPES, Array, call, dynamic_map, on_device

from pyfa_rocm import DeviceArray

BLOCK = 256
WHOLE, RAGGED = 2 * 4096, 4096 + 333  # a kernel's workgroup takes 4096 elements
NAMES = tuple(DTYPES)
TWO_STATES = ("adam", "ademamix")
# Weight decay is part of their gradient. With states in float32 there are none for bf16.
COUPLED = ("momentum", "rmsprop", "adagrad")
KINDS = (*TWO_STATES, *COUPLED, "lion")


@dataclass(frozen=True)
class Step:
    """The numbers of a step. A power of two for `scale`, so that a scaled gradient is exact."""

    beta1: float = 0.9
    beta2: float = 0.95
    beta3: float = 0.98
    alpha: float = 2.0
    eps: float = 1e-3
    decay: float = 0.0
    step: int = 10
    rate: float = 0.125
    scale: float = 0.5
    most: float = 0.0  # times the parameters' norm: what an update's may be; 0 for any
    norm: float = 1.0


def function(kind: str, name: str) -> str:
    """The C function of an optimizer with states in float32."""
    return f"c{kind}32bit_grad_" + (name.removeprefix("fp") if kind in COUPLED else name)


def moved(kind: str, s: Step, g: Array, p: Array, states: list[Array]) -> tuple[Array, Array, list[Array]]:
    """The update of each parameter, parameters and states behind the step, without any rounding.

    The gradient already has what weight decay adds to it.
    """
    first, kept = states[0], 1 - s.rate * s.decay
    if kind in TWO_STATES:
        correction1, correction2 = 1 - s.beta1**s.step, np.sqrt(1 - s.beta2**s.step)
        first = first * s.beta1 + (1 - s.beta1) * g
        second = states[1] * s.beta2 + (1 - s.beta2) * g * g
        below = np.sqrt(second) / correction2 + s.eps
        if kind == "adam":
            update = first / correction1 / below
            return update, (p - s.rate * update) * kept, [first, second]
        slow = states[2] * s.beta3 + (1 - s.beta3) * g
        update = (first / correction1 + s.alpha * slow) / below
        return update, (p - s.rate * update) * kept, [first, second, slow]
    if kind == "lion":
        update = np.sign(first * s.beta1 + (1 - s.beta1) * g)
        return update, p * kept - s.rate * update, [first * s.beta2 + (1 - s.beta2) * g]
    if kind == "momentum":
        first = update = first * s.beta1 * (s.step > 1) + g
    else:
        first = first + g * g if kind == "adagrad" else first * s.beta1 + (1 - s.beta1) * g * g
        update = g / (np.sqrt(first) + s.eps)
    return update, p - s.rate * update, [first]


def drawn(kind: str, name: str, count: int) -> tuple[Array, Array, list[Array]]:
    """Gradients, parameters, and states as they may be: a square's is not negative, none is tiny."""
    rng = np.random.default_rng(count)
    g, p = (draw(rng, (count,), DTYPES[name]) for _ in range(2))
    signed = rng.standard_normal((2, count)).astype(np.float32)
    square = rng.uniform(0.1, 2, count).astype(np.float32)
    if kind in TWO_STATES:
        return g, p, [signed[0], square, signed[1]][: 2 + (kind == "ademamix")]
    return g, p, [signed[0] if kind in ("momentum", "lion") else square]


def check(got: Array, exact: Array, sizes: Array, dtype: Any) -> None:
    """Assert that errors are a few roundings, to the type, of numbers of these sizes."""
    assert np.all(np.abs(got.astype(np.float64) - exact) <= 3 * (eps(dtype) + 16 * U32) * sizes)


def step_sizes(kind: str, s: Step, g: Array, p: Array, states: list[Array], update: Array) -> Array:
    """Sum up the sizes of the numbers that make a parameter: terms of an update may cancel."""
    terms, _, _ = moved(kind, s, np.abs(g), np.abs(p), [np.abs(state) for state in states])
    sizes: Array = np.abs(p) + s.rate * (np.abs(update) + np.abs(terms))
    return sizes


def held(arrays: list[Array]) -> list[DeviceArray]:
    """Up to three states' arrays as the kernels want them: the third, AdEMAMix', lies behind the first."""
    return [on_device(np.concatenate([arrays[0], *arrays[2:]])), *map(on_device, arrays[1:2])]


def taken(arrays: list[DeviceArray], count: int) -> list[Array]:
    """The states' arrays, of `count` elements."""
    first, *rest = (a.to_numpy() for a in arrays)
    return [first[:count], *rest, first[count:]]


def run_32_bit(kind: str, name: str, s: Step, count: int) -> None:
    g, p, states = drawn(kind, name, count)
    parameters, gradients, norm = on_device(p), on_device(g), on_device(np.full(1, np.nan, np.float32))
    here = held(states)
    numbers = (s.most, s.norm, s.beta1, s.beta2, s.beta3, s.alpha, s.eps, s.decay, s.step, s.rate, s.scale)
    pair = [*here, None][:2]
    call(function(kind, name), gradients, parameters, *pair, norm, *numbers, False, count)

    wide = [x.astype(np.float64) for x in (g, p, *states)]
    coupled = s.decay if kind in COUPLED else 0
    scaled = wide[0] * s.scale + wide[1] * coupled
    update, after, kept = moved(kind, s, scaled, wide[1], wide[2:])
    if s.most:  # of the gradient alone, without the decay
        bare, _, _ = moved(kind, s, wide[0] * s.scale, wide[1], wide[2:])
        total = (bare**2).sum()
        np.testing.assert_allclose(norm.to_numpy(), total, rtol=count * U32 + 8 * eps(DTYPES[name]))
        limit = s.most * s.norm + (s.eps if kind != "adam" else 0)
        factor = min(1.0, limit / np.sqrt(total))
        assert factor < 1
        after = after if kind == "adagrad" else wide[1] - s.rate * factor * update
    sizes = step_sizes(kind, s, scaled, wide[1], wide[2:], update)
    check(parameters.to_numpy(), after, sizes, DTYPES[name])
    # A gradient that has the decay in it is rounded to its own type first.
    dtype = DTYPES[name] if coupled else np.float32
    for state, exact, before in zip(taken(here, count), kept, wide[2:], strict=False):
        check(state, exact, np.abs(before) + np.abs(scaled) + scaled**2, dtype)


@pytest.mark.parametrize(("decay", "count"), [(0.0, WHOLE), (0.25, RAGGED)])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in NAMES if kind not in COUPLED or name != "bf16"],
)
def test_states_in_float32(
    kind: str, name: str, decay: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a last block on gfx1100 lanes exchange, through LDS, what nobody wrote and nobody uses."""
    if count == RAGGED:
        monkeypatch.setenv("FMHA_EMU_CHECKS", "-lds-unwritten")
    run_32_bit(kind, name, Step(decay=decay), count)


@pytest.mark.parametrize("name", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", ["adam", *COUPLED])
def test_bounded_update(kind: str, name: str) -> None:
    """A kernel before finds the update's norm, and the step is shortened to what it may be."""
    run_32_bit(kind, name, Step(most=0.5, norm=3.0), WHOLE)


def test_first_step_of_momentum() -> None:
    """It takes the gradient for its state, whatever that was."""
    run_32_bit("momentum", "fp32", Step(step=1), 700)


def nearest(values: Array, book: Array) -> Array:
    """Codes of the nearest values, moved by one if the sign would differ."""
    codes: Array = np.abs(book.astype(np.float64) - values[:, None]).argmin(1)
    if book[0] < 0:
        codes += np.where(np.signbit(book[codes]) != np.signbit(values), np.where(values > 0, 1, -1), 0)
    return codes


def check_state(codes: Array, absmax: Array, exact: Array, book: Array) -> None:
    """An 8-bit state: its blocks' scales, and the code of each element, or of one 16 roundings away."""
    largest = np.abs(np.pad(exact, (0, -len(exact) % BLOCK)).reshape(-1, BLOCK)).max(1)
    np.testing.assert_allclose(absmax, largest, rtol=16 * U32)
    scaled = exact / np.repeat(largest, BLOCK)[: len(exact)]
    around = [nearest(scaled * (1 + factor), book) for factor in (-16 * U32, 0, 16 * U32)]
    assert np.all(np.any([codes == a for a in around], 0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_states_in_8_bits(kind: str, name: str) -> None:
    s, count = Step(decay=0.25 if kind in ("adam", "lion") else 0.0), 4 * BLOCK
    count -= 0 if kind == "ademamix" else 33  # whose third state begins at a block
    g, p, states = drawn(kind, name, count)
    books = [dynamic_map(signed=kind in (*TWO_STATES, "momentum", "lion")), dynamic_map(signed=False)]
    books.append(books[0])
    rng = np.random.default_rng(1)
    scales = [rng.uniform(0.5, 2, -(count // -BLOCK)).astype(np.float32) for _ in states]
    codes = [
        nearest(x / np.abs(x).max(), book).astype(np.uint8) for x, book in zip(states, books, strict=False)
    ]
    parameters, here, bounds = on_device(p), held(codes), held(scales)
    maps = [on_device(book) for book in books[:2]]
    call(
        f"c{kind}_8bit_blockwise_grad_{name}",
        *(parameters, on_device(g), *[*here, None][:2]),
        *(s.beta1, s.beta2, s.beta3, s.alpha, s.eps, s.step, s.rate),
        *(*maps, *[*bounds, None][:2], s.decay, s.scale, False, count),
    )
    before = [
        book.astype(np.float64)[code] * np.repeat(scale, BLOCK)[:count]
        for book, code, scale in zip(books, codes, scales, strict=False)
    ]
    wide = [x.astype(np.float64) for x in (g, p)]
    if kind in ("rmsprop", "adagrad"):  # they scale the gradient for the state, and not for the update
        _, _, after = moved(kind, s, wide[0] * s.scale, wide[1], before)
        update = wide[0] / (np.sqrt(after[0]) + s.eps)
        exact = wide[1] - s.rate * update
    else:
        update, exact, after = moved(kind, s, wide[0] * s.scale, wide[1], before)
    sizes = step_sizes(kind, s, wide[0] * s.scale, wide[1], before, update)
    check(parameters.to_numpy(), exact, sizes, DTYPES[name])
    found = zip(taken(here, count), taken(bounds, -(count // -BLOCK)), after, books, strict=False)
    for state, largest, wanted, book in found:
        check_state(state, largest, wanted, book)
