# SPDX-License-Identifier: MIT OR Apache-2.0
"""Orders of the waves between barriers: what is right in one must be right in all."""

from __future__ import annotations

import struct
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from cases import Case, run_raw
from numpy.typing import NDArray

from ..support import hip, rows
from ..support.asm import RETURN, Kernel, assemble
from ..support.findings import ARGS, HEAD, only
from ..support.kernels import built_for

_WAVES = 4
_ROUNDS = 30
_SCHEDULES = ("round", "reverse", "random:1")


@cache
def _module() -> hip.Module:
    """`turns` writes the number of the wave at each turn it gets; `lucky` is right if wave 0 goes first."""
    turns = [
        *HEAD,
        "s_mov_b64 exec, 1",
        "v_mov_b32 v3, 0",
        "v_mov_b32 v4, 4",
        "v_mov_b32 v5, s10",
        "s_movk_i32 s11, 0",
        "turns_loop:",
        f"global_atomic_add v6, v3, v4, s[8:9] {RETURN}",
        "s_waitcnt vmcnt(0)",
        "global_store_dword v6, v5, s[8:9] offset:4",
        "s_add_u32 s11, s11, 1",
        f"s_cmp_lt_u32 s11, {_ROUNDS}",
        "s_cbranch_scc1 turns_loop",
        "s_endpgm",
    ]
    lucky = [
        *HEAD,
        *only(0, "lucky_a", ["ds_write_b32 v1, v1 offset:256", "s_waitcnt lgkmcnt(0)"]),
        *only(
            1,
            "lucky_b",
            ["ds_read_b32 v2, v1", "s_waitcnt lgkmcnt(0)", "global_store_dword v1, v2, s[8:9]"],
        ),
        "s_endpgm",
    ]
    return hip.Module(
        assemble([Kernel("turns", turns, args=ARGS), Kernel("lucky", lucky, args=ARGS, lds=1024)])
    )


def _run(kernel: str, waves: int, count: int) -> NDArray[np.uint32]:
    buffer = hip.Buffer.of(np.zeros(4096, np.uint32))
    try:
        _module().launch(kernel, struct.pack("<Q", buffer.address), block=(64 * waves, 1, 1))
        return buffer.read()[:count].copy()
    finally:
        buffer.free()


def _turns(monkeypatch: pytest.MonkeyPatch, schedule: str) -> list[int]:
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", schedule)
    out = _run("turns", _WAVES, 1 + _WAVES * _ROUNDS)
    assert out[0] == 4 * _WAVES * _ROUNDS
    return [int(w) for w in out[1:]]


def test_round_and_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wave runs to its end in turn, the first or the last before the others."""
    in_turn = [w for w in range(_WAVES) for _ in range(_ROUNDS)]
    assert _turns(monkeypatch, "round") == in_turn
    assert _turns(monkeypatch, "") == in_turn
    assert _turns(monkeypatch, "reverse") == in_turn[::-1]


def test_random_order_is_that_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves are interrupted between barriers; the same seed repeats it, another does not."""
    first = _turns(monkeypatch, "random:1")
    assert sorted(first) == [w for w in range(_WAVES) for _ in range(_ROUNDS)]
    switches = sum(a != b for a, b in pairwise(first))
    assert switches > 2 * _WAVES, first
    assert _turns(monkeypatch, "random:1") == first
    assert _turns(monkeypatch, "random:2") != first


def test_kernel_that_works_by_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a barrier the result hangs on the order; the check of races needs no luck to see it."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", "round")
    expected = np.arange(64, dtype=np.uint32) * 4
    assert (_run("lucky", 2, 128)[64:] == expected).all()
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", "reverse")
    assert not (_run("lucky", 2, 128)[64:] == expected).any()
    monkeypatch.delenv("FMHA_EMU_CHECKS")
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", "round")
    with pytest.raises(hip.HipError) as caught:
        _run("lucky", 2, 128)
    assert "LDS race" in caught.value.fault


@pytest.mark.parametrize("text", ["backwards", "random", "random:", "random:x", "random:1x", "Round"])
def test_unknown_schedule(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A name that is no schedule fails the launch, whose message repeats it."""
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", text)
    with pytest.raises(hip.HipError) as caught:
        _run("turns", 1, 1)
    assert caught.value.code == 1
    assert f'random:<seed>, a seed of 64 bits, got "{text}"' in caught.value.fault


def test_budget_holds_in_every_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of instructions is the wave's own, however often it is interrupted."""
    monkeypatch.setenv("FMHA_EMU_MAX_INSTRUCTIONS", "60")
    for schedule in _SCHEDULES:
        monkeypatch.setenv("FMHA_EMU_SCHEDULE", schedule)
        with pytest.raises(hip.HipError) as caught:
            _run("turns", _WAVES, 1)
        assert "has run 60 instructions" in caught.value.fault


@pytest.mark.skipif(not built_for(rows.arch()), reason=f"the library has no kernels for {rows.arch()}")
@pytest.mark.parametrize("schedule", _SCHEDULES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("hdim", [64, 128])
def test_forward_kernels(monkeypatch: pytest.MonkeyPatch, schedule: str, dtype: str, hdim: int) -> None:
    """Every forward kernel, with and without mask and padding, clean and right in every order."""
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", schedule)
    shapes = ((256, 256, False), (200, 333, False), (256, 384, True), (130, 200, True))
    for seqlen_q, seqlen_k, causal in shapes:
        run_raw(
            Case(
                batch=1,
                seqlen_q=seqlen_q,
                seqlen_k=seqlen_k,
                nhead_k=1,
                ratio=2,
                hdim=hdim,
                dtype=dtype,
                seed=7,
                causal=causal,
            )
        )
