# SPDX-License-Identifier: MIT OR Apache-2.0
"""LDS: bytes that nobody wrote, and waves that meet there without a barrier between."""

from __future__ import annotations

import re

import pytest

from ..support.findings import Kernels, only

_DRAIN = "s_waitcnt lgkmcnt(0)"
_LANDED = "s_waitcnt vmcnt(0)"
_BARRIER = "s_barrier"
_WRITE = ["ds_write_b32 v1, v1", "ds_write_b32 v1, v1 offset:256"]
# Wave 1's lanes read what its v1 points at: bytes 256 to 511. The highest bytes are for the twins' own use.
_READ = ["ds_read_b32 v2, v1", _DRAIN]
_LOW = "ds_write_b16 v1, v1 offset:256"
_LOW_READ = ["ds_read_u16 v2, v1 offset:256"]
_BYTE = "ds_read_u8 v2, v1 offset:1"
_TO_LDS = ["s_mov_b32 m0, 0x100", "s_nop 0", "buffer_load_dword v1, s[4:7], 0 offen lds"]


def _meet(first: list[str], between: list[str], second: list[str], label: str = "@") -> list[str]:
    """Wave 0 does `first`, all do `between`, wave 1 does `second`."""
    return [*only(0, f"{label}a", first), *between, *only(1, f"{label}b", second)]


def _meet_again(first: list[str], second: list[str]) -> list[str]:
    """The same, when all of LDS that they touch has been written before."""
    written = _meet(["ds_write_b32 v1, v1 offset:256", "s_waitcnt lgkmcnt(0)"], ["s_barrier"], [], "@before_")
    return [*written, *_meet(first, [], second)]


# name: (the defective kernel, what is said of it, the repaired one)
_CASES: dict[str, tuple[list[str], str, list[str]]] = {
    "unwritten": (
        ["ds_read_b32 v2, v1", _DRAIN],
        r"lane 0 reads LDS bytes 0x0 to 0x3, of which nobody wrote all",
        ["ds_write_b32 v1, v1", "ds_write_b32 v1, v1 offset:256", "ds_read_b32 v2, v1", _DRAIN],
    ),
    "half_written": (
        ["ds_write_b16 v1, v1", "ds_read_b32 v2, v1", _DRAIN],
        r"lane 0 reads LDS bytes 0x0 to 0x3, of which nobody wrote all",
        ["ds_write_b16 v1, v1", "ds_write_b16 v1, v1 offset:2", "ds_read_b32 v2, v1", _DRAIN],
    ),
    "unwritten_wide": (
        [*_WRITE, "v_lshlrev_b32 v3, 2, v1", "ds_read_b128 v[4:7], v3", _DRAIN],
        r"lane 32 reads LDS bytes 0x200 to 0x203, of which nobody wrote all",
        [*_WRITE, "v_lshlrev_b32 v3, 2, v1", "v_and_b32 v3, 0xff, v3", "ds_read_b128 v[4:7], v3", _DRAIN],
    ),
    "read_after_write": (
        _meet([*_WRITE, _DRAIN], [], _READ),
        r"wave 1, .*`ds_read_b32 .*LDS race: lane 0 reads LDS bytes 0x100 to 0x103, which wave 0 writes at "
        r"pc 0x\w+ `ds_write_b32 v1, v1 offset:256`, with no s_waitcnt lgkmcnt and s_barrier between",
        _meet([*_WRITE, _DRAIN], [_BARRIER], _READ),
    ),
    "write_not_drained": (
        _meet(_WRITE, [_BARRIER], _READ),
        r"LDS race: lane 0 reads .* wave 0 writes at .* with no s_waitcnt lgkmcnt and s_barrier between",
        _meet(_WRITE, [_DRAIN, _BARRIER], _READ),
    ),
    "only_the_first_drained": (
        _meet(_WRITE, ["s_waitcnt lgkmcnt(1)", _BARRIER], _READ),
        r"LDS race: lane 0 reads .* which wave 0 writes",
        _meet(_WRITE[::-1], ["s_waitcnt lgkmcnt(1)", _BARRIER], _READ),
    ),
    "write_after_read": (
        _meet(
            [*_WRITE, "ds_read_b32 v2, v1 offset:256", _DRAIN],
            [],
            ["ds_write_b32 v1, v1"],
        ),
        r"LDS race: lane 0 writes LDS bytes 0x100 to 0x103, which wave 0 ",
        _meet([*_WRITE, "ds_read_b32 v2, v1 offset:256", _DRAIN], [_BARRIER], ["ds_write_b32 v1, v1"]),
    ),
    "read_of_the_last_round": (
        [
            *_meet([*_WRITE, _DRAIN], [_BARRIER], []),
            *only(0, "@c", ["ds_read_b32 v2, v1 offset:256", _DRAIN]),
            *only(1, "@d", ["ds_write_b32 v1, v1"]),
        ],
        r"wave 1.*LDS race: lane 0 writes LDS bytes 0x100 to 0x103, which wave 0 reads at pc 0x\w+ "
        r"`ds_read_b32 v2, v1 offset:256`, with no s_barrier between",
        [
            *_meet([*_WRITE, _DRAIN], [_BARRIER], []),
            *only(0, "@c", ["ds_read_b32 v2, v1 offset:256", _DRAIN]),
            _BARRIER,
            *only(1, "@d", ["ds_write_b32 v1, v1"]),
        ],
    ),
    "write_after_write": (
        _meet([*_WRITE, _DRAIN], [], ["ds_write_b32 v1, v1"]),
        r"LDS race: lane 0 writes LDS bytes 0x100 to 0x103, which wave 0 writes",
        _meet([*_WRITE, _DRAIN], [_BARRIER], ["ds_write_b32 v1, v1"]),
    ),
    "load_to_lds_not_landed": (
        _meet(_TO_LDS, [_DRAIN, _BARRIER], _READ),
        r"lane 0 reads .* which wave 0 writes at pc 0x\w+ `buffer_load_dword v1, .* lds`, with no s_waitcnt "
        r"vmcnt and s_barrier between",
        _meet(_TO_LDS, [_LANDED, _BARRIER], _READ),
    ),
    "load_to_lds_no_barrier": (
        _meet([*_TO_LDS, _LANDED], [], _READ),
        r"LDS race: lane 0 reads .* which wave 0 writes at pc 0x\w+ `buffer_load_dword v1, .* lds`",
        _meet([*_TO_LDS, _LANDED], [_BARRIER], _READ),
    ),
    "atomic_and_write": (
        _meet([*_WRITE, "ds_add_u32 v1, v1 offset:256", _DRAIN], [], ["ds_write_b32 v1, v1"]),
        r"LDS race: lane 0 writes .* which wave 0 ",
        [
            *_meet([*_WRITE, _DRAIN], [_BARRIER], []),
            "v_mov_b32 v3, 4",
            "ds_add_u32 v3, v1",  # both waves, the same word: atomics do not race
            _DRAIN,
        ],
    ),
    "byte_read_then_written": (
        _meet_again([*_LOW_READ, _DRAIN], ["ds_write_b16 v1, v1"]),
        r"LDS race: lane 0 writes LDS bytes 0x100 to 0x103, which wave 0 reads at pc 0x\w+ `ds_read_u16",
        _meet_again([*_LOW_READ, _DRAIN], ["ds_write_b16 v1, v1 offset:2"]),
    ),
    "byte_written_then_read": (
        _meet_again(["ds_write_b8 v1, v1 offset:257"], [_BYTE]),
        r"LDS race: lane 0 reads LDS bytes 0x100 to 0x103, which wave 0 writes at pc 0x\w+ `ds_write_b8",
        _meet_again(["ds_write_b8 v1, v1 offset:258"], [_BYTE]),
    ),
    "half_of_two_writers": (
        _meet([_LOW, _DRAIN], [], ["ds_write_b16 v1, v1 offset:2", "ds_read_u16 v2, v1", _DRAIN]),
        r"LDS race: lane 0 reads LDS bytes 0x100 to 0x103, which wave 0 writes at pc 0x\w+ `ds_write_b16 v1"
        r", v1 offset:256`",
        _meet([_LOW, _DRAIN], [], ["ds_write_b16 v1, v1 offset:2", "ds_read_u16 v2, v1 offset:2", _DRAIN]),
    ),
    "word_over_half": (
        _meet([_LOW, _DRAIN], [], ["ds_write_b32 v1, v1"]),
        r"LDS race: lane 0 writes LDS bytes 0x100 to 0x103, which wave 0 writes",
        _meet([_LOW, _DRAIN], [_BARRIER], ["ds_write_b32 v1, v1", *_READ]),
    ),
    "halves_then_words": (
        _meet([_LOW, "ds_write_b16 v1, v1 offset:258", _DRAIN], [], ["ds_read_b64 v[2:3], v1", _DRAIN]),
        r"LDS race: lane 0 reads LDS bytes 0x100 to 0x103, which wave 0 writes",
        _meet(
            [_LOW, "ds_write_b16 v1, v1 offset:258", _DRAIN],
            [_BARRIER],
            ["v_and_b32 v1, 0xf8, v1", "ds_read_b64 v[2:3], v1 offset:256", _DRAIN],
        ),
    ),
    "bytes_of_a_word": (
        _meet(["ds_write_b16 v1, v1 offset:256", _DRAIN], [], ["ds_write_b16 v1, v1"]),
        r"LDS race: lane 0 writes LDS bytes 0x100 to 0x103, which wave 0 writes",
        _meet(["ds_write_b16 v1, v1 offset:256", _DRAIN], [], ["ds_write_b16 v1, v1 offset:2"]),
    ),
}
# Both waves write what a lane's v3 holds, at its v1.
_COPIES = ["v_and_b32 v1, 0xff, v1", "v_mov_b32 v3, v1"]
_COPY_TO_LDS = ["s_mov_b32 m0, 0", "v_mov_b32 v1, 0", "s_nop 0", "buffer_load_dword v1, s[4:7], 0 offen lds"]
# Two waves write the same to the same bytes, in every way that there is: races, but of equal values.
_EQUAL = {
    "words": [*_COPIES, "ds_write_b32 v1, v3", _DRAIN],
    "bytes": [*_COPIES, "ds_write_b8 v1, v3", _DRAIN],
    "halves": [*_COPIES, "ds_write_b16_d16_hi v1, v3 offset:2", _DRAIN],
    "wide": [
        *_COPIES,
        "v_lshlrev_b32 v2, 2, v1",
        "v_mov_b32 v4, v1",
        "v_mov_b32 v5, v1",
        "ds_write_b128 v2, v[2:5]",
        _DRAIN,
    ],
    "two_places": [*_COPIES, "ds_write2_b32 v1, v3, v1 offset1:64", _DRAIN],
    "load_to_lds": [*_COPY_TO_LDS, _LANDED],
    "read_later": [*_COPIES, "ds_write_b32 v1, v3", _DRAIN, _BARRIER, "ds_read_b32 v4, v1", _DRAIN],
}
# And where some are not: the value of one lane, one byte of four, or an atomic.
_UNEQUAL = {
    "one_lane": [
        *_COPIES,
        "v_mov_b32 v4, s10",
        "v_cmp_eq_u32 vcc, 40, v1",
        "s_nop 4",
        "v_cndmask_b32 v3, v3, v4, vcc",
        "ds_write_b32 v1, v3",
        _DRAIN,
    ],
    "one_byte": [*_COPIES, "s_lshl_b32 s11, s10, 16", "v_or_b32 v3, s11, v3", "ds_write_b32 v1, v3", _DRAIN],
    "atomic": _meet([*_COPIES, "ds_write_b32 v1, v3", _DRAIN], [], [*_COPIES, "ds_or_b32 v1, v3", _DRAIN]),
}
_KERNELS = Kernels(
    {f"{n}_bad": c[0] for n, c in _CASES.items()}
    | {f"{n}_good": c[2] for n, c in _CASES.items()}
    | {f"equal_{n}": body for n, body in _EQUAL.items()}
    | {f"unequal_{n}": body for n, body in _UNEQUAL.items()},
    lds=1024,
)


@pytest.mark.parametrize("name", _CASES)
def test_defect_is_named(name: str) -> None:
    """The finding names both instructions, the waves, the lane and the bytes."""
    waves = 2 if "@a" in str(_CASES[name][0]) else 1
    text = _KERNELS.finding(f"{name}_bad", waves)
    assert re.search(_CASES[name][1], text), text


@pytest.mark.parametrize("name", _CASES)
def test_repaired_twin_passes(name: str) -> None:
    """No finding when none is due."""
    _KERNELS.run(f"{name}_good", 2 if "@a" in str(_CASES[name][2]) else 1)


@pytest.mark.parametrize("name", _EQUAL)
def test_equal_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a value that two waves write are a finding only if it is asked for, by a name of its own."""
    _KERNELS.run(f"equal_{name}", 2)
    for checks in ("all", "none,lds-race-equal"):
        monkeypatch.setenv("FMHA_EMU_CHECKS", checks)
        text = _KERNELS.finding(f"equal_{name}", 2)
        words = "wave 1, .*LDS race of equal values: lane 0 writes LDS bytes 0x0 to 0x3, which wave 0 writes"
        assert re.search(words, text), text
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none,lds-race")
    _KERNELS.run(f"equal_{name}", 2)


@pytest.mark.parametrize("name", _UNEQUAL)
def test_a_difference_is_a_race(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of one lane, or an atomic, is enough for the check that is on."""
    assert "LDS race: lane " in _KERNELS.finding(f"unequal_{name}", 2)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none,lds-race")
    assert "LDS race: lane " in _KERNELS.finding(f"unequal_{name}", 2)


def test_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check can be switched off, and only by its name."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-lds-unwritten")
    _KERNELS.run("unwritten_bad")
    assert "LDS race" in _KERNELS.finding("read_after_write_bad", 2)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none,lds-unwritten")
    _KERNELS.run("read_after_write_bad", 2)
    assert "nobody wrote" in _KERNELS.finding("unwritten_bad")


def test_unknown_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is no check fails the launch and is named, with those that there are."""
    from ..support import hip

    monkeypatch.setenv("FMHA_EMU_CHECKS", "-lds-races")
    with pytest.raises(hip.HipError) as caught:
        _KERNELS.run("unwritten_good")
    assert caught.value.code == 1
    assert '"-lds-races" is no check' in caught.value.fault
    assert "lds-race," in caught.value.fault
