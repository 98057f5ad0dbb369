# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measure decoding over batches, contexts and groups: times on a card, counts on the software device.

One query of each sequence reads a paged cache, whose pages lie in a random order. Groups are the query heads
that share a key head: of a kernel that reads the cache once a group, they hardly change the traffic.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pyfa_rocm import array, emulator
from pyfa_rocm.cli.bench import decode_plot, decode_text, plot
from pyfa_rocm.cli.bench.arguments import positive, positives
from pyfa_rocm.cli.bench.decode_rates import rates
from pyfa_rocm.cli.bench.decode_trial import DecodeTrial, Decoding
from pyfa_rocm.cli.bench.subjects import milliseconds
from pyfa_rocm.device import current_device, describe, runtime, synchronize
from pyfa_rocm.errors import HipError, InvalidArgumentError, UnsupportedError
from pyfa_rocm.oracle.trial import to_json


@dataclass(frozen=True)
class Sizes:
    """The sizes that are measured by default."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    nhead_k: int


CARD = Sizes((1, 4, 16, 64), (1024, 4096, 16384, 65536, 131072), 8)
# Every instruction is simulated: short contexts, and fewer of the heads, which are alike.
SOFTWARE_DEVICE = Sizes((1, 4), (1024, 4096), 2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    add = parser.add_argument
    add("--batches", type=positives, metavar="N,...", help="default: 1,4,16,64; software device: 1,4")
    add(
        "--contexts",
        type=positives,
        metavar="N,...",
        help="default: 1024 to 131072; software device: to 4096",
    )
    add("--groups", type=positives, default=(1, 4, 8, 16), metavar="N,...", help="default: 1,4,8,16")
    add("--heads-k", type=positive, metavar="N", help="key heads (default: 8; software device: 2)")
    add("--hdim", type=positive, default=128, metavar="N", help="default: 128")
    add("--page-size", type=positive, default=16, metavar="N", help="tokens, a power of two (default: 16)")
    add("--splits", type=int, default=0, metavar="N", help="default: 0, the library's choice")
    add("--dtype", choices=("float16", "bfloat16"), default="bfloat16")
    add("--repeat", type=positive, default=10, metavar="N", help="timed calls on a card (default: 10)")
    add("--plot", type=Path, metavar="FILE", help="draw it: .png or .svg; needs matplotlib")


def problems(args: argparse.Namespace, sizes: Sizes) -> list[DecodeTrial]:
    """Return what to measure, in the order of the tables.

    Raises
    ------
    InvalidArgumentError
        --page-size is no power of two.
    """
    if args.page_size & (args.page_size - 1):
        raise InvalidArgumentError(f"--page-size: got {args.page_size}, expected a power of two")
    nhead_k = args.heads_k or sizes.nhead_k
    return [
        DecodeTrial.of(batch, context, group, nhead_k, args.hdim, args.page_size, args.dtype, args.splits)
        for batch in args.batches or sizes.batches
        for group in args.groups
        for context in args.contexts or sizes.contexts
    ]


def counted(decoding: Decoding) -> dict[str, Any]:
    """Return what the software device counts of a call.

    "hbm_ratio" is its traffic over the least there can be; "unsplit_ratio" leaves out the parts' O and LSE.
    """
    trial = decoding.trial
    with emulator.profile() as profile:
        decoding.run()
    launches = profile.launches
    hbm = sum(launch.modelled.caches.hbm_bytes for launch in launches)
    instructions = sum(launch.counted.instructions["total"] for launch in launches)
    mfmas = sum(launch.counted.instructions["mfma"] for launch in launches)
    card = rates(describe(current_device()).arch)
    rate = card.full(trial.kv_bytes, instructions, mfmas)
    return {
        "hbm_bytes": hbm,
        "hbm_ratio": hbm / trial.least_bytes,
        "unsplit_ratio": (hbm - decoding.split_bytes) / trial.least_bytes,
        "instructions": instructions,
        "mfmas": mfmas,
        "instructions_per_kv_byte": instructions / trial.kv_bytes,
        "full_rate_bytes_per_s": rate,
        "times_hbm": rate / card.memory_bytes_per_s,
        "launches": [launch.kernel for launch in launches],
    }


def _measure(trial: DecodeTrial, repeat: int) -> dict[str, Any]:
    """Measure a problem; without a kernel, or memory for it, the reason."""
    empty = dict.fromkeys(
        ("splits", "milliseconds", "bytes_per_s", "workspace_bytes", "max_difference", "counted")
    )
    try:
        decoding = Decoding(trial)
        decoding.run()
        synchronize()
        row: dict[str, Any] = {
            "splits": decoding.splits,
            "workspace_bytes": decoding.params.workspace_bytes,
            "max_difference": decoding.first_head_distance(),
            "reason": "",
        }
        if runtime().emulated:
            return empty | row | {"counted": counted(decoding)}
        ms = milliseconds(decoding.run, repeat)
        return empty | row | {"milliseconds": ms, "bytes_per_s": trial.least_bytes / ms * 1e3}
    except UnsupportedError as error:
        return empty | {"reason": str(error)}
    except HipError as error:
        if "emory" not in str(error):
            raise
        return empty | {"reason": "out of memory"}
    finally:
        array.memory.release()


def rows(trials: list[DecodeTrial], repeat: int) -> Iterator[dict[str, Any]]:
    """Measure everything: a row for each problem."""
    with tqdm(total=len(trials), unit="run", file=sys.stderr, leave=False) as bar:
        for trial in trials:
            bar.set_description(f"batch {trial.batch}, context {trial.seqlen_k}, group {trial.group}")
            sizes = {"kv_bytes": trial.kv_bytes, "least_bytes": trial.least_bytes}
            yield trial.as_json() | sizes | _measure(trial, repeat)
            bar.update()


def run(args: argparse.Namespace) -> int:
    """Measure, print, draw; 0 if something could be measured, else 1."""
    if args.plot is not None:
        plot.check(args.plot)
    emulated = runtime().emulated
    trials = problems(args, SOFTWARE_DEVICE if emulated else CARD)
    found = list(rows(trials, args.repeat))
    result = {
        "device": describe(current_device()).name,
        "arch": describe(current_device()).arch,
        "emulated": emulated,
        "kind": "counts" if emulated else "times",
        "repeat": None if emulated else args.repeat,
        "rows": found,
    }
    if args.plot is not None:
        decode_plot.draw(result, args.plot)
    print(to_json(result) if args.json else decode_text.tables(result))
    return 0 if any(not row["reason"] for row in found) else 1
