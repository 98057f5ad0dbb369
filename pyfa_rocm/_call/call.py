# SPDX-License-Identifier: MIT OR Apache-2.0
"""One call of a public function, by names: the input and the result of its checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyfa_rocm._call.params import Options
from pyfa_rocm._runtime.tensor import Layout

__all__ = ["Call", "Checked"]


@dataclass(slots=True, kw_only=True)
class Call:
    """A call without addresses. Sizes may be symbols while a framework traces.

    Attributes
    ----------
    q, k, v : Layout
        The inputs.
    options : Options
        As the public function was given them; of its arrays, whether they are None.
    out : Layout or None
        Layout of the output, if it was given.
    arrays : dict
        Layouts of the optional arrays, by their names of the public functions.
    max_seqlen_q, max_seqlen_k : int or None
        Upper bounds of the lengths of packed sequences; None: sequences are not packed.
    """

    q: Layout
    k: Layout
    v: Layout
    options: Options
    out: Layout | None = None
    arrays: dict[str, Layout] = field(default_factory=dict)
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None


class Checked(NamedTuple):
    """The checked arguments of a call, and what follows from them.

    Attributes
    ----------
    o, lse, scores : tuple of int
        Shapes of the output, of its log-sum-exp, and of the scores.
    fields : dict
        Fields of FwdParams: sizes, numbers, and what comes from the optional arrays.
    """

    o: tuple[int, ...]
    lse: tuple[int, ...]
    scores: tuple[int, ...]
    fields: dict[str, Any]
