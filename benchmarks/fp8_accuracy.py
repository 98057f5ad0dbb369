# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far attention in 8-bit floats is from float64, by what shares a scale, with and without the rotation.

The kernels of the library quantise and attend, on a card or on the software device; float64 attends to the
same numbers of 16 bits. Errors are in percent of the RMS of float64's output. `forward` has q, k, v and P in
8 bits; by head it is a call a head, since a call has one scale for each of q, k and v. `cache` has q and P in
16 bits, and k and v in 8. With the rotation q and k are multiplied by a Hadamard matrix first, v is not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pyfa_rocm
from pyfa_rocm import (
    DeviceArray,
    UnsupportedError,
    bfloat16,
    flash_attn_func,
    flash_attn_quantize,
    flash_attn_with_kvcache,
)
from pyfa_rocm.oracle.reference import attention

Arrays = tuple[Any, Any, Any]
SEQLEN, NHEAD, HDIM = 1024, 2, 128
BLOCK = 64
OUTLIERS = 4  # channels of a head


def normal(rng: np.random.Generator) -> Arrays:
    q, k, v = rng.standard_normal((3, 1, SEQLEN, NHEAD, HDIM))
    return q, k, v


def channels(rng: np.random.Generator) -> Arrays:
    """The same few channels of all queries and keys are thirty times as large, as models have them."""
    q, k, v = normal(rng)
    for x in (q, k):
        for head in range(NHEAD):
            x[..., head, rng.permutation(HDIM)[:OUTLIERS]] *= 30
    return q / 8, k / 8, v


def rare(rng: np.random.Generator) -> Arrays:
    """One element of a thousand is ten times as large: FlashAttention-3 was judged by such numbers."""
    q, k, v = (x + 10 * (rng.random(x.shape) < 1e-3) * rng.standard_normal(x.shape) for x in normal(rng))
    return q, k, v


def peaked(rng: np.random.Generator) -> Arrays:
    """Scores have a standard deviation of 6: few keys have nearly all of the weight."""
    q, k, v = normal(rng)
    return 6 * q, k, v


def one_token(rng: np.random.Generator) -> Arrays:
    """One key, and one value, are fifty times as large as others, as a first token's may be."""
    q, k, v = normal(rng)
    k[:, 0] *= 50
    v[:, 0] *= 50
    return q, k, v


INPUTS = {"normal": normal, "rare": rare, "channels": channels, "peaked": peaked, "one token": one_token}


def _put(x: Any) -> DeviceArray:
    return DeviceArray.from_numpy(np.ascontiguousarray(x))


def _rotated(x: Any, rotate: bool) -> DeviceArray:
    return flash_attn_quantize(_put(x), scale_unit=None, hadamard=True)[0] if rotate else _put(x)


def bf16(arrays: Arrays, _rotate: bool) -> Any:
    q, k, v = map(_put, arrays)
    return flash_attn_with_kvcache(q, k, v).to_numpy()


def forward_tensor(arrays: Arrays, rotate: bool) -> Any:
    kinds = zip(arrays, (rotate, rotate, False), strict=True)
    eights = [flash_attn_quantize(_put(x), scale_unit="tensor", hadamard=h) for x, h in kinds]
    scales = [float(scale.to_numpy()[0]) for _, scale in eights]
    named: dict[str, Any] = dict(zip(("q_descale", "k_descale", "v_descale"), scales, strict=True))
    return flash_attn_func(*(x for x, _ in eights), **named).to_numpy()


def forward_head(arrays: Arrays, rotate: bool) -> Any:
    q, k, v = arrays
    heads = [forward_tensor((q[:, :, [h]], k[:, :, [h]], v[:, :, [h]]), rotate) for h in range(NHEAD)]
    return np.concatenate(heads, axis=2)


def cache_head(arrays: Arrays, rotate: bool) -> Any:
    q, k, v = arrays
    (k8, k_scale), (v8, v_scale) = (
        flash_attn_quantize(_put(x), scale_unit="head", hadamard=h) for x, h in ((k, rotate), (v, False))
    )
    return flash_attn_with_kvcache(_rotated(q, rotate), k8, v8, k_scale=k_scale, v_scale=v_scale).to_numpy()


def cache_block(arrays: Arrays, rotate: bool) -> Any:
    """A page for each block of tokens, whose scales are the page's."""
    q, *keys = arrays
    paged: dict[str, Any] = {}
    for name, x, h in zip("kv", keys, (rotate, False), strict=True):
        eights, scales = flash_attn_quantize(_put(x), scale_unit="block", block_tokens=BLOCK, hadamard=h)
        paged[name + "_cache"] = _put(eights.to_numpy().reshape(-1, BLOCK, NHEAD, HDIM))
        paged[name + "_scale"] = _put(scales.to_numpy()[0].T)
    table = _put(np.arange(SEQLEN // BLOCK, dtype=np.int32)[None])
    lengths = _put(np.array([SEQLEN], np.int32))
    return flash_attn_with_kvcache(
        _rotated(q, rotate), **paged, block_table=table, cache_seqlens=lengths, scale_per_page=True
    ).to_numpy()


WAYS: dict[str, Callable[[Arrays, bool], Any]] = {
    "bf16": bf16,
    "forward, tensor": forward_tensor,
    "forward, head": forward_head,
    "cache, head": cache_head,
    f"cache, {BLOCK} tokens": cache_block,
}


def errors(make: Callable[[np.random.Generator], Arrays], seed: int) -> Iterator[tuple[str, bool, Any]]:
    """Yield each way, with the rotation and without, and its errors over the RMS of the right output."""
    q, k, v = (x.astype(bfloat16) for x in make(np.random.default_rng(seed)))
    want = attention(q, k, v).o
    rms = np.sqrt(np.mean(want**2))
    for way, run in WAYS.items():
        for rotate in (False, True) if way != "bf16" else (False,):
            yield way, rotate, (run((q, k, v), rotate).astype(np.float64) - want) / rms


def measure(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the errors of each way on each input, of so many problems together."""
    for name, make in INPUTS.items():
        found: dict[tuple[str, bool], list[Any]] = {}
        for seed in range(seeds):
            for way, rotate, error in errors(make, seed):
                found.setdefault((way, rotate), []).append(error)
        for (way, rotate), parts in found.items():
            error = np.concatenate(parts)
            yield {
                "input": name,
                "way": way,
                "hadamard": rotate,
                "rms_percent": 100 * float(np.sqrt(np.mean(error**2))),
                "largest_percent": 100 * float(np.abs(error).max()),
            }


def table(found: list[dict[str, Any]]) -> str:
    """The errors as a Markdown table: RMS, and the largest in parentheses."""
    lines = [f"| scales | rotation | {' | '.join(INPUTS)} |", f"| --- | --- |{' --- |' * len(INPUTS)}"]
    for way in WAYS:
        for rotate in (False, True):
            cells = [x for x in found if (x["way"], x["hadamard"]) == (way, rotate)]
            if cells:
                errors = [f"{x['rms_percent']:.2f} ({x['largest_percent']:.1f})" for x in cells]
                lines.append(f"| {way} | {'yes' if rotate else 'no'} | {' | '.join(errors)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the errors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--seeds", type=int, default=6, help="problems of each kind")
    args = parser.parse_args()
    try:
        found = list(measure(args.seeds))
    except UnsupportedError as error:
        sys.exit(f"fp8_accuracy: {error}")
    arch = pyfa_rocm.devices()[0].arch
    if args.json:
        print(json.dumps({"arch": arch, "seqlen": SEQLEN, "nhead": NHEAD, "hdim": HDIM, "errors": found}))
    else:
        print(table(found))


if __name__ == "__main__":
    main()
