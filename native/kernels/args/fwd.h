// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of a kernel: plain structs of fixed layout, passed by value as the kernel argument.
// Both sides include it, so that it needs only <cstdint>. Strides are in elements and have been checked to
// fit.
#pragma once

#include <cstdint>

namespace fmha {

// Arguments of every forward entry. The device fills CK's own Kargs from them; an instance reads only the
// fields of its own features.
struct FwdKernelParams {
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse;           // nullptr: not stored
  const void* bias;     // instances with an elementwise bias
  const float* alibi;   // instances with ALiBi
  const int32_t* cu_q;  // packed sequences: first row of each, and the end
  const int32_t* cu_k;
  const int32_t* used_q;  // packed sequences: lengths in use; nullptr: whole
  const int32_t* used_k;
  uint8_t* randval;        // instances with dropout; nullptr: not stored
  const uint64_t* philox;  // {seed, offset} on the device; nullptr: the values below
  uint64_t philox_seed;
  uint64_t philox_offset;
  int32_t seqlen_q;  // of packed sequences the most
  int32_t seqlen_k;
  int32_t total_q;  // rows of packed sequences
  int32_t total_k;
  int32_t hdim_q;
  int32_t hdim_v;
  int32_t nhead_q;
  int32_t nhead_ratio_qk;  // nhead_q / nhead_k
  float scale_log2e;       // softmax_scale (times descales) * log2(e): CK's exponentials are base 2
  float softcap;           // instances with softcap: as the caller gave it
  float scale_p;           // fp8: factor on P before it is rounded to 8 bits
  float scale_o;           // fp8: factor on O, which takes scale_p off again
  float rp_keep;           // dropout: 1 / (1 - p_drop)
  int32_t keep_at_most;    // dropout: random bytes up to this are kept
  int32_t mask_type;       // CK's GenericAttentionMaskEnum; only masked kernels read it
  int32_t window_left;     // negative: unlimited
  int32_t window_right;    // negative: unlimited
  int32_t stride_q;        // per row (seqlen)
  int32_t stride_k;
  int32_t stride_v;
  int32_t stride_o;
  int32_t stride_bias;
  int32_t stride_randval;
  int32_t nhead_stride_q;
  int32_t nhead_stride_k;
  int32_t nhead_stride_v;
  int32_t nhead_stride_o;
  int32_t nhead_stride_lse;
  int32_t nhead_stride_bias;
  int32_t nhead_stride_randval;
  int32_t batch_stride_q;  // these: not read of packed sequences
  int32_t batch_stride_k;
  int32_t batch_stride_v;
  int32_t batch_stride_o;
  int32_t batch_stride_lse;
  int32_t batch_stride_bias;
  int32_t batch_stride_randval;
  int32_t batch_stride_alibi;  // of them too
};
static_assert(sizeof(FwdKernelParams) == 15 * 8 + 38 * 4, "the layout is shared by two compilers");

}  // namespace fmha
