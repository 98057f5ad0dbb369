# SPDX-License-Identifier: MIT OR Apache-2.0
"""Disagreements in the results of `first-day`: with float64, with a promise, with the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["FASTER", "disagreements", "judgement", "middle"]

Steps = dict[str, dict[str, Any]]
# A candidate so many times as fast as the library's choice makes that a poor one.
FASTER = 1.05


def _said(kind: str, step: str, text: str, correctness: bool = False) -> dict[str, Any]:
    return {"kind": kind, "correctness": correctness, "step": step, "text": text}


def _prove(name: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    report = result.get("report")
    if report is None or report["ok"]:
        return
    if not report["launched_as_said"]:
        yield _said("error", name, f"{report['kernel']} was named, {report['launched']} ran", True)
    shares = {key: value for key, value in report.items() if key.endswith("_max_error_over_tolerance")}
    wrong = [key.partition("_")[0] for key, value in shares.items() if not _is_within(value)]
    wrong += [feature["feature"] for feature in report["features"] if not feature["ok"]]
    yield _said("error", name, f"beyond the tolerance: {', '.join(wrong)}", True)


def _is_within(share: float | None) -> bool:
    """Tell whether a share of the tolerance is no more than all of it; None: not computed."""
    return share is None or share <= 1.0


def _kernel(name: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kernel = result["kernel"]
    if result["reason"]:
        yield _said("not offered", name, f"{kernel}: {result['reason']}")
        return
    if not result["right"]:
        # NaN is null in JSON.
        wrong = {key: x for key, x in result["shares"].items() if x is None or not x <= 1.0}
        shares = ", ".join(f"{key} {'NaN' if x is None else f'{x:.3g}'}" for key, x in wrong.items())
        yield _said("error", name, f"{kernel}: {shares} of the tolerance; {result['problem']}", True)
    if result["same_bits_promised"] and not result["same_bits"]:
        yield _said("bits", name, f"{kernel}: other bits in a further run; {result['problem']}", True)


def middle(row: dict[str, Any]) -> float | None:
    """Return the time that counts: measured, or else the middle of the clock's range."""
    if row["measured"] is not None:
        return float(row["measured"])
    modelled = row["modelled"]
    return None if modelled is None else (modelled["low"] + modelled["high"]) / 2


def _choice(name: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    times = [(row["kernel"], middle(row)) for row in result["candidates"]]
    known = [(kernel, x) for kernel, x in times if x is not None]
    if not known or times[0][1] is None:
        return
    chosen, own = known[0]
    kernel, best = min(known, key=lambda item: item[1])
    if own / best > FASTER:
        by = "" if result["candidates"][0]["measured"] is not None else ", by the clock"
        yield _said("choice", name, f"{kernel} is {own / best:.2f} times as fast as {chosen}{by}")


def _range(name: str, result: dict[str, Any], steps: Steps) -> Iterator[dict[str, Any]]:
    measured = {row["kernel"]: row["measured"] for row in steps.get(result["of"], {}).get("candidates", [])}
    for row in result["candidates"]:
        seconds, (low, high) = measured.get(row["kernel"]), (row["modelled"][end] for end in ("low", "high"))
        if seconds is not None and not low <= seconds <= high:
            of_middle = seconds / ((low + high) / 2)
            text = (
                f"{row['kernel']}: measured {seconds * 1e6:.1f} us, the clock says {low * 1e6:.1f} to "
                f"{high * 1e6:.1f} ({of_middle:.2f} of the middle)"
            )
            yield _said("range", name, text)


def _constants(name: str, result: dict[str, Any], steps: Steps) -> Iterator[dict[str, Any]]:
    measured = steps.get("clocks", {}).get("sensors", {}).get("clock_hz")
    hz = result["modelled_hz"]
    if measured and hz and not hz["low"] <= measured["median"] <= hz["high"]:
        text = (
            f"clock under load: measured {measured['median'] / 1e6:.0f} MHz, the clock says "
            f"{hz['low'] / 1e6:.0f} to {hz['high'] / 1e6:.0f}"
        )
        yield _said("range", name, text)
    launch = steps.get("overhead", {}).get("launch", {}).get("measured")
    ends = result["constants"].get("launch_seconds")
    if launch is not None and ends and not ends["fast"] <= launch <= ends["slow"]:
        text = (
            f"from launch to launch: measured {launch * 1e6:.2f} us, the clock says "
            f"{ends['fast'] * 1e6:.1f} to {ends['slow'] * 1e6:.1f}"
        )
        yield _said("range", name, text)


def disagreements(steps: Steps) -> list[dict[str, Any]]:
    """List what disagrees: kind, whether correctness is at stake, the step, and a sentence."""
    found: list[dict[str, Any]] = []
    for name, result in steps.items():
        part, _, rest = name.partition(" ")
        if "died" in result:
            text = (
                f"{result['died']} runs died in it: a crash of the device or the driver, or they were killed"
            )
            found.append(_said("died", name, text, True))
        elif "failed" in result:
            found.append(_said("failed", name, result["failed"], True))
        elif "unsupported" in result:
            continue
        elif part == "prove":
            found += _prove(name, result)
        elif part == "kernels":
            found += _kernel(name, result)
        elif part in ("published", "choices", "decode"):
            found += _choice(name, result)
        elif part == "model":
            found += (_constants if rest == "constants" else _range)(name, result, steps)
    return found


def judgement(steps: Steps, names: list[str]) -> dict[str, Any]:
    """Return what the file says at its end, given the names of all steps that there are."""
    found = disagreements(steps)
    return {
        "ok": not any(x["correctness"] for x in found),
        "complete": all(name in steps for name in names),
        "left": [name for name in names if name not in steps],
        "disagreements": found,
    }
