# SPDX-License-Identifier: MIT OR Apache-2.0
"""The launches of attention in a step of training_step.py, each timed by the software device's clock.

The backward pass is timed as the library chooses it, and by the kernels among which it chose before it had
bwd_pingpong: AITER's, which it took for bfloat16 with as many key heads as query heads, and the best of
Composable Kernel's in this build. torch's own kernels are not here. The matrix products of the rest of the
step are counted at the speed of AMD's published GEMM on an MI300X, which makes the share of attention an
upper bound: the rest also has norms, the loss and the optimizer.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, replace
from typing import Any

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from benchmarks.training_config import PRESETS, Config
from pyfa_rocm.clock.estimate import Estimate, estimate
from pyfa_rocm.clock.subjects import AiterBackward, CompositeKernel, Ours
from pyfa_rocm.emulator import Range
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle.problem import Problem

# AMD, rocm.blogs.amd.com, "Measuring Max-Achievable FLOPs - Part 2": bf16 GEMM on an MI300X.
GEMM_TFLOPS = 708.0


def rest_seconds(config: Config) -> float:
    """Return the least time of the matrix products beside attention: forward, and twice as many backward."""
    rows, width = config.batch * config.seqlen, config.d_model
    layer = 2 * rows * (3 + 1 + 4 + 4) * width * width
    head = 2 * rows * width * config.vocab
    return 3 * (config.layers * layer + head) / GEMM_TFLOPS / 1e12


def _launches(found: Estimate) -> list[dict[str, Any]]:
    return [{"kernel": kernel, "seconds": vars(seconds)} for kernel, seconds in found.parts]


def step(config: Config) -> dict[str, Any]:
    """Model the attention of a step, with each backward pass."""
    hdim = config.d_model // config.heads
    shape = Problem(config.batch, config.heads, config.heads, config.seqlen, hdim, True, config.dtype)
    forward = estimate(Ours(), shape)
    result: dict[str, Any] = {"config": asdict(config), "rest_seconds": rest_seconds(config), "ways": {}}
    for way in (CompositeKernel(), AiterBackward(), Ours()):
        try:
            backward = estimate(way, shape, "backward")
        except UnsupportedError as error:
            result["ways"][way.name] = {"reason": str(error)}
            continue
        low, high = (
            config.layers * (getattr(forward.seconds, end) + getattr(backward.seconds, end))
            for end in ("low", "high")
        )
        result["ways"][way.name] = {
            "forward": _launches(forward),
            "backward": _launches(backward),
            "seconds": vars(Range(low, high)),
            "share": (low + high) / 2 / ((low + high) / 2 + result["rest_seconds"]),
        }
    return result


def text(result: dict[str, Any]) -> str:
    """Return the table."""
    config = result["config"]
    lines = [f"{config['layers']} layers, each with these launches, in milliseconds:"]
    for name, found in result["ways"].items():
        lines.append(f"backward by {name}")
        if "reason" in found:
            lines.append(f"  {found['reason']}")
            continue
        for direction in ("forward", "backward"):
            for each in found[direction]:
                low, high = (1e3 * each["seconds"][end] for end in ("low", "high"))
                lines.append(f"  {direction:9}{each['kernel']:48}{low:8.3f} to {high:.3f}")
        low, high = (1e3 * found["seconds"][end] for end in ("low", "high"))
        lines.append(f"  all layers: {low:.1f} to {high:.1f}, at most {found['share']:.1%} of the step")
    lines.append(f"the step's other matrix products: at least {1e3 * result['rest_seconds']:.1f}")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", choices=tuple(PRESETS), default="mi300x")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    args = parser.parse_args()
    result = step(replace(PRESETS[args.preset], dtype=args.dtype))
    print(json.dumps(result) if args.json else text(result))


if __name__ == "__main__":
    main()
