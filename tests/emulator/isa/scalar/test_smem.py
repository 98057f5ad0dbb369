# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scalar loads and their addressing, from memory and through buffer descriptors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...support.asm import Case, Result, Suite
from ...support.ops.memory_ops import resource
from ...support.spelling import exists

SUITE = Suite("smem")
WORDS = np.random.default_rng(0).integers(0, 1 << 32, 512, dtype=np.uint32)
WAIT = "s_waitcnt lgkmcnt(0)"


def _reg(count: int, index: int) -> str:
    return f"s{index}" if count == 1 else f"s[{index}:{index + count - 1}]"


def _is(name: str, want: list[int]) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        assert [hex(v) for v in result[name][:, 0]] == [hex(v) for v in want]

    return check


def _build() -> None:
    for count in (1, 2, 4, 8, 16):
        suffix = "dword" + (f"x{count}" if count > 1 else "")
        dst = _reg(count, 20)
        for form, first in (("0x40", 16), ("s8", 7), ("s8 offset:0x40", 23)):
            SUITE.add(
                f"s_load_{suffix}-{form}",
                [f"s_load_{suffix} {dst}, s[70:71], {form}", WAIT],
                [dst],
                _is(dst, WORDS[first : first + count].tolist()),
                {},
                {"s8": 28},
                WORDS,
                covers=[f"s_load_{suffix}"],
            )
        # A negative offset from a base moved forward.
        SUITE.add(
            f"s_load_{suffix}-negative",
            [
                "s_add_u32 s10, s70, 0x100",
                "s_addc_u32 s11, s71, 0",
                f"s_load_{suffix} {dst}, s[10:11], -0x20",
                WAIT,
            ],
            [dst],
            _is(dst, WORDS[56 : 56 + count].tolist()),
            {},
            {},
            WORDS,
            covers=[f"s_load_{suffix}"],
        )
        name = f"s_buffer_load_{suffix}"
        if not exists(name):
            continue
        for form, first in (("0x40", 16), ("s8", 7), ("s8 offset:0x40", 23)):
            SUITE.add(
                f"{name}-{form}",
                [f"{name} {dst}, s[64:67], {form}", WAIT],
                [dst],
                _is(dst, WORDS[first : first + count].tolist()),
                {},
                {"s8": 28, "s[64:67]": resource(2048)},
                WORDS,
                covers=[name],
            )
        # Out of range: zeros.
        SUITE.add(
            f"{name}-out",
            [f"{name} {dst}, s[64:67], 0x400", WAIT],
            [dst],
            _is(dst, [0] * count),
            {},
            {"s[64:67]": resource(512), dst: (1 << 32 * count) - 1},
            WORDS,
            covers=[name],
        )


_build()


@SUITE.parametrize()
def test_smem(case: Case) -> None:
    """The words at the address arrive."""
    SUITE.check(case)
