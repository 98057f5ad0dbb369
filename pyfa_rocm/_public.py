# SPDX-License-Identifier: MIT OR Apache-2.0
"""The public names of the package; `pyfa_rocm` imports them when a program first uses one."""

from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.cache import Cache, CacheScale, CacheTensor
from pyfa_rocm._call.decode import DecodeParams
from pyfa_rocm._call.kv_append import KvAppendParams, Rotary
from pyfa_rocm._call.merge import LseParts, MergeParams, Parts
from pyfa_rocm._call.params import Bias, FwdParams, Lse, RandVal, Strided
from pyfa_rocm._call.quantize import Descale, QuantizeParams
from pyfa_rocm._runtime.paths import get_cmake_dir, get_include, get_lib, header_path, header_version
from pyfa_rocm.array import DeviceArray, bfloat16, float8_e4m3fn, float8_e4m3fnuz, memory
from pyfa_rocm.attention import flash_attn_func
from pyfa_rocm.backward import flash_attn_bwd, flash_attn_varlen_bwd
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
from pyfa_rocm.fmha import (
    KernelInfo,
    fmha_bwd,
    fmha_bwd_kernel,
    fmha_bwd_prepare,
    fmha_bwd_supported,
    fmha_bwd_workspace_bytes,
    fmha_decode,
    fmha_decode_kernel,
    fmha_decode_prepare,
    fmha_decode_supported,
    fmha_decode_workspace_bytes,
    fmha_fwd,
    fmha_fwd_kernel,
    fmha_fwd_prepare,
    fmha_fwd_supported,
    fmha_fwd_workspace_bytes,
    fmha_kv_append,
    fmha_kv_append_kernel,
    fmha_kv_append_prepare,
    fmha_kv_append_supported,
    fmha_merge,
    fmha_merge_kernel,
    fmha_merge_prepare,
    fmha_merge_supported,
    fmha_prepare,
    fmha_quantize,
    fmha_quantize_kernel,
    fmha_quantize_prepare,
    fmha_quantize_supported,
    fmha_quantize_workspace_bytes,
)
from pyfa_rocm.kv_append import flash_attn_kv_append
from pyfa_rocm.kvcache import flash_attn_with_kvcache
from pyfa_rocm.merge import flash_attn_merge
from pyfa_rocm.packed import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from pyfa_rocm.quantize import flash_attn_quantize
from pyfa_rocm.varlen import flash_attn_varlen_func

__version__ = header_version(header_path().read_text(encoding="utf-8"))

__all__ = [
    "AbiMismatchError",
    "Bias",
    "BwdParams",
    "Cache",
    "CacheScale",
    "CacheTensor",
    "DecodeParams",
    "Descale",
    "Device",
    "DeviceArray",
    "FmhaError",
    "FwdParams",
    "HipError",
    "InternalError",
    "InvalidArgumentError",
    "KernelInfo",
    "KvAppendParams",
    "Lse",
    "LseParts",
    "MergeParams",
    "Parts",
    "QuantizeParams",
    "RandVal",
    "Rotary",
    "Runtime",
    "Stream",
    "Strided",
    "UnsupportedError",
    "bfloat16",
    "current_device",
    "device_count",
    "devices",
    "flash_attn_bwd",
    "flash_attn_func",
    "flash_attn_kv_append",
    "flash_attn_kvpacked_func",
    "flash_attn_merge",
    "flash_attn_qkvpacked_func",
    "flash_attn_quantize",
    "flash_attn_varlen_bwd",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "fmha_bwd",
    "fmha_bwd_kernel",
    "fmha_bwd_prepare",
    "fmha_bwd_supported",
    "fmha_bwd_workspace_bytes",
    "fmha_decode",
    "fmha_decode_kernel",
    "fmha_decode_prepare",
    "fmha_decode_supported",
    "fmha_decode_workspace_bytes",
    "fmha_fwd",
    "fmha_fwd_kernel",
    "fmha_fwd_prepare",
    "fmha_fwd_supported",
    "fmha_fwd_workspace_bytes",
    "fmha_kv_append",
    "fmha_kv_append_kernel",
    "fmha_kv_append_prepare",
    "fmha_kv_append_supported",
    "fmha_merge",
    "fmha_merge_kernel",
    "fmha_merge_prepare",
    "fmha_merge_supported",
    "fmha_prepare",
    "fmha_quantize",
    "fmha_quantize_kernel",
    "fmha_quantize_prepare",
    "fmha_quantize_supported",
    "fmha_quantize_workspace_bytes",
    "get_cmake_dir",
    "get_include",
    "get_lib",
    "memory",
    "runtime",
    "synchronize",
    "use_device",
]
