# SPDX-License-Identifier: MIT OR Apache-2.0
"""Copies of two of CK's headers with K loaded two slices ahead: ``ck_overlay.py CK_INCLUDE OUT``.

The body of CK's asynchronous pipeline loads a slice of K and waits for the one before; no policy says
otherwise. Nobody's source is kept here: the build reads the headers of the CK that it has, and writes copies
into its own tree, in an include folder in front of CK's. An edit is at an anchor that is there exactly once.
If one is not, this is another CK: nothing is written, one line says so, and its own headers are used.

With `kAhead` of the policy:

- slices 0 and 1 are loaded before the first tile of keys, and at the end of each. At the end of the last one
  nobody reads them, and beyond the last key the buffer gives zeros: without a branch the compiler puts the
  loads between the matrix instructions;
- slice 2 is loaded after product 0, and slice i + 2 before product i, into the buffer of slice i - 1, whose
  readers have passed the barrier with their reads done;
- a wait for slice i leaves the loads of slice i + 1 on their way.

CK's increment of M0 changes SCC without saying so. With no branch around the loads the compiler puts the
comparison that ends the loop before them, and the loop ends after one tile.
"""

from __future__ import annotations

import sys
from pathlib import Path

PIPELINE = "ck_tile/ops/fmha/pipeline/block_fmha_pipeline_qr_ks_vs_async.hpp"
UTILITY = "ck_tile/core/arch/utility.hpp"
_SELF = "native/tools/compile/ck_overlay.py"


def _load(slice_of_k: str) -> str:
    """Load a slice, and step to the next."""
    return (
        f"async_load_tile_raw(k_lds_store(number<LdsSeq.at(number<{slice_of_k}>{{}})>{{}}), k_dram_window,"
        " number<-1>{}, k_oob_ck, k_pre_np); move_tile_window(k_dram_window, {0, kK0});"
    )


_AHEAD = "if constexpr(Policy::kAhead"
_NEXT = f"{{ {_load('i_k0 + 2')} }}"
_FENCE = "async_load_fence(k_dram_window.get_num_of_access());"
_TAIL = "// tail\n            {\n                block_sync_lds();"
_PRODUCT_END = "sequence<(LdsSeq.at(number<i_k0>{}) + 1) * kN0, kK0>{}));"

# Each header's anchor, and the text that takes its place.
EDITS: dict[str, list[tuple[str, str]]] = {
    UTILITY: [('m0" : : "n"(v) : "memory"', 'm0" : : "n"(v) : "memory", "scc"')],
    PIPELINE: [
        (
            "buffer_load_fence(k_dram_window.",
            f"{_AHEAD}) {{ {_load('1')} __builtin_amdgcn_sched_barrier(0); }}\n"
            "buffer_load_fence((Policy::kAhead ? 2 : 1) * k_dram_window.",
        ),
        (
            "async_load_tile_raw(k_lds_store(number<LdsSeq.at(number<i_k0 + 1>",
            "if constexpr(!Policy::kAhead)\n"
            "async_load_tile_raw(k_lds_store(number<LdsSeq.at(number<i_k0 + 1>",
        ),
        ("if constexpr(i_k0 < ", "if constexpr(!Policy::kAhead && i_k0 < "),
        (
            f"{_FENCE}\n                    __builtin_amdgcn_s_barrier();",
            f"{_FENCE}\n{_AHEAD} && i_k0 > 0) block_sync_lds(); else __builtin_amdgcn_s_barrier();\n"
            f"{_AHEAD} && i_k0 > 0 && i_k0 + 2 < k0_loops) {_NEXT}",
        ),
        (_PRODUCT_END, f"{_PRODUCT_END}\n{_AHEAD} && i_k0 == 0 && 2 < k0_loops) {_NEXT}"),
        ("if(i_total_loops < num_total_loop)", "if(Policy::kAhead || i_total_loops < num_total_loop)"),
        (_TAIL, f"{_TAIL}\n{_AHEAD}) {{ {_load('1')} }}"),
        (
            "while(i_total_loops < num_total_loop);",
            f"while(i_total_loops < num_total_loop);\n{_AHEAD}) async_load_fence();",
        ),
    ],
}


def edited(text: str, edits: list[tuple[str, str]]) -> str | None:
    """Return a header's text with the edits made; None if an anchor is not there exactly once."""
    if any(text.count(anchor) != 1 for anchor, _ in edits):
        return None
    for anchor, instead in edits:
        text = text.replace(anchor, instead)
    return text


def _text(header: Path) -> str:
    return header.read_text() if header.exists() else ""


def write(include: Path, out: Path) -> bool:
    """Write the copies, all or none; return whether they were. A copy that is right already stays as old."""
    texts = {name: edited(_text(include / name), edits) for name, edits in EDITS.items()}
    for name, text in texts.items():
        copy = out / name
        if None in texts.values():
            copy.unlink(missing_ok=True)
        elif not copy.exists() or copy.read_text() != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(str(text))
    return None not in texts.values()


def main() -> None:
    """Write them, and print the line for CMake's status if there is something to say."""
    include, out = map(Path, sys.argv[1:])
    if not write(include, out):
        print(f"K one slice ahead: this Composable Kernel is not the one that {_SELF} edits")


if __name__ == "__main__":
    main()
