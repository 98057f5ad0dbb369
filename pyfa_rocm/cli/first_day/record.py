# SPDX-License-Identifier: MIT OR Apache-2.0
"""The file of `first-day`: what was run on, and the result of each step that is done.

The file is replaced as a whole after each step, so it is never half written. A step that has begun is noted:
if the process dies in it, the next run knows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.oracle.trial import to_json

__all__ = ["FORMAT", "SCHEMA", "Record"]

FORMAT = 1
SCHEMA = Path(__file__).with_name("schema.json")
# Runs that may die in a step before it counts as failed.
MOST_ATTEMPTS = 2


class Record:
    """The file, and what it holds.

    Parameters
    ----------
    path : Path
        The file; it need not exist.
    identity : dict
        The library, device, driver and versions of this run. A file of another run's is refused.
    fresh : bool
        True: the run forgets what the file holds.

    Attributes
    ----------
    steps : dict
        Results by the names of the steps.
    found : int
        How many steps the file already had.
    """

    def __init__(self, path: Path, identity: dict[str, Any], fresh: bool = False) -> None:
        self.path, self.identity = path, identity
        self.steps: dict[str, dict[str, Any]] = {}
        self._attempts: dict[str, int] = {}
        if not fresh and path.exists():
            self._read()
        self.found = len(self.steps)

    def _read(self) -> None:
        try:
            old = json.loads(self.path.read_text(encoding="utf-8"))
            same = {name: old["identity"].get(name) for name in self.identity} == self.identity
            is_ours = old["format"] == FORMAT
            self.steps, self._attempts = dict(old["steps"]), dict(old["attempts"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(
                f"--out: got {self.path}, which is no file of first-day, expected one, or a new name"
            ) from error
        if same and is_ours:
            return
        was = old["identity"]
        differs = [name for name, value in self.identity.items() if was.get(name) != value] or ["format"]
        raise InvalidArgumentError(
            f"--out: got {self.path}, which is of another {differs[0]} ({was.get(differs[0])}), expected a "
            "new name, or --fresh to replace it"
        )

    def begin(self, name: str) -> bool:
        """Note that a step begins; False: too many runs have died in it, and that is its result."""
        attempts = self._attempts.get(name, 0)
        if attempts >= MOST_ATTEMPTS:
            self.end(name, {"died": attempts})
            return False
        self._attempts[name] = attempts + 1
        self.write()
        return True

    def end(self, name: str, result: dict[str, Any]) -> None:
        """Keep the result of a step."""
        self.steps[name] = result
        self._attempts.pop(name, None)
        self.write()

    def give_up(self, name: str) -> None:
        """Forget that a step has begun: it was interrupted, and is no failure."""
        self._attempts.pop(name, None)
        self.write()

    def as_json(self) -> dict[str, Any]:
        """Return all of it, without a judgement."""
        return {
            "format": FORMAT,
            "identity": self.identity,
            "steps": self.steps,
            "attempts": self._attempts,
        }

    def write(self, judgement: dict[str, Any] | None = None) -> None:
        """Replace the file."""
        text = to_json(self.as_json() | (judgement or {}))
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
