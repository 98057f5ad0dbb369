// SPDX-License-Identifier: MIT OR Apache-2.0
// What the host hands a kernel: plain structs of fixed layout, passed by value as the kernel argument.
// Included by both sides, so nothing but <cstdint>; strides are in elements and have been checked to fit.
#pragma once

#include <cstdint>

namespace fmha {

// Arguments of the entries of fwd.hip. CK's own Kargs are filled from it on the device.
struct FwdKernelParams {
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse;  // nullptr: not stored
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t hdim_q;
  int32_t hdim_v;
  int32_t nhead_q;
  int32_t nhead_ratio_qk;  // nhead_q / nhead_k
  float scale_log2e;       // softmax_scale * log2(e): CK's exponentials are base 2
  int32_t mask_type;       // CK's GenericAttentionMaskEnum; read by masked kernels alone
  int32_t window_left;     // negative: unlimited
  int32_t window_right;    // negative: unlimited
  int32_t stride_q;        // per row (seqlen)
  int32_t stride_k;
  int32_t stride_v;
  int32_t stride_o;
  int32_t nhead_stride_q;
  int32_t nhead_stride_k;
  int32_t nhead_stride_v;
  int32_t nhead_stride_o;
  int32_t nhead_stride_lse;
  int32_t batch_stride_q;
  int32_t batch_stride_k;
  int32_t batch_stride_v;
  int32_t batch_stride_o;
  int32_t batch_stride_lse;
};
static_assert(sizeof(FwdKernelParams) == 136, "the layout is shared by two compilers");

}  // namespace fmha
