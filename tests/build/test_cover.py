# SPDX-License-Identifier: MIT OR Apache-2.0
"""The set `ci` has what it needs of Composable Kernel's kernels, which cost most of a build, and no more."""

from __future__ import annotations

import re

from tools import load_tool

cover = load_tool("cover")


def test_no_kernel_of_ci_is_needless() -> None:
    """Each covers a pair that no other does, or cover.py says why it stays."""
    assert cover.needless(cover.rows_of("ci")) == []


def test_each_reason_is_of_a_kernel() -> None:
    paths = [row.path() for row in cover.rows_of("ci")]
    for pattern in cover.KEPT:
        assert any(re.fullmatch(pattern, path) for path in paths), pattern


def test_ci_has_each_feature_and_template_of_default() -> None:
    """Alone, if not each with every other one: what no kernel has no test has seen."""
    features, templates = (
        [
            {(row.family, *value) for row in cover.rows_of(name) for value in values(row)}
            for name in ("default", "ci")
        ]
        for values in (lambda row: cover.features(row).items(), lambda row: [(row.pipeline,)])
    )
    assert features[0] <= features[1]
    assert templates[0] <= templates[1]


def test_a_second_kernel_of_a_pair_is_needless() -> None:
    rows = cover.rows_of("ci")
    alike = next(row for row in cover.rows_of("default") if row.path() not in {r.path() for r in rows})
    assert alike.path() in cover.needless([*rows, alike])
