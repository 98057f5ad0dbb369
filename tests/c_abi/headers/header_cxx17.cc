// SPDX-License-Identifier: MIT OR Apache-2.0
// Only the public header, as a C++17 program sees it, and the layout that every caller has compiled in.
#include <cstddef>

#pragma GCC diagnostic error "-Wpadded"
#include "fmha_rocm.h"

static_assert(sizeof(fmha_tensor) == 32 && sizeof(fmha_lse) == 24);
static_assert(sizeof(fmha_bias) == 32 && sizeof(fmha_randval) == 32);
static_assert(sizeof(fmha_fwd_params) == 456 && offsetof(fmha_fwd_params, softmax_scale) == 64);
static_assert(offsetof(fmha_fwd_params, q) == 88 && offsetof(fmha_fwd_params, lse) == 216);
static_assert(offsetof(fmha_fwd_params, o_dtype) == 240 && offsetof(fmha_fwd_params, bias) == 248);
static_assert(offsetof(fmha_fwd_params, cu_seqlens_q) == 296 && offsetof(fmha_fwd_params, p_drop) == 344);
static_assert(offsetof(fmha_fwd_params, randval) == 376 && offsetof(fmha_fwd_params, v_descale) == 416);
static_assert(offsetof(fmha_fwd_params, reserved) == 420 && offsetof(fmha_fwd_params, workspace) == 424);
static_assert(offsetof(fmha_fwd_params, workspace_bytes) == 432 && offsetof(fmha_fwd_params, flags) == 440);
static_assert(sizeof(fmha_kernel_info) == 104 && offsetof(fmha_kernel_info, name) == 48);
static_assert(offsetof(fmha_kernel_info, candidate) == 72 && offsetof(fmha_kernel_info, pipeline) == 80);
static_assert(offsetof(fmha_kernel_info, step_count) == 88 && offsetof(fmha_kernel_info, reserved) == 92);
static_assert(offsetof(fmha_kernel_info, why) == 96);
static_assert(sizeof(fmha_extent) == 32 && offsetof(fmha_extent, reserved) == 28);

int header_cxx17() { return fmha_version()[0] == '0' && fmha_last_error()[0] == '\0'; }
