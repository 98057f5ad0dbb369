# SPDX-License-Identifier: MIT OR Apache-2.0
"""The public functions of the `flash_attn` package, for torch tensors on AMD GPUs: a drop-in for it.

Names, order, defaults and results are those of flash-attn 2.8. ``import pyfa_rocm.flash_attn as flash_attn``
is one way to use it; `install` makes programs find it that say ``import flash_attn``. `flash_attn_interface`
has the private functions too (``_flash_attn_forward`` and so on), and `flash_attn_2_cuda` those of the
extension module; `layers.rotary`, `losses.cross_entropy`, `ops.triton.rotary` and `ops.triton.cross_entropy`
are plain torch. flash-attn's other layers, its fused operators and its models are not part of it.
"""

from typing import NoReturn as _NoReturn

try:
    import torch as _torch
except ImportError as error:
    raise ImportError(
        "pyfa_rocm.flash_attn needs PyTorch 2.6 or newer: pip install torch (for a card, a build for ROCm)"
    ) from error

from pyfa_rocm.flash_attn import bert_padding, flash_attn_interface
from pyfa_rocm.flash_attn._install import VERSION, install, missing, uninstall
from pyfa_rocm.flash_attn.flash_attn_interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)

del _torch

# The version of the flash-attn whose functions these are: programs compare it before they call.
__version__ = VERSION

__all__ = [
    "bert_padding",
    "flash_attn_func",
    "flash_attn_interface",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "install",
    "uninstall",
]


def __getattr__(name: str) -> _NoReturn:
    raise AttributeError(missing(name))
