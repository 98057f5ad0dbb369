// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of the kernels of the backward pass (see args/fwd.h).
//
// A backward pass is these launches, in this order, all on one stream:
//
//   dot    D = p_keep * rowsum(dO * O), float32, (batch, nhead_q, seqlen_q) or packed (nhead_q, total_q)
//   memset of dq_acc to 0, and of the sums of the bias's gradient
//   bias   makes the gradient of the bias 0, if main writes or adds to it itself, but not to all of it
//   main   dK and dV of each query head; adds to dq_acc (kernels of args/bwd_one_pass.h: of each key head)
//   sum    dQ from dq_acc; and dK, dV from those of a group's query heads, if main did not write them itself
//   bias   the gradient of the bias from its sums, if main did not write it itself
//
// Kernels of args/bwd_fp32.h and args/bwd_pingpong.h follow `dot`, and write the gradients themselves.
#pragma once

#include <cstdint>

namespace fmha {

// Strides of a tensor (batch, seqlen, nhead, hdim) with a contiguous last dimension, in elements.
struct BwdStrides {
  int64_t batch;  // not read of packed sequences
  int64_t nhead;
  int64_t row;
};

// D of every row in use. Grid: (row blocks of a sequence, nhead_q, batch), see common/grid.h.
struct BwdDotParams {
  const void* o;
  const void* dout;
  float* d;
  const int32_t* cu_q;    // packed sequences: first row of each sequence, and the end; else nullptr
  const int32_t* used_q;  // packed sequences: lengths in use; nullptr: whole
  const int32_t* cu_k;    // read for `starts`
  int32_t* starts;  // nullptr, or (2, batch + 1): cu_q and cu_k for a kernel that believes what they hold
  BwdStrides o_strides;
  BwdStrides dout_strides;
  BwdStrides d_strides;  // row is 1
  int64_t rows;          // of packed sequences the most
  int32_t total_q;       // rows of packed sequences
  int32_t total_k;
  int32_t hdim_v;  // a multiple of 8
  float p_keep;    // 1 without dropout
  int32_t turned;  // the grid, see common/grid.h
  int32_t reserved;
};

// A workgroup does the key tile x + round * gridDim.x of a sequence, for one query head. Grid: (key tiles of
// a launch, nhead_q, batch). All tiles of a sequence add to the one dq_acc, in any order; or
// ("deterministic") those of a launch to a copy for each x, and the other tiles follow in further launches.
struct BwdKernelParams {
  const void* q;
  const void* k;
  const void* v;
  const void* dout;
  const float* lse;
  const float* d;
  float* dq_acc;  // zeroed
  void* dk;
  void* dv;
  const float* alibi;   // instances with ALiBi
  const int32_t* cu_q;  // packed sequences: first row of each sequence, and the end; else nullptr
  const int32_t* cu_k;
  const int32_t* used_q;  // packed sequences: lengths in use; nullptr: whole
  const int32_t* used_k;
  const uint64_t* philox;  // instances with dropout: {seed, offset} on the device; nullptr: the values below
  uint64_t philox_seed;
  uint64_t philox_offset;
  BwdStrides q_strides;
  BwdStrides k_strides;
  BwdStrides v_strides;
  BwdStrides dout_strides;
  BwdStrides lse_strides;  // row is 1
  BwdStrides d_strides;    // row is 1
  BwdStrides dq_acc_strides;
  BwdStrides dk_strides;  // by query head
  BwdStrides dv_strides;
  int64_t dq_acc_copy;  // from one copy to the next; 0: there is one
  int32_t seqlen_q;     // of packed sequences the most
  int32_t seqlen_k;
  int32_t hdim_q;
  int32_t hdim_v;
  int32_t nhead_q;
  int32_t nhead_ratio_qk;  // nhead_q / nhead_k
  float scale;             // softmax_scale
  float rp_keep;           // dropout: 1 / (1 - p_drop)
  int32_t keep_at_most;    // dropout: random bytes up to this are kept
  int32_t mask_type;       // CK's GenericAttentionMaskEnum
  int32_t window_left;     // negative: unlimited
  int32_t window_right;
  int32_t alibi_stride_batch;
  int32_t float_dkv;  // dk and dv are float32, not of q's dtype
  int32_t round;      // which launch of a deterministic pass this is, from 0
  float softcap;      // instances with softcap
  const void* bias;  // instances with an elementwise bias: of q's dtype, (batch, nhead_q, seqlen_q, seqlen_k)
  BwdStrides bias_strides;
  void* dbias;  // instances with the gradient of the bias
  BwdStrides dbias_strides;
  int32_t dbias_adds;  // it is float32, and added to; else of q's dtype, and written
  int32_t total_q;     // rows of packed sequences
  int32_t total_k;
  int32_t reserved;
};

// out = beta * out + (parts[0] + parts[1] + ... in this order), the sum in float32. Grid: (blocks of a
// head's rows, heads of out, batch). No parts: 0.
struct BwdSumParams {
  const float* parts;
  void* out;
  BwdStrides parts_strides;  // nhead: from one head of `out` to the next
  BwdStrides out_strides;
  int64_t part;  // from one part to the next
  int64_t rows;
  int32_t parts_count;
  int32_t hdim;  // a multiple of 8
  float beta;    // 0: out is not read
  int32_t turned;
  int32_t in_blocks;  // 1: `parts` lie in blocks of 32 rows and 128 dims, in the order of bwd_one_pass
  int32_t reserved;
};

// As BwdSumParams, for the gradient of a bias. An element is the sum over as many batches, heads and rows of
// `parts` as `counts` says, from its own index on. Grid: (blocks of a row times rows of out, heads, batch).
struct BwdBiasParams {
  const float* parts;
  void* out;
  BwdStrides parts_strides;
  BwdStrides out_strides;
  int32_t batches;  // 0: no parts
  int32_t heads;
  int32_t rows;
  int32_t columns;
  int32_t row_blocks;  // blocks of a row
  float beta;          // 0: out is not read
  int32_t turned;
  int32_t reserved;
};

}  // namespace fmha
