# SPDX-License-Identifier: MIT OR Apache-2.0
"""Print what only one of Composable Kernel's kernels in a set covers: ``cover.py [--set ci]``.

They take most of a build's time, and their source is one for gfx90a, gfx942 and gfx950. A pair is one of a
template and a feature, of two features in a pipeline, or of an arch's pipeline and a feature. Kernels that
cover no pair alone could go to a larger set; the last line says how many cover all pairs. (Tests of
attention as gfx90a and of the clock want some of the others.)
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

from catalogue import ARCHS, read_catalogue, select_rows
from family import SETS, Row

Pair = tuple[Any, ...]
CATALOGUE = Path(__file__).resolve().parents[2] / "kernels" / "catalogue"


def features(row: Any) -> dict[str, Any]:
    """Return what a row does, beside its template and arch: values by name."""
    types = row.dtype if getattr(row, "o_dtype", row.dtype) == row.dtype else f"{row.dtype} {row.o_dtype}"
    if row.family == "fwd":
        variant = "softcap" if row.softcap else row.bias
        form = "mask" if row.mask else "pad" if row.pad else "whole"
        return {"type": types, "group": row.group, "form": form, "variant": variant, "dropout": row.dropout}
    names = ("alibi", "dbias", "bias", "softcap")
    variant = next((name for name in names if getattr(row, name)), "none")
    return {"type": types, "variant": variant, "dropout": row.dropout}


def pairs(row: Any) -> set[Pair]:
    """The pairs that a kernel covers."""
    where, values = (row.family, row.pipeline), sorted(features(row).items())
    found: set[Pair] = {(*where, *one, *other) for one, other in combinations(values, 2)}
    found |= {(row.family, row.tile, *value) for value in values}
    return found | {(row.arch, *where, *value) for value in values}


def alone(rows: list[Row]) -> dict[str, int]:
    """How many pairs each kernel covers that no other of these does, by its path."""
    covered = {row.path(): pairs(row) for row in rows}
    counts = Counter(pair for found in covered.values() for pair in found)
    return {path: sum(counts[pair] == 1 for pair in found) for path, found in covered.items()}


def cover(rows: list[Row]) -> list[Row]:
    """Fewer kernels that cover the same pairs: of those that cover nothing alone one goes after the other."""
    left = list(rows)
    while spare := [path for path, count in alone(left).items() if not count]:
        left = [row for row in left if row.path() != spare[0]]
    return left


def rows_of(kernel_set: str) -> list[Row]:
    """Composable Kernel's rows of a set, of the archs that are like no other."""
    archs = [arch.name for arch in ARCHS.values() if not arch.like]
    return [row for row in select_rows(read_catalogue(CATALOGUE), kernel_set, archs) if row.origin == "ck"]


def main() -> int:
    """Print a line a kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--set", choices=SETS, default=SETS[0])
    rows = rows_of(parser.parse_args().set)
    kept = {row.path() for row in cover(rows)}
    for path, count in alone(rows).items():
        print(f"{count:4}  {path}{'' if path in kept else '  covered by others'}")
    everything = set().union(*(pairs(row) for row in rows))
    print(f"{len(rows)} kernels, {len(everything)} pairs, which {len(kept)} of the kernels cover")
    return 0


if __name__ == "__main__":
    sys.exit(main())
