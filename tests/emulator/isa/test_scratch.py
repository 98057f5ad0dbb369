# SPDX-License-Identifier: MIT OR Apache-2.0
"""Private memory: SCRATCH in all its forms, and the apertures by which FLAT reaches it and LDS."""

from __future__ import annotations

import numpy as np

from ..support import rows
from ..support.asm import LANES, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.memory_ops import (
    LANE,
    LOADS,
    STORES,
    WAIT,
    reg,
    stored_bytes,
)
from ..support.spelling import RDNA, exists

SUITE = Suite("scratch")
_U = np.uint32
# Text of a store, and where it stores (less 16 for the last). gfx90a has no form without any register: what
# needs one says it there with an SGPR that is 0.
FORMS = [("v2, {d}, off offset:16", 32), ("off, {d}, s5 offset:16", 40), ("off, {d}, off offset:64", 48)]
if rows.arch() == "gfx90a":
    FORMS.pop()
NOWHERE = "off" if RDNA or rows.arch() == "gfx942" else "s4"
ABSOLUTE = f"off, {NOWHERE}"


def _apertures() -> None:
    """FLAT into LDS and into scratch."""
    base = {"shared": "src_shared_base", "private": "src_private_base"}
    for name, special in base.items():
        lines = [
            f"s_mov_b64 s[20:21], {special}",
            "v_mov_b32 v3, s21",
            "flat_store_dword v[2:3], v4",
            "flat_store_short v[2:3], v5 offset:260",
            WAIT,
            "flat_load_dword v10, v[2:3]",
            "flat_load_ushort v11, v[2:3] offset:260",
            WAIT,
        ]
        if name == "shared":
            lines += ["ds_read_b32 v12, v2", WAIT]
        else:
            lines += ["scratch_load_dword v12, v2, off", WAIT]
        data = np.random.default_rng(5).integers(0, 1 << 32, (2, LANES), dtype=_U)

        def check(result: Result, data: Array = data) -> None:
            np.testing.assert_array_equal(result["v10"][0], data[0])
            np.testing.assert_array_equal(result["v11"][0], data[1] & 0xFFFF)
            np.testing.assert_array_equal(result["v12"][0], data[0])

        address = LANE * 4 if name == "shared" else np.full(LANES, 8)
        SUITE.add(
            f"flat-{name}",
            lines,
            ["v10", "v11", "v12"],
            check,
            {"v2": address.astype(_U), "v4": data[0], "v5": data[1]},
            {},
            None,
            lds=4096,
            scratch=512,
            covers=["flat_store_dword", "flat_load_dword"],
        )


def stored(data: str) -> str:
    """Operands of a store at an offset only."""
    return f"off, {data}, {NOWHERE}"


def _scratch() -> None:
    """Private memory: lane by lane, with a VGPR, an SGPR, or only an offset."""
    data = np.random.default_rng(6).integers(0, 1 << 32, (4, LANES), dtype=_U)
    for suffix, (count, shift) in STORES.items():
        name, n = f"scratch_store_{suffix}", -(-count // 4)
        if not exists(name):
            continue
        for form, address in FORMS:
            at = {"v2": 16, "s5": 24}
            text = form.format(d=reg(n, 10))
            start = address + (16 if "64" in form else 0)
            load = f"scratch_load_dwordx4 v[20:23], {ABSOLUTE} offset:{start}"
            raw = np.zeros((LANES, 16), np.uint8)
            raw[:, :count] = stored_bytes(data[:n], count, shift)
            clear = [f"scratch_store_dwordx4 {stored('v[30:33]')} offset:{start}"]

            def check(result: Result, raw: Array = raw) -> None:
                np.testing.assert_array_equal(np.ascontiguousarray(result["v[20:23]"].T).view(np.uint8), raw)

            SUITE.add(
                f"{name}-{form[:3]}",
                [*clear, WAIT, f"{name} {text}", WAIT, load, WAIT],
                ["v[20:23]"],
                check,
                {
                    "v2": np.full(LANES, at["v2"], _U),
                    reg(n, 10): data[:n],
                    "v[30:33]": np.zeros((4, LANES), _U),
                },
                {"s4": 0, "s5": at["s5"]},
                scratch=256,
                covers=[name],
            )
    raw = np.ascontiguousarray(data.T).view(np.uint8)
    for suffix, (count, fn) in LOADS.items():
        name, n = f"scratch_load_{suffix}", -(-count // 4)
        if not exists(name):
            continue
        old = np.full((n, LANES), 0x11223344, _U)
        loaded = fn(raw[:, :count], old)

        def check_load(result: Result, loaded: Array = loaded, n: int = n) -> None:
            np.testing.assert_array_equal(result[reg(n, 20)], loaded)

        SUITE.add(
            name,
            [
                f"scratch_store_dwordx4 {stored('v[10:13]')} offset:64",
                WAIT,
                f"{name} {reg(n, 20)}, v2, off offset:32",
                WAIT,
            ],
            [reg(n, 20)],
            check_load,
            {"v2": np.full(LANES, 32, _U), "v[10:13]": data, reg(n, 20): old},
            {"s4": 0},
            scratch=256,
            covers=[name],
        )


def _scratch_to_lds() -> None:
    """Private memory into LDS at M0 + offset + lane*4, narrow loads extended to a dword."""
    data = np.random.default_rng(8).integers(0, 1 << 32, (4, LANES), dtype=_U)
    raw = np.ascontiguousarray(data.T).view(np.uint8)
    for suffix, (count, fn) in LOADS.items():
        name = f"scratch_load_lds_{suffix}"
        if not exists(name):
            continue
        for form, first in (("v2, off offset:8", 0), ("off, s5 offset:4", 4), ("off, off offset:20", 0)):
            at = {"v2, off offset:8": 12, "off, s5 offset:4": 0, "off, off offset:20": 4}[form]
            loaded = fn(raw[:, at : at + count], np.zeros((1, LANES), _U))[0]
            offset = int(form.split(":")[1])
            SUITE.add(
                f"{name}-{form}",
                [
                    f"scratch_store_dwordx4 {stored('v[10:13]')} offset:16",
                    WAIT,
                    f"{name} {form}",
                    WAIT,
                    f"ds_read_b32 v20, v3 offset:{32 + offset}",
                    WAIT,
                ],
                ["v20"],
                lambda r, loaded=loaded: np.testing.assert_array_equal(r["v20"][0], loaded),
                {"v2": np.full(LANES, 20, _U), "v3": (LANE * 4).astype(_U), "v[10:13]": data},
                {"s4": 0, "s5": 8 + first, "m0": 32},
                None,
                lds=4096,
                scratch=256,
                covers=[name],
            )


_scratch_to_lds()
_apertures()
_scratch()


@SUITE.parametrize()
def test_scratch(case: Case) -> None:
    """A lane gets back what it stored, and nothing of another lane."""
    SUITE.check(case)
