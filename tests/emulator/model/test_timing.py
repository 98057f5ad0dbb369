# SPDX-License-Identifier: MIT OR Apache-2.0
"""The model of a compute unit against cycles counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ..support import rows
from ..support.timing import BIG, BIG_SLOTS, EXACT, SMALL, SMALL_SLOTS, cycles_each, timed, unit_cycles

SLOT = 4
_ZERO = [f"v_mov_b32 v{i}, 0" for i in range(16, 64)] + [f"v_accvgpr_write_b32 a{i}, 0" for i in range(64)]
_PACKED = "v_pk_add_f32 v[40:41], v[42:43], v[44:45]"


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """LDS may be read that nobody wrote."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")


def _mfma(name: str, d: int, a: str = "v[16:17]") -> str:
    size = 16 if name == BIG else 4
    return f"{name} a[{d}:{d + size - 1}], {a}, v[18:19], a[{d}:{d + size - 1}]"


def _each(body: list[str], **kwargs: Any) -> float:
    return cycles_each(body, before=[*_ZERO, "s_nop 4"], **kwargs)


def test_matrix_chain() -> None:
    """An accumulator is passed on at once: a chain keeps the pipe as busy as independent ones."""
    assert _each([_mfma(BIG, 0)]) == BIG_SLOTS * SLOT
    assert _each([_mfma(BIG, 0), _mfma(BIG, 16)]) == 2 * BIG_SLOTS * SLOT
    assert _each([_mfma(SMALL, 0)]) == SMALL_SLOTS * SLOT


def test_matrix_result() -> None:
    """Other readers of a result wait for the passes and four slots more."""
    copy = ["s_nop 15", "s_nop 3", "v_accvgpr_read_b32 v20, a0", "s_nop 1"]  # 16 + 4 + 1 + 2 slots
    states = 1 + 16 + 4 + 1 + 2
    assert _each([_mfma(BIG, 0), *copy]) == states * SLOT  # software waits longer
    late = EXACT | {"matrix_result_slots": 20}
    assert _each([_mfma(BIG, 0), *copy], constants=late) == (BIG_SLOTS + 20 + 1 + 2) * SLOT


def test_vector_rates() -> None:
    add = "v_add_f32 v40, v41, v42"
    assert _each([add]) == SLOT
    assert _each(["v_exp_f32 v40, v41"]) == 4 * SLOT
    assert _each([_PACKED]) == SLOT
    chain = "v_add_f32 v40, v40, v42"
    assert _each([chain]) == SLOT
    assert _each([chain], constants=EXACT | {"vector_result_slots": 1}) == 2 * SLOT
    assert _each([add], constants=EXACT | {"vector_result_slots": 1}) == 2 * SLOT  # in order, same register
    assert _each([add, "v_add_f32 v43, v41, v42"], constants=EXACT | {"vector_result_slots": 1}) == 2 * SLOT


def test_two_waves_share_the_vector_port() -> None:
    add = ["v_add_f32 v40, v41, v42"]
    assert _each(add, block=256) == SLOT  # a wave on each SIMD
    assert _each(add, block=512) == 2 * SLOT


def _halves(first: list[str], second: list[str], n: int) -> list[str]:
    """Waves 0 to 3 run the first, waves 4 to 7 the second, n times: one of each on every SIMD."""
    return [
        *_ZERO,
        "s_barrier",
        "s_cmp_lt_u32 s12, 4",
        "s_cbranch_scc0 second",
        *first * n,
        "s_endpgm",
        "second:",
        *second * n,
    ]


def _beside(first: list[str], second: list[str], **constants: float) -> float:
    n = 16
    short, long = (
        unit_cycles(timed(_halves(first, second, k), block=512, constants=EXACT | constants))
        for k in (n, 2 * n)
    )
    return (long - short) / n


def test_vector_beside_matrix() -> None:
    """Two waves of a SIMD use both ports at once, but packed fp32 waits for the matrix pipe."""
    matrix, add = [_mfma(BIG, 0)], ["v_add_f32 v40, v41, v42"]
    assert _beside(matrix, add * 4) == BIG_SLOTS * SLOT
    assert _beside(matrix, add * (BIG_SLOTS - 1)) == BIG_SLOTS * SLOT
    assert _beside(matrix, add * (BIG_SLOTS + 4)) == (BIG_SLOTS + 4) * SLOT
    assert _beside(matrix, add * BIG_SLOTS, matrix_issue_slots=1) == (BIG_SLOTS + 1) * SLOT
    assert _beside(matrix, [_PACKED] * 4) == (BIG_SLOTS + 4) * SLOT


def _linear(shift: int) -> list[str]:
    return [f"v_lshlrev_b32 v1, {shift}, v9", "v_and_b32 v1, 0x7fff, v1"]


@pytest.mark.parametrize("waves", [1, 4, 8])
@pytest.mark.usefixtures("unchecked")
def test_lds_throughput(waves: int) -> None:
    """Waves share the 128 bytes a cycle; without a wait between, only the queue holds them up."""
    read = ["ds_read_b128 v[40:43], v1", "ds_read_b128 v[44:47], v1"]
    each = cycles_each(
        read, n=16, before=_linear(4), after=["s_waitcnt lgkmcnt(0)"], block=64 * waves, lds=32768
    )
    assert each == 2 * waves * 8


@pytest.mark.usefixtures("unchecked")
def test_lds_conflicts() -> None:
    read = ["ds_read_b32 v40, v1"]
    after = ["s_waitcnt lgkmcnt(0)"]
    free = cycles_each(read, n=32, before=_linear(2), after=after, block=256, lds=32768)
    bound = cycles_each(read, n=32, before=_linear(7), after=after, block=256, lds=32768)
    assert free == 4 * 2
    assert bound == 4 * 64


@pytest.mark.usefixtures("unchecked")
def test_lds_latency() -> None:
    body = ["ds_read_b32 v40, v1", "s_waitcnt lgkmcnt(0)"]
    constants = EXACT | {"lds_latency": (64, 128)}
    record = [
        timed([*_linear(2), *body * n], lds=32768, constants=constants)["time"]["units"][0]["cycles"]
        for n in (4, 8)
    ]
    # Turn of 2 cycles and the latency, to a whole slot; s_waitcnt goes then, the next read a slot later.
    assert (record[1]["low"] - record[0]["low"]) / 4 == 68 + SLOT
    assert (record[1]["high"] - record[0]["high"]) / 4 == 132 + SLOT


def test_waits_count_in_order() -> None:
    """s_waitcnt vmcnt(1) waits for the first of two loads, and what comes behind hides the second."""
    constants = EXACT | {"l1_latency": 400, "l2_latency": 400, "mall_latency": 400, "hbm_latency": 400}
    load = "global_load_dword v{}, v1, s[8:9]"
    work = ["v_add_f32 v50, v41, v42"] * 40

    def cycles(*lines: str) -> int:
        before = [*_ZERO, "v_lshlrev_b32 v1, 2, v9"]
        return unit_cycles(timed([*before, *lines], constants=constants))

    both = cycles(load.format(40), *work, load.format(41), "s_waitcnt vmcnt(0)")
    first = cycles(load.format(40), *work, load.format(41), "s_waitcnt vmcnt(1)")
    assert both - first == (len(work) + 1) * SLOT


def test_no_operation() -> None:
    assert cycles_each(["s_nop 0"]) == SLOT
    assert cycles_each(["s_nop 7"]) == 8 * SLOT


def test_branches() -> None:
    constants = EXACT | {"taken_branch_slots": (4, 8), "branch_slots": (2, 3)}
    for end, taken, passed in (("low", 4, 2), ("high", 8, 3)):

        def cycles(n: int, end: str = end) -> int:
            loop = [f"s_mov_b32 s13, {n}", "again:", "s_sub_u32 s13, s13, 1", "s_cmp_lg_u32 s13, 0"]
            record = timed([*loop, "s_cbranch_scc1 again", "s_nop 0"], constants=constants)
            return unit_cycles(record, end)

        assert (cycles(9) - cycles(4)) / 5 == (2 + taken) * SLOT
        none = unit_cycles(timed(["s_mov_b32 s13, 1", "s_nop 0"], constants=constants), end)
        assert cycles(1) - none == (2 + passed) * SLOT


@pytest.mark.parametrize(("adds", "slots"), [(6, 4 * BIG_SLOTS), (100, 100 + 1)])
def test_barriers_ping_pong(adds: int, slots: int) -> None:
    """Two groups change places at barriers: each phase lasts as long as the longer of its halves."""
    matrix, vector = [_mfma(BIG, 0)] * 4, ["v_add_f32 v40, v41, v42"] * adds
    first = [*matrix, "s_barrier", *vector, "s_barrier"]
    second = [*vector, "s_barrier", *matrix, "s_barrier"]
    n = 8
    short, long = (unit_cycles(timed(_halves(first, second, k), block=512)) for k in (n, 2 * n))
    # The matrix pipe is never idle; or the vector port is for s_barrier only.
    assert (long - short) / n == 2 * slots * SLOT


def test_barrier_waits_for_the_last() -> None:
    slow, fast = ["v_exp_f32 v40, v41"] * 8, ["v_add_f32 v40, v41, v42"]
    n = 4

    def cycles(k: int) -> int:
        return unit_cycles(timed(_halves([*slow, "s_barrier"], [*fast, "s_barrier"], k), block=512))

    # 32 slots, one of the other wave's between them or not, s_barrier, one until it is left.
    each = (cycles(2 * n) - cycles(n)) / n / SLOT
    assert 8 * 4 + 1 <= each <= 8 * 4 + 3


def test_priority() -> None:
    """The wave with the higher priority goes first, though it is younger."""
    work = ["v_add_f32 v40, v41, v42"] * 64
    sync = ["s_barrier", "s_nop 0"]
    for raised in (False, True):
        second = [f"s_setprio {int(raised)}", *sync, *work]
        record = timed(_halves(["s_setprio 0", *sync, *work], second, 1), block=512, events=100000)
        events = record["time"]["events"]
        last = [0, 0]
        for wave, slot in zip(events["wave"], events["slot"], strict=True):
            last[wave >= 4] = max(last[wave >= 4], slot)
        assert (last[1] < last[0]) == raised


def test_events() -> None:
    record = timed([*_ZERO, _mfma(BIG, 0), _mfma(BIG, 0)], block=256, events=100000)
    events = record["time"]["events"]
    count = record["counted"]["instructions"]["total"]
    assert {len(events[k]) for k in ("wave", "simd", "slot", "slots", "stalled", "reason")} == {count}
    assert events["slot_cycles"] == SLOT
    matrix = [i for i, e in events["instructions"].items() if e["class"] == "mfma"]
    assert len(matrix) == 2
    assert all(events["instructions"][i]["text"].startswith(BIG) for i in matrix)
    second = [n for n, i in enumerate(events["instruction"]) if str(i) == max(matrix, key=int)]
    assert len(second) == 4
    for n in second:
        assert events["slots"][n] == BIG_SLOTS
        assert events["stalled"][n] == BIG_SLOTS - 1
        assert events["reasons"][events["reason"][n]] in ("port", "registers")
    assert sorted(events["simd"][n] for n in second) == [0, 1, 2, 3]
    few = timed(_ZERO, events=5)["time"]["events"]
    assert len(few["wave"]) == 5


@pytest.mark.usefixtures("unchecked")
def test_binds() -> None:
    """Shares of the ports, and of what keeps them idle."""
    n = 200
    matrix = timed([*_ZERO, *[_mfma(BIG, 0)] * n], block=256)["time"]
    assert 0.9 < matrix["binds"]["matrix"] <= 1
    flops = 4 * n * 2 * 32 * 32 * 8  # of four waves
    for end, other in (("low", "high"), ("high", "low")):
        assert matrix["tflops"][end] == pytest.approx(flops / matrix["seconds"][other] / 1e12)
    assert matrix["binds"]["latency"] == matrix["binds"]["barriers"] == 0
    slow = EXACT | {"lds_latency": 400}
    read = ["ds_read_b32 v40, v1", "s_waitcnt lgkmcnt(0)", "v_mov_b32 v41, v40"]
    wait = timed(["v_mov_b32 v1, 0", *read * n], block=256, lds=256, constants=slow)["time"]
    assert wait["binds"]["latency"] > 0.9
    assert wait["binds"]["vector"] < 0.05


def test_the_same_each_time() -> None:
    lines = [
        *_ZERO,
        "v_lshlrev_b32 v1, 4, v9",
        "global_load_dwordx4 v[40:43], v1, s[8:9]",
        "s_waitcnt vmcnt(0)",
    ]
    first, second = (timed(lines, block=512, grid=(40, 2, 1), constants={}) for _ in range(2))
    assert first["time"] == second["time"]
    for name in ("cycles", "seconds", "clock_hz", "tflops"):
        assert first["time"][name]["low"] <= first["time"][name]["high"]
    assert rows.arch() in first["arch"]
