# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device's findings in others' kernels, as the tests assert them.

A finding says that a program relies on something that the ISA's manual, or LLVM's model of it, does not
guarantee. It does not say that a card gives wrong results.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

# How tests/clients/objects/findings.py begins its reasons.
_BEGIN = re.compile(r"^(?:(?:by the manual )?a true defect|harmless): ")
_NAMES = {
    "fmha_v3_fwd": "attention, forward",
    "fmha_v3_bwd": "attention, backward",
    "mla": "latent attention",
    "pa": "paged attention",
    "bf16gemm": "matrix product",
    "topksoftmax": "top-k",
}


def _plain(pattern: str) -> str:
    """Return a regular expression as one reads it: any text is an ellipsis."""
    text = re.sub(r"\((\w+)\|\w+\)", r"\1", pattern)
    text = re.sub(r"\.\*|\\S\+|\\d\+|\\d|\[78\]|b\?f16", "…", text).replace("\\", "")
    return re.sub("…[… ]*", "… ", text).replace("`", "").strip()


def _kernels(pattern: str) -> str:
    """Name the kind of kernels that a pattern is for."""
    kinds = dict.fromkeys(
        re.findall(r"(fmha_v3_\w+?|mla|pa|bf16gemm|topksoftmax|layer_norm\w*)[/\\(.]", pattern)
    )
    words = [_NAMES.get(kind, kind) for kind in kinds]
    return ", ".join(words)


def collect() -> dict[str, Any]:
    """Return the findings of AITER's objects, and the objects that give wrong results."""
    found = importlib.import_module("clients.objects.findings")
    rows = []
    for finding in found.TABLE:
        hazard = finding.check == "hazards-shipped"
        harmless = finding.reason.startswith("harmless")
        rows.append(
            {
                "kernels": _kernels(finding.objects), "objects": finding.objects, "check": finding.check,
                "seen": _plain(finding.text), "hazard": hazard, "harmless": harmless,
                "reason": _BEGIN.sub("", finding.reason),
            }
        )  # fmt: skip
    return {"rows": rows, "wrong": list(found.WRONG)}
