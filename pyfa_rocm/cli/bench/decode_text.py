# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `bench decode`, for people."""

from __future__ import annotations

import textwrap
from typing import Any

from pyfa_rocm.cli.bench.decode_rates import rates
from pyfa_rocm.cli.bench.text import WIDTH, Row

__all__ = ["by_batch", "tables"]

COUNTS = (
    "Counts of the software device, not times: it says nothing about how fast a card is. HBM traffic: "
    "accesses are counted, and the caches of the card it plays are modelled, cold at each launch; beside it "
    "how many times that is the least, K and V in use, q and o: without splits' cost, which is a float32 O "
    "of each that the merge reads, and with it. At full issue: how much of K and V {units} compute units at "
    "{ghz} GHz would read in a second if nothing ever waited, as a multiple of {memory}'s {tb} TB/s; an "
    "instruction is taken to occupy a SIMD for {cycles}, {matrix} for {matrix_cycles}."
)
DIFFERENCE = "Largest difference: of the first head of the first sequence from float64."


def counts(arch: str) -> str:
    """Return what the counted columns mean."""
    card = rates(arch)
    return COUNTS.format(
        units=card.compute_units,
        ghz=f"{card.clock_hz / 1e9:g}",
        memory=card.memory_name,
        tb=f"{card.memory_bytes_per_s / 1e12:g}",
        cycles=f"{card.cycles} cycle{'s' * (card.cycles > 1)}",
        matrix=card.matrix_name,
        matrix_cycles=card.matrix_cycles,
    )


def by_batch(rows: list[Row]) -> dict[int, list[Row]]:
    """Return the rows of each table or panel."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["batch"], []).append(row)
    return found


def _head(emulated: bool) -> str:
    start = f"{'group':>6}{'context':>9}"
    if emulated:
        over = f"{'':22}{'HBM,':>9}{'times the least':>18}{'million':>10}{'instr. a':>11}{'at full':>10}"
        return (
            f"{over}{'largest':>13}\n{start}{'splits':>7}{'MiB':>9}{'unsplit':>9}{'all':>9}{'instr.':>10}"
            f"{'KV byte':>11}{'issue':>10}{'difference':>13}"
        )
    over = f"{'':22}{'time,':>11}{'':10}{'workspace,':>13}{'largest':>13}"
    return f"{over}\n{start}{'splits':>7}{'ms':>11}{'TB/s':>10}{'MiB':>13}{'difference':>13}"


def _line(row: Row, emulated: bool) -> str:
    start = f"{row['group']:6}{row['context']:9}"
    if row["reason"]:
        return start + "  " + textwrap.shorten(row["reason"], WIDTH - len(start) - 2, placeholder=" ...")
    start += f"{row['splits']:7}"
    end = f"{row['max_difference']:13.2e}"
    if not emulated:
        return (
            f"{start}{row['milliseconds']:11.4f}{row['bytes_per_s'] / 1e12:10.3f}"
            f"{row['workspace_bytes'] / 2**20:13.2f}{end}"
        )
    counted = row["counted"]
    return (
        f"{start}{counted['hbm_bytes'] / 2**20:9.2f}"
        f"{counted['unsplit_ratio']:9.4f}{counted['hbm_ratio']:9.4f}"
        f"{counted['instructions'] / 1e6:10.3f}{counted['instructions_per_kv_byte']:11.4f}"
        f"{counted['times_hbm']:9.2f}x{end}"
    )


def tables(result: dict[str, Any]) -> str:
    """Return the whole output."""
    rows, emulated = result["rows"], result["emulated"]
    first = rows[0]
    lines = [
        f"Device: {result['device']}; {first['dtype']}, head dim {first['hdim']}, "
        f"{first['nhead_k']} key heads, pages of {first['page_size']}"
    ]
    for batch, members in by_batch(rows).items():
        lines += ["", f"decode, batch {batch}", _head(emulated), *(_line(row, emulated) for row in members)]
    lines.append("")
    if emulated:
        lines.append(textwrap.fill(counts(result["arch"]), WIDTH))
    else:
        lines.append(
            f"Time: median of {result['repeat']} calls, by HIP events. TB/s: K and V in use, q and o."
        )
    return "\n".join([*lines, DIFFERENCE])
