# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scalar stores and atomics, through addresses and through buffer descriptors."""

from __future__ import annotations

import numpy as np

from ...support.asm import Case, Result, Suite
from ...support.fp import Array
from ...support.ops.memory_ops import ATOMICS, memory_is, resource
from ...support.spelling import exists

SUITE = Suite("smem_write")
WORDS = np.random.default_rng(0).integers(0, 1 << 32, 512, dtype=np.uint32)
WAIT = "s_waitcnt lgkmcnt(0)"
DATA = np.random.default_rng(1).integers(0, 1 << 32, 4, dtype=np.uint32)
LANES_OFF = 0  # EXEC: scalar memory does not ask for it


def _value(words: Array) -> int:
    return int.from_bytes(words.tobytes(), "little")


def _reg(count: int, index: int) -> str:
    return f"s{index}" if count == 1 else f"s[{index}:{index + count - 1}]"


def _stores() -> None:
    for count, suffix in ((1, "dword"), (2, "dwordx2"), (4, "dwordx4")):
        src = _reg(count, 20)
        for form, first in (("0x40", 16), ("s8", 7), ("s8 offset:0x40", 23)):
            for name, base in ((f"s_store_{suffix}", "s[70:71]"), (f"s_buffer_store_{suffix}", "s[64:67]")):
                want = WORDS.copy()
                want[first : first + count] = DATA[:count]
                SUITE.add(
                    f"{name}-{form}",
                    [f"{name} {src}, {base}, {form}", WAIT],
                    [],
                    memory_is(want),
                    {},
                    {"s8": 28, src: _value(DATA[:count]), "s[64:67]": resource(2048)},
                    WORDS,
                    covers=[name],
                )
        # Dword by dword: what is out of range is dropped.
        name, inside = f"s_buffer_store_{suffix}", count // 2
        want = WORDS.copy()
        want[8 : 8 + inside] = DATA[:inside]
        SUITE.add(
            f"{name}-range",
            [f"{name} {src}, s[64:67], 0x20", WAIT],
            [],
            memory_is(want),
            {},
            {src: _value(DATA[:count]), "s[64:67]": resource(32 + 4 * inside)},
            WORDS,
            covers=[name],
        )


def _atomic(name: str, width: int, old: Array, data: Array, new: Array, stem: str) -> None:
    """One atomic with and without glc; `data` has two values for a compare-and-swap."""
    register = _reg(len(data), 20)
    base = "s[64:67]" if "buffer" in stem else "s[70:71]"
    memory, want = WORDS.copy(), WORDS.copy()
    memory[16 : 16 + width], want[16 : 16 + width] = old, new
    kept = data.copy()
    returned = data.copy()
    returned[:width] = old
    for glc, expected in (("", kept), (" glc", returned)):

        def check(result: Result, expected: Array = expected) -> None:
            np.testing.assert_array_equal(result[register][:, 0], expected)
            memory_is(want)(result)

        SUITE.add(
            f"{name}{glc}-{'same' if len(data) > width and (new != old).any() else 'case'}",
            [f"{name} {register}, {base}, 0x40{glc}", WAIT],
            [register],
            check,
            {},
            {register: _value(data), "s[64:67]": resource(2048), "exec": LANES_OFF},
            memory,
            covers=[name],
        )


def _atomics() -> None:
    rng = np.random.default_rng(2)
    for suffix, (width, fn) in ATOMICS.items():
        kind = np.uint32 if width == 1 else np.uint64
        for stem in ("s_atomic_", "s_buffer_atomic_"):
            name = stem + suffix
            if not exists(name):
                continue
            old, data = (rng.integers(0, 1 << 32, width, dtype=np.uint32) for _ in range(2))
            _atomic(name, width, old, data, fn(old.view(kind), data.view(kind)).view(np.uint32), stem)
    for stem in ("s_atomic_", "s_buffer_atomic_"):
        for width, suffix in ((1, "cmpswap"), (2, "cmpswap_x2")):
            old, swap, other = (rng.integers(0, 1 << 32, width, dtype=np.uint32) for _ in range(3))
            _atomic(stem + suffix, width, old, np.concatenate([swap, old]), swap, stem)
            _atomic(stem + suffix, width, old, np.concatenate([swap, other]), old, stem)


def _out_of_range() -> None:
    """An atomic beyond the buffer changes nothing, and 0 comes back."""
    SUITE.add(
        "s_buffer_atomic_add-range",
        ["s_buffer_atomic_add s20, s[64:67], 0x40 glc", WAIT],
        ["s20"],
        lambda r: (memory_is(WORDS)(r), np.testing.assert_array_equal(r["s20"][:, 0], 0))[0],
        {},
        {"s20": 5, "s[64:67]": resource(64)},
        WORDS,
        covers=["s_buffer_atomic_add"],
    )


def _probes() -> None:
    """They ask the translation cache for something and change nothing."""
    for name, base in (("s_atc_probe", "s[70:71]"), ("s_atc_probe_buffer", "s[64:67]")):
        SUITE.add(
            name,
            [f"{name} 7, {base}, 0x40", WAIT],
            [],
            memory_is(WORDS),
            {},
            {"s[64:67]": resource(2048)},
            WORDS,
            covers=[name],
        )


_stores()
_atomics()
_out_of_range()
_probes()


@SUITE.parametrize()
def test_smem_write(case: Case) -> None:
    """Memory and registers after it."""
    SUITE.check(case)
