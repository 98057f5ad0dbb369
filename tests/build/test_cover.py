# SPDX-License-Identifier: MIT OR Apache-2.0
"""The set `ci`'s share of Composable Kernel's kernels, which cost most of a build."""

from __future__ import annotations

from typing import Any

import cover as tool


def _pairs(rows: list[Any]) -> set[Any]:
    return set().union(*(tool.pairs(row) for row in rows))


def test_ci_has_each_feature_and_template_of_default() -> None:
    """Alone, if not each with every other one: what no kernel has no test has seen."""
    features, templates = (
        [
            {(row.family, *value) for row in tool.rows_of(name) for value in values(row)}
            for name in ("default", "ci")
        ]
        for values in (lambda row: tool.features(row).items(), lambda row: [(row.pipeline,)])
    )
    assert features[0] <= features[1]
    assert templates[0] <= templates[1]


def test_a_cover_has_every_pair_and_no_kernel_to_spare() -> None:
    rows = tool.rows_of("ci")
    few = tool.cover(rows)
    assert len(few) < len(rows)
    assert _pairs(few) == _pairs(rows)
    for row in few:
        assert _pairs([other for other in few if other is not row]) != _pairs(rows)
