# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `bench`, for people."""

from __future__ import annotations

import textwrap
from typing import Any

__all__ = ["groups", "tables", "title"]

Row = dict[str, Any]
WIDTH = 104
COUNTS = (
    "Counts of the software device, not times: it says nothing about how fast a card is. Matrix operations "
    "are those that ran, masked parts of tiles included; the formula is that by which TFLOPS are given. HBM "
    "traffic: our accesses are counted, those of the standard formula, which keeps its score matrices in "
    "memory, are written down, and the caches of the card it plays are modelled, cold at each launch."
)
DIFFERENCE = "Largest difference: of the first head from float64; of backward the largest of dQ, dK and dV."


def groups(rows: list[Row]) -> dict[tuple[str, int, bool], list[Row]]:
    """Return the rows of each table or panel: by direction, head dim and mask."""
    found: dict[tuple[str, int, bool], list[Row]] = {}
    for direction in dict.fromkeys(row["direction"] for row in rows):
        for row in rows:
            if row["direction"] == direction:
                found.setdefault((direction, row["hdim"], row["causal"]), []).append(row)
    return found


def title(key: tuple[str, int, bool]) -> str:
    """Name a group."""
    direction, hdim, causal = key
    return f"{direction}, head dim {hdim}, {'causal' if causal else 'no mask'}"


def _counted_line(row: Row) -> str:
    counted = row["counted"]
    return (
        f"{counted['matrix_flops'] / 1e9:9.2f}{row['formula_flops'] / 1e9:9.2f}"
        f"{counted['instructions'] / 1e6:10.2f}{len(counted['launches']):10}"
        f"{counted['hbm_bytes'] / 2**20:9.2f}{counted['standard_hbm_bytes'] / 2**20:9.2f}"
    )


def _timed_line(row: Row) -> str:
    return f"{row['milliseconds']:10.3f}{row['tflops']:10.1f}"


def _line(row: Row, way: int, emulated: bool) -> str:
    start = f"{row['seqlen']:8}{row['batch']:7}{row['nhead_q']:7}"
    if not emulated:
        start += f"  {row['implementation']:{way}}"
    if row["reason"]:
        return start + "  " + textwrap.shorten(row["reason"], WIDTH - len(start) - 2, placeholder=" ...")
    middle = _counted_line(row) if emulated else _timed_line(row)
    return f"{start}{middle}{row['peak_bytes'] / 2**20:11.2f}{row['max_difference']:12.2e}"


def _head(way: int, emulated: bool) -> str:
    start = f"{'seqlen':>8}{'batch':>7}{'heads':>7}"
    if emulated:
        over = f"{'':22}{'Gflop':>18}{'million':>10}{'':10}{'HBM, MiB':>18}"
        names = f"{'matrix':>9}{'formula':>9}{'instr.':>10}{'launches':>10}{'ours':>9}{'standard':>9}"
        return f"{over}{'memory,':>11}{'largest':>12}\n{start}{names}{'MiB':>11}{'difference':>12}"
    start += f"  {'':{way}}"
    over = " " * len(start)
    return (
        f"{over}{'time,':>10}{'':10}{'memory,':>11}{'largest':>12}\n"
        f"{start}{'ms':>10}{'TFLOPS':>10}{'MiB':>11}{'difference':>12}"
    )


def tables(result: dict[str, Any]) -> str:
    """Return the whole output."""
    rows, emulated = result["rows"], result["emulated"]
    way = max(len(row["implementation"]) for row in rows)
    lines = [f"Device: {result['device']}; {rows[0]['dtype']}"]
    for key, members in groups(rows).items():
        lines += ["", title(key), _head(way, emulated), *(_line(row, way, emulated) for row in members)]
    lines.append("")
    if emulated:
        lines.append(textwrap.fill(COUNTS, WIDTH))
    else:
        lines.append(f"Time: median of {result['repeat']} calls, by HIP events, after a warm-up.")
    return "\n".join([*lines, DIFFERENCE])
