# SPDX-License-Identifier: MIT OR Apache-2.0
"""The entry point: it makes the backends' names known, and imports neither kernels nor torch."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

__all__ = ["BACKEND", "LATENT", "register"]

BACKEND = "pyfa_rocm.vllm._backend.Backend"
LATENT = "pyfa_rocm.vllm._latent.LatentBackend"
PREFILL = "pyfa_rocm.vllm._latent.Prefill"
# Ours replace these backends of vLLM's if a variable of the environment is 1. Its CPU platform asks for no
# others. The class for latent attention cannot be CUSTOM too, and a process of vLLM's that begins knows no
# new name.
_REPLACED = {
    "PYFA_ROCM_VLLM_CPU": {"CPU_ATTN": BACKEND, "CPU_MLA": LATENT, "AMX_MLA": LATENT},
    "PYFA_ROCM_VLLM_MLA": {"TRITON_MLA": LATENT},
}

_logger = logging.getLogger(__name__)


def register() -> None:
    """Make the backends known to vLLM, in this process. Again is no error.

    vLLM imports a backend when it is asked for it. An unsupported version of vLLM is refused there, so that
    it is only refused to those who ask.
    """
    try:
        from vllm.v1.attention.backends import registry
        from vllm.v1.attention.backends.mla.prefill import registry as prefills
    except ImportError:
        _logger.info("pyfa_rocm.vllm: this vLLM has no register of attention backends")
        return
    _take_custom(registry.AttentionBackendEnum.CUSTOM, registry.register_backend, BACKEND)
    _take_custom(prefills.MLAPrefillBackendEnum.CUSTOM, prefills.register_mla_prefill_backend, PREFILL)
    for variable, replaced in _REPLACED.items():
        if os.environ.get(variable) == "1":
            for name, path in replaced.items():
                registry.register_backend(registry.AttentionBackendEnum[name], path)


def _take_custom(custom: Any, take: Callable[[Any, str], Any], path: str) -> None:
    """Take the name CUSTOM, unless another plug-in has it."""
    if custom.is_overridden() and custom.get_path() != path:
        _logger.warning(
            "pyfa_rocm.vllm: %s is %s already; VLLM_PLUGINS chooses plug-ins", custom, custom.get_path()
        )
        return
    take(custom, path)
