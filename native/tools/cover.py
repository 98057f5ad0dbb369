# SPDX-License-Identifier: MIT OR Apache-2.0
"""Print what only one of Composable Kernel's kernels in a set covers: ``cover.py [--set ci]``.

They take most of a build's time, and their source is one for gfx90a, gfx942 and gfx950, so `ci` has one of
each pair: of a template with a feature, of two features in a pipeline, and of an arch with a pipeline and a
feature. A kernel that alone covers nothing can go to a larger set; `KEPT` says why some stay.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

from catalogue import ARCHS, read_catalogue, select_rows
from family import SETS, Row

Pair = tuple[Any, ...]
CATALOGUE = Path(__file__).resolve().parents[1] / "kernels" / "catalogue"
# Expressions that match ARCH/NAME, and why such a kernel is in `ci` though others cover its pairs.
KEPT = {
    r"gfx9(42|50)/fmha_fwd_bf16_d128_(pad_exact|exact|mask_pad_exact|mask_pad)": "for the clock",
    r"gfx942/fmha_fwd_fp16_d128_mask_pad(_exact)?": "the examples of docs/python.md, and what profiles count",
    r"gfx942/fmha_fwd_fp32_.*": "no larger set but full has it",
    r"gfx942/fmha_fwd_fp16_d64_group_mask_pad_alibi": "packed sequences with ALiBi on an MI300X",
    r"gfx942/fmha_fwd_bf16_d64_mask_pad_dropout": "training with dropout, in bf16",
    r"gfx942/fmha_bwd_fp16_(d64|d128|d128_dropout)": "training in fp16, which AITER has no kernels for",
    r"gfx942/fmha_bwd_bf16_d256": "training in bf16 with grouped heads, which AITER has no kernels for",
}


def features(row: Any) -> dict[str, Any]:
    """What a row does, beside its template and arch: values by name."""
    types = row.dtype if getattr(row, "o_dtype", row.dtype) == row.dtype else f"{row.dtype} {row.o_dtype}"
    if row.family == "fwd":
        variant = "softcap" if row.softcap else row.bias
        form = "mask" if row.mask else "pad" if row.pad else "whole"
        return {
            "type": types, "group": row.group, "form": form, "variant": variant, "dropout": row.dropout,
        }  # fmt: skip
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


def needless(rows: list[Row]) -> list[str]:
    """Paths of kernels that cover nothing alone and that nothing keeps."""
    return [
        path
        for path, count in alone(rows).items()
        if not count and not any(re.fullmatch(pattern, path) for pattern in KEPT)
    ]


def rows_of(kernel_set: str) -> list[Row]:
    """Composable Kernel's rows of a set, of the archs that are like no other."""
    archs = [arch.name for arch in ARCHS.values() if not arch.like]
    return [row for row in select_rows(read_catalogue(CATALOGUE), kernel_set, archs) if row.origin == "ck"]


def main() -> int:
    """Print a line a kernel, and fail if one is needless."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--set", choices=SETS, default=SETS[0])
    rows = rows_of(parser.parse_args().set)
    spare = needless(rows)
    for path, count in alone(rows).items():
        print(f"{count:4}  {path}{'  needless' if path in spare else ''}")
    everything = set().union(*(pairs(row) for row in rows))
    print(f"{len(rows)} kernels, {len(everything)} pairs, {len(spare)} kernels needless")
    return 1 if spare else 0


if __name__ == "__main__":
    sys.exit(main())
