# SPDX-License-Identifier: MIT OR Apache-2.0
"""FlashAttention for AMD GPUs, for any framework or none.

Start with `flash_attn_func`. Without a GPU the same kernels run on a software device.
"""

from pyfa_rocm.array import DeviceArray, bfloat16, memory
from pyfa_rocm.attention import (
    FwdParams,
    KernelInfo,
    Lse,
    Strided,
    flash_attn_func,
    fmha_fwd,
    fmha_fwd_kernel,
    fmha_fwd_supported,
    fmha_prepare,
)
from pyfa_rocm.device import (
    Device,
    Runtime,
    Stream,
    current_device,
    device_count,
    devices,
    runtime,
    synchronize,
    use_device,
)
from pyfa_rocm.errors import (
    AbiMismatchError,
    FmhaError,
    HipError,
    InternalError,
    InvalidArgumentError,
    UnsupportedError,
)

__version__ = "0.1.0"

__all__ = [
    "AbiMismatchError",
    "Device",
    "DeviceArray",
    "FmhaError",
    "FwdParams",
    "HipError",
    "InternalError",
    "InvalidArgumentError",
    "KernelInfo",
    "Lse",
    "Runtime",
    "Stream",
    "Strided",
    "UnsupportedError",
    "bfloat16",
    "current_device",
    "device_count",
    "devices",
    "flash_attn_func",
    "fmha_fwd",
    "fmha_fwd_kernel",
    "fmha_fwd_supported",
    "fmha_prepare",
    "memory",
    "runtime",
    "synchronize",
    "use_device",
]
