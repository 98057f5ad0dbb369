# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device's clock beside a card: a process has one HIP runtime, so it runs in another one.

A request is a line of JSON, and so is its answer. Run as a program, this module answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyfa_rocm import emulator
from pyfa_rocm.cli.first_day import timing
from pyfa_rocm.cli.first_day.workloads import Attention, Workload, from_json
from pyfa_rocm.device import current_device, describe
from pyfa_rocm.errors import FmhaError

__all__ = ["Clockwork"]

_PACKAGE = Path(__file__).parents[3]


class Clockwork:
    """The other process; it starts when it is first asked.

    Parameters
    ----------
    arch : str
        The arch that it plays.
    """

    def __init__(self, arch: str) -> None:
        self._arch = arch
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Clockwork:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def ask(self, workload: Workload, kernels: list[str]) -> dict[str, Any]:
        """Return the card that is modelled, and the range of seconds of some kernels, or a reason."""
        answer = self._answer({"workload": workload.as_json(), "kernels": kernels})
        return {"card": "", "candidates": [], "reason": ""} | answer

    def constants(self, load: Attention) -> dict[str, Any]:
        """Return the clock's constants, and the clock rate of the card under a load."""
        answer = self._answer({"load": load.as_json()})
        return {"card": "", "constants": {}, "modelled_hz": None, "reason": ""} | answer

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError as error:
            return {"reason": f"the software device cannot be asked: {error}"}
        if not line:
            return {"reason": "the process of the software device has ended"}
        return dict(json.loads(line))

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            paths = [str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = os.environ | {
                "PYFA_ROCM_DEVICE": "emulator",
                "FMHA_EMU_ARCH": self._arch,
                "PYTHONPATH": os.pathsep.join(paths),
            }
            self._process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env=environment,
            )  # fmt: skip
        return self._process


def _answer_to(request: dict[str, Any]) -> dict[str, Any]:
    card = describe(current_device()).name
    if "kernels" in request:
        found = timing.modelled(from_json(request["workload"]), request["kernels"])
        known = [row for row in found if row["modelled"] is not None]
        reason = "" if known else f"the clock has no numbers of {card}"
        return {"card": card, "candidates": known, "reason": reason}
    constants = {
        name: {end: x[end] for end in ("fast", "slow")} for name, x in emulator.timing_constants().items()
    }
    times = timing.times_by_clock(from_json(request["load"]).ready().enqueue(1))
    longest = max(times, key=lambda found: found.seconds.high, default=None)
    hz = None if longest is None else vars(longest.clock_hz)
    reason = "" if times else f"the clock has no numbers of {card}"
    return {"card": card, "constants": constants, "modelled_hz": hz, "reason": reason}


def _main() -> None:
    """Answer until there are no more requests."""
    for line in sys.stdin:
        try:
            answer = _answer_to(json.loads(line))
        except FmhaError as error:
            answer = {"reason": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
