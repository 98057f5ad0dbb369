# SPDX-License-Identifier: MIT OR Apache-2.0
"""Others' kernels beside ours: files of the command line that give launches of code objects."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.peers import moonmath
from benchmarks.published import against
from benchmarks.published.points import Point
from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm.cli.bench import command as bench
from pyfa_rocm.cli.bench import model_text
from pyfa_rocm.clock.code import Launch
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.peers import peers
from pyfa_rocm.clock.subjects import Aiter, Ours, Peer, ProblemArrays, Subject, subjects
from pyfa_rocm.oracle.problem import Problem

pytestmark = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")
SMALL = Problem(1, 2, 2, 512, 128, False)
# A peer with one subject: AITER's kernel that rounds to the nearest, as a launch of its code object.
FILE = """
from pathlib import Path
from pyfa_rocm.clock.code import Launch, loaded
from pyfa_rocm.clock.subjects import Aiter, Peer

class Other(Peer):
    name = "other"

    def __init__(self, path):
        self.path = Path(path)

    def launches(self, arrays, direction):
        (theirs,) = Aiter(self.path.parent, "rtna").launches(arrays, direction)
        code = loaded(self.path.read_bytes(), "other")
        return [Launch(code, theirs.kernel, theirs.grid, theirs.threads, bytes(theirs.arguments))]

def peers(path):
    return [Other(path)]
"""


def _aiter_object() -> Path:
    found = subjects().get("aiter rtna")
    if found is None:
        pytest.skip("this checkout's toolchain has no objects of AITER: CK did not come from its wheel")
    assert isinstance(found, Aiter)
    return found.folder / "fwd_hd128_bf16_rtna.co"


def test_a_file_gives_launches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code object takes the same time by the mechanism, and is a column beside ours."""
    path = _aiter_object()
    file = tmp_path / "other.py"
    file.write_text(FILE)
    found = peers([f"{file}={path}"])
    ((way,),) = found.values()
    theirs, known = estimate(way, SMALL), estimate(subjects()["aiter rtna"], SMALL)
    assert theirs.seconds == known.seconds
    assert [kernel for kernel, _ in theirs.parts] == [kernel for kernel, _ in known.parts]
    assert theirs.parts[0][1] == theirs.seconds
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(["--model", "mi300x", "--against", "--json"])
    point = Point("moonmath", "mi300x", "aiter", "rtna", SMALL, "forward", 1.0, "held_out")
    monkeypatch.setattr(against, "points", lambda: [point])
    monkeypatch.setattr(against, "RACES", ())
    assert against.run(args, {Ours.name: Ours()}, found) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert list(row["columns"]) == ["ours", "ck", "other"]
    assert row["columns"]["ck"] is None  # it was not among the ways
    assert row["columns"]["other"]["seconds"] == vars(known.seconds)
    args.json = False
    assert against.run(args, {Ours.name: Ours()}, found) == 0
    (head,) = (line for line in capsys.readouterr().out.splitlines() if "published" in line and "ck" in line)
    assert head.split()[-3:] == ["pyfa_rocm", "ck", "other"]


class Slower(Peer):
    """AITER's launches, several times; its variants do so once, or as often as it says."""

    name = "slower"

    def __init__(self, times: Sequence[int]) -> None:
        self.times = times

    def variants(self) -> Sequence[Subject]:
        """See Subject."""
        return [Slower([n]) for n in self.times]

    def launches(self, arrays: ProblemArrays, direction: str) -> list[Launch]:
        """See Peer."""
        theirs = subjects()["aiter rtna"]
        assert isinstance(theirs, Aiter)
        return theirs.launches(arrays, direction) * self.times[0]


def test_the_fastest_variant_counts() -> None:
    """As a kernel that tunes itself would choose."""
    _aiter_object()
    assert [estimate(Slower(times), SMALL).launches for times in ([3, 1, 2], [3, 2], [2])] == [1, 2, 2]


def test_a_file_without_peers(tmp_path: Path) -> None:
    file = tmp_path / "none.py"
    file.write_text("")
    with pytest.raises(InvalidArgumentError, match=r"expected a file that defines peers"):
        peers([str(file)])


def test_moonmath_splits_the_last_round() -> None:
    """A round that would leave compute units idle is split along the keys, where that saves time."""
    # 22 blocks of 384 queries for 48 heads, 128 steps of 64 keys: 1056 = 3 x 304 + 144 workgroups. Whole, the
    # 144 take one round of 128 steps; in two parts, 288 workgroups take one round of 64.
    split = moonmath.TailSplit.of(22 * 48, 128)
    assert split == moonmath.TailSplit(whole=912, tail=144, ways=2)
    rows = split.schedule(22)
    assert rows[0].tolist() == rows[1].tolist() == [912 % 22, 912 // 22, 0, 0]
    assert rows[287, :2].tolist() == [21, 47]
    assert rows[608].tolist() == [912 % 22, 912 // 22, 0, 2]
    assert rows[608 + 143].tolist() == [21, 47, 286, 2]
    assert not rows[288:608].any()
    for workgroups, steps in ((2 * 304, 128), (304 + 300, 128), (400, 47)):  # even, nearly full, too short
        assert moonmath.TailSplit.of(workgroups, steps).tail == 0


def test_moonmath_refuses(tmp_path: Path) -> None:
    """Shapes that it cannot do are refused, and so are files whose name does not say the rounding."""
    file = tmp_path / "attention_rtne.co"
    file.write_bytes(b"")
    (way,) = moonmath.peers(str(file))
    assert way.name == "moonmath rtne"
    for shape in (
        Problem(1, 2, 2, 64, 128, True),
        Problem(1, 2, 1, 64, 128, False),
        Problem(1, 2, 2, 64, 64, False),
    ):
        with pytest.raises(UnsupportedError, match="moonmath: got forward"), way.prepare(shape, "forward"):
            pass
    nameless = file.rename(tmp_path / "attention.co")
    with pytest.raises(InvalidArgumentError, match="one of rtz, rtna, rtne in its name"):
        moonmath.peers(str(nameless))


def test_why_a_way_is_missing_is_said_once() -> None:
    """A way that does none of the problems has no rows; another one says in its row what it does not do."""
    span = {"low": 1e6, "high": 2e6}
    done = {"cycles": span, "tflops": span, "binds": {"matrix": 0.5}, "reason": ""}

    def row(name: str, seqlen: int, **found: object) -> dict[str, object]:
        return SMALL.as_json() | {"seqlen": seqlen, "direction": "forward", "implementation": name, **found}

    rows = [row(name, seqlen, **done) for seqlen in (512, 1024) for name in ("pyfa_rocm",)]
    rows += [row("ck", 512, **done), row("ck", 1024, reason="too long")]
    rows += [row("other", seqlen, reason="other: got head dim 128, expected 64") for seqlen in (512, 1024)]
    lines = model_text.tables({"card": "mi300x", "rows": rows}).splitlines()
    assert [line.split()[3:5] for line in lines if line.endswith("too long")] == [["ck", "too"]]
    assert [line for line in lines if "other" in line] == [
        "No model of other: other: got head dim 128, expected 64"
    ]
    assert lines[-1].startswith("No model of other")
