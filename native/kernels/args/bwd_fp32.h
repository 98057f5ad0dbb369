// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of our own backward kernels (hip/bwd/bwd_fp32_kernel.h, of float32, and
// hip/bwd/bwd_wmma.h, of 16 bits), which follow `dot` (args/bwd.h) and write the gradients themselves:
// nothing is added up after them.
#pragma once

#include <cstdint>

#include "args/bwd.h"

namespace fmha {

// Grid: (key tiles of a sequence, then query tiles, then tiles of the bias's gradient, nhead_q, batch). At
// key tiles only the first nhead_k heads do something; at the bias's those of the dimensions it has.
struct BwdFp32Params {
  const void* q;  // of the kernel's type, as all that is void here
  const void* k;
  const void* v;
  const void* dout;
  const float* lse;
  const float* d;
  void* dq;
  void* dk;
  void* dv;
  const void* bias;     // nullptr: none
  void* dbias;          // nullptr: not wanted
  const float* alibi;   // nullptr: none
  const int32_t* cu_q;  // packed sequences: first row of each sequence, and the end; else nullptr
  const int32_t* cu_k;
  const int32_t* used_q;  // packed sequences: lengths in use; nullptr: whole
  const int32_t* used_k;
  const uint64_t* philox;  // {seed, offset} on the device; nullptr: the values below
  uint64_t philox_seed;
  uint64_t philox_offset;
  BwdStrides q_strides;
  BwdStrides k_strides;
  BwdStrides v_strides;
  BwdStrides dout_strides;
  BwdStrides lse_strides;  // row is 1
  BwdStrides d_strides;    // row is 1
  BwdStrides dq_strides;
  BwdStrides dk_strides;
  BwdStrides dv_strides;
  BwdStrides bias_strides;
  BwdStrides dbias_strides;
  int32_t seqlen_q;  // of packed sequences the most
  int32_t seqlen_k;  // of packed sequences the most: that of a row of the bias
  int32_t total_q;   // of packed sequences
  int32_t total_k;
  int32_t hdim_q;
  int32_t hdim_v;
  int32_t nhead_q;
  int32_t nhead_ratio_qk;  // nhead_q / nhead_k
  int32_t key_tiles;       // of a sequence
  int32_t query_tiles;
  int32_t dbias_key_tiles;  // of each row tile of the bias's gradient
  int32_t dbias_row_tiles;  // of a sequence; 1 if rows are summed up
  int32_t dbias_sums;       // what is summed up: bits below
  float scale;              // softmax_scale
  float softcap;            // 0: none
  float rp_keep;            // 1 / (1 - p_drop); 1 without dropout
  int32_t keep_at_most;     // random bytes up to this are kept; negative: no dropout
  int32_t top_left;         // how masks and ALiBi are aligned
  int32_t window_left;      // kUnlimited: all
  int32_t window_right;
  int32_t alibi_stride_batch;
  int32_t accumulate;
  int32_t float_gradients;  // of a kernel of 16 bits: dq, dk and dv are float32
  int32_t turned;           // the grid, see common/grid.h; not read by kernels of args/bwd_pingpong.h

  static constexpr int32_t kSequences = 1;
  static constexpr int32_t kHeads = 2;
  static constexpr int32_t kRows = 4;
  static constexpr int32_t kNothing = 8;  // 0 is written

  // More than two lengths are apart, and little enough to be added to them.
  static constexpr int32_t kUnlimited = 1 << 30;
};

}  // namespace fmha
