# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models that look their attention up in tables of their own: what they find there under our name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NoReturn

# Modules under transformers.models that have such tables; a release without one of them is no error.
MODULES = (
    "bark.modeling_bark",
    "data2vec.modeling_data2vec_vision",
    "deepseek_ocr2.modeling_deepseek_ocr2",
    "falcon.modeling_falcon",
    "git.modeling_git",
    "gpt_neo.modeling_gpt_neo",
    "gptj.modeling_gptj",
    "sam.modeling_sam",
    "sam_hq.modeling_sam_hq",
    "superglue.modeling_superglue",
    "unlimited_ocr.modeling_unlimited_ocr",
)
SUFFIX = "_ATTENTION_CLASSES"


def _refusal(model: str, name: str, others: list[str]) -> Callable[..., NoReturn]:
    """Return what stands in a table in place of an attention class."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"attn_implementation: got {name!r}, expected {' or '.join(map(repr, others))}: "
            f"transformers' {model} has attention classes of its own and does not use its attention interface"
        )

    return refuse


def refuse_in_tables(name: str) -> None:
    """Make such models say what works when they are made with our name, instead of a bare KeyError."""
    for path in MODULES:
        try:
            module = importlib.import_module(f"transformers.models.{path}")
        except ImportError:  # a model that cannot be imported cannot be made either
            continue
        model = path.rpartition(".")[2].removeprefix("modeling_")
        for key, table in list(vars(module).items()):
            if key.endswith(SUFFIX) and name not in table:
                table[name] = _refusal(model, name, list(table))
