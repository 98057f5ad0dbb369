# SPDX-License-Identifier: MIT OR Apache-2.0
"""A training step of a small transformer, with two ways to attend: time, memory, loss, and loss curves.

    python -m benchmarks.training_step                   pyfa_rocm and sdpa, in the preset for this machine
    python -m benchmarks.training_step --backends pyfa_rocm eager --preset mi300x --output-json step.json
    python -m benchmarks.training_step --preset tiny --curve-steps 50 --plot curve.png

Each backend trains in a process of its own, one after the other, which imports nothing of the other. Without
a card torch computes on the CPU, and pyfa_rocm's kernels run on the software device: step times are then
those of a simulation, and are labelled so.

The loss curves are of steps of the preset `tiny`. The errors of 16 bits make any two trainings part, so
"equal" is judged by what they do to eager attention: no loss may be further from eager float32's than twice
the largest distance of eager attention in the same 16-bit type, over all steps.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import training_model
from benchmarks.training_config import PRESETS, Config

BACKENDS = ("pyfa_rocm", "sdpa", "eager", "flash_attn")
OVERRIDES = ("batch", "seqlen", "d_model", "heads", "layers", "vocab", "warmup", "steps", "seed")
ALLOWED = 2.0  # times the largest distance of eager 16 bits from eager float32
SIMULATED = (
    "Without a card: pyfa_rocm's kernels are simulated on this CPU. Their times say nothing about a card."
)


def fail(message: str) -> NoReturn:
    print(f"training_step: {message}", file=sys.stderr)
    sys.exit(2)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add(
        "--backends",
        nargs=2,
        choices=BACKENDS,
        default=["pyfa_rocm", "sdpa"],
        metavar=("A", "B"),
        help=f"any two of {', '.join(BACKENDS)}; ratios are of A to B (default: pyfa_rocm sdpa)",
    )
    add("--preset", choices=tuple(PRESETS), help="default: `default` on a card, else `tiny`")
    for name in OVERRIDES:
        add(f"--{name.replace('_', '-')}", type=int, metavar="N", help=f"instead of the preset's {name}")
    add("--dtype", choices=("bfloat16", "float16"), help="instead of the preset's")
    add("--curve-steps", type=int, default=50, metavar="N", help="steps of the loss curves; 0: none")
    add("--output-json", type=Path, metavar="FILE", help="write results and the resolved configuration")
    add("--plot", type=Path, metavar="FILE", help="draw the loss curves: .png or .svg; needs matplotlib")
    add("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def has_card() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def resolve(args: argparse.Namespace) -> tuple[str, Config]:
    """Return the preset's name, and the configuration with what was asked for instead."""
    card = has_card()
    preset = args.preset or ("default" if card else "tiny")
    if preset != "tiny" and not card:
        fail(f"--preset {preset}: torch has no card here, and its steps would take hours; expected tiny")
    given = {name: getattr(args, name) for name in (*OVERRIDES, "dtype") if getattr(args, name) is not None}
    for name in OVERRIDES:
        least = 0 if name in ("warmup", "seed") else 1
        if given.get(name, least) < least:
            fail(f"--{name.replace('_', '-')}: got {given[name]}, expected {least} or more")
    config = replace(PRESETS[preset], **given)
    if config.d_model % config.heads:
        fail(f"--d-model: got {config.d_model}, expected a multiple of the {config.heads} heads")
    if args.backends[0] == args.backends[1]:
        fail(f"--backends: got {args.backends[0]} twice, expected two different ones")
    if "flash_attn" in args.backends:
        try:
            training_model.backend("flash_attn")
        except training_model.NotInstalledError as error:
            fail(str(error))
    return preset, config


def isolated(name: str, config: Config | None, curves: list[Config]) -> dict[str, Any]:
    """Run a backend in a process of its own: what `measure` gives of a config, and losses of others."""
    order = json.dumps(
        {"backend": name, "config": asdict(config) if config else None, "curves": [asdict(x) for x in curves]}
    )
    command = [sys.executable, "-m", "benchmarks.training_step", "--worker", order]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        fail(f"backend {name} failed, with the words above (exit status {done.returncode})")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def worker(order: str) -> None:
    """Do what the parent asks, and print the result as the last line."""
    task = json.loads(order)
    name, config = task["backend"], task["config"]
    run = None if config is None else training_model.measure(Config(**config), name)
    losses = [training_model.losses(Config(**curve), name) for curve in task["curves"]]
    imported = sorted({module.split(".")[0] for module in sys.modules} & {"pyfa_rocm", "flash_attn"})
    print(json.dumps({"run": run, "losses": losses, "imported": imported}))


def judge(config: Config, exact: list[float], found: dict[str, list[float]]) -> dict[str, Any]:
    """Compare losses of steps of `tiny` with eager float32's."""

    def furthest(losses: list[float]) -> float:
        return max(abs(a - b) for a, b in zip(losses, exact, strict=True))

    allowed = ALLOWED * furthest(found["eager"])
    distances = {name: furthest(losses) for name, losses in found.items()}
    return {
        "config": asdict(config),
        "eager_float32": exact,
        "losses": found,
        "largest_distance": distances,
        "allowed": allowed,
        "ok": all(distance <= allowed for distance in distances.values()),
    }


def ratios(first: dict[str, Any], second: dict[str, Any]) -> dict[str, float]:
    names = ("median_step_seconds", "tokens_per_second", "peak_bytes", "loss")
    return {name: first[name] / second[name] for name in names}


def text(result: dict[str, Any]) -> str:
    """The result for people."""
    config = result["config"]
    shape = ", ".join(f"{name} {config[name]}" for name in ("batch", "seqlen", "d_model", "heads", "layers"))
    lines = [f"preset {result['preset']}: {shape}, {config['dtype']}", ""]
    lines.append(f"{'':12}{'step, ms':>12}{'steps/s':>10}{'tokens/s':>12}{'peak, MiB':>11}{'loss':>9}")
    for run in result["runs"]:
        lines.append(
            f"{run['backend']:12}{1e3 * run['median_step_seconds']:12.2f}{run['steps_per_second']:10.2f}"
            f"{run['tokens_per_second']:12.0f}{run['peak_bytes'] / 2**20:11.0f}{run['loss']:9.4f}"
        )
    ratio = result["ratios"]
    first, second = (run["backend"] for run in result["runs"])
    lines += [
        f"{first} / {second}: step {ratio['median_step_seconds']:.2f}, tokens/s "
        f"{ratio['tokens_per_second']:.2f}, peak {ratio['peak_bytes']:.2f}",
        "",
        *(f"{run['backend']} ran {run['symbol']}" for run in result["runs"]),
        *(f"  {kernel}" for run in result["runs"] for kernel in run["kernels"]),
    ]
    if result["simulated"]:
        lines.append(SIMULATED)
    if curve := result["curve"]:
        lines += [
            "",
            f"loss curves of {curve['config']['steps']} steps of tiny, from eager float32's at most:",
        ]
        for name, distance in curve["largest_distance"].items():
            what = "set the measure" if name == "eager" else f"{curve['allowed']:.2g} allowed"
            lines.append(f"  {name:12}{distance:.2g} ({what})")
        lines.append("equal within what the type allows" if curve["ok"] else "NOT equal")
    return "\n".join(lines)


def check_plot(args: argparse.Namespace) -> None:
    if args.plot is None:
        return
    if not args.curve_steps:
        fail("--plot: got no loss curves to draw, expected --curve-steps of 1 or more")
    from pyfa_rocm import FmhaError
    from pyfa_rocm.cli.bench import plot as bench_plot

    try:
        bench_plot.check(args.plot)
    except FmhaError as error:
        fail(str(error))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both backends, and train the curves."""
    preset, config = resolve(args)
    steps = replace(PRESETS["tiny"], dtype=config.dtype, steps=args.curve_steps)
    runs, losses, exact = [], {}, []
    for name in dict.fromkeys((*args.backends, "eager") if args.curve_steps else args.backends):
        wanted = [steps, replace(steps, dtype="float32")] if name == "eager" else [steps]
        asked = config if name in args.backends else None
        result = isolated(name, asked, wanted if args.curve_steps else [])
        if asked is not None:
            runs.append(result["run"] | {"imported": result["imported"]})
        if args.curve_steps:
            losses[name], *rest = result["losses"]
            exact = rest[0] if rest else exact
    return {
        "preset": preset,
        "config": asdict(config),
        "simulated": not has_card(),
        "runs": runs,
        "ratios": ratios(*runs),
        "curve": judge(steps, exact, losses) if args.curve_steps else None,
    }


def main() -> int:
    """0; 1 if the loss curves are not equal; 2 if it could not run."""
    args = arguments()
    if args.worker is not None:
        worker(args.worker)
        return 0
    if args.curve_steps < 0:
        fail(f"--curve-steps: got {args.curve_steps}, expected 0 or more")
    if args.output_json is not None and not args.output_json.parent.is_dir():
        fail(f"--output-json: got {args.output_json}, expected a file in a folder that exists")
    if "pyfa_rocm" in args.backends and importlib.util.find_spec("pyfa_rocm") is None:
        fail("backend pyfa_rocm: the package is not installed")
    check_plot(args)
    result = run(args)
    print(text(result))
    if args.output_json is not None:
        args.output_json.write_text(json.dumps(result, indent=2) + "\n")
    if args.plot is not None:
        from benchmarks.training_plot import draw

        draw(result["curve"], args.plot)
    return 0 if result["curve"] is None or result["curve"]["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
