# SPDX-License-Identifier: MIT OR Apache-2.0
"""The entry point: it makes the backend's name known, and imports no kernels."""

from __future__ import annotations

import logging
from typing import Any

from pyfa_rocm.sglang._versions import NAME

__all__ = ["register"]

_logger = logging.getLogger(__name__)


def register() -> None:
    """Make the backend known to SGLang, in this process. Again is no error.

    An unsupported version of SGLang is refused when the backend is made, so that it is only refused to those
    who ask for it.
    """
    try:
        from sglang.srt.arg_groups import choices
        from sglang.srt.layers.attention import attention_registry as registry
    except ImportError:
        _logger.info("pyfa_rocm.sglang: this SGLang has no register of attention backends")
        return
    if NAME not in choices.ATTENTION_BACKEND_CHOICES:
        choices.add_attention_backend_choices([NAME])
    registry.register_attention_backend(NAME)(_made)


def _made(runner: Any) -> Any:
    """Return the backend of a model's runner."""
    if runner.use_mla_backend:
        from pyfa_rocm.sglang._latent import LatentBackend

        return LatentBackend(runner)
    from pyfa_rocm.sglang._backend import Backend

    return Backend(runner)
