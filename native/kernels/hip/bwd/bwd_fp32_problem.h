// SPDX-License-Identifier: MIT OR Apache-2.0
// The problem as the float32 backward kernel (hip/bwd/bwd_fp32_kernel.h) sees it: sequences, matrices,
// windows, and the way of a score.
#pragma once

#include "args/bwd_fp32.h"
#include "common/grid.h"
#include "common/packed_rows.h"
#include "hip/common/philox.h"
#include "hip/common/window.h"

namespace fmha {

using Vec4 = float __attribute__((ext_vector_type(4)));

inline constexpr float kLog2e = 1.4426950408889634F;

// The matrix of a (batch, head). Rows that are not there, and columns from `hdim` on, are 0.
struct Matrix {
  const float* data;
  int64_t stride;
  int rows, hdim;

  __device__ Vec4 at(int row, int column) const {
    if (row >= rows || column >= hdim) return Vec4{};
    return *reinterpret_cast<const Vec4*>(data + row * stride + column);
  }
};

// A sequence of the batch: its lengths, and the first of its rows.
struct BwdSequence {
  int index;
  int seqlen_q, seqlen_k;
  int64_t batch;  // index; 0 of packed sequences
  int64_t first_q, first_k;
};

// The kernel's arguments, at an address that the compiler takes for another one each time: it would load them
// all at the beginning, keep them until the end, and spill up to 177 SGPRs.
__device__ inline const BwdFp32Params& arguments() {
  auto* address = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(address));
  return *reinterpret_cast<const BwdFp32Params*>(address);
}

__device__ inline BwdSequence sequence_of(const BwdFp32Params& p, int b) {
  if (p.cu_q == nullptr) return {b, p.seqlen_q, p.seqlen_k, b, 0, 0};
  const PackedRows q = packed_rows(p.cu_q, p.used_q, b, p.total_q, p.seqlen_q);
  const PackedRows k = packed_rows(p.cu_k, p.used_k, b, p.total_k, p.seqlen_k);
  return {b, q.count, k.count, 0, q.first, k.first};
}

// Lengths that come from memory are the same for all lanes, which the compiler does not know.
__device__ inline BwdSequence uniform(const BwdSequence& s) {
  const auto one = [](int64_t x) {
    const auto high = static_cast<uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(x >> 32)));
    const auto low = static_cast<uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(x)));
    return static_cast<int64_t>(uint64_t{high} << 32 | low);
  };
  return {s.index,
          __builtin_amdgcn_readfirstlane(s.seqlen_q),
          __builtin_amdgcn_readfirstlane(s.seqlen_k),
          s.batch,
          one(s.first_q),
          one(s.first_k)};
}

// Gives data of the arguments its type.
template <typename E>
__device__ E* typed(void* data) {
  return static_cast<E*>(data);
}
template <typename E>
__device__ const E* typed(const void* data) {
  return static_cast<const E*>(data);
}

template <typename E>
__device__ E* rows_of(E* data, const BwdStrides& s, const BwdSequence& sequence, int64_t first, int head) {
  return data + sequence.batch * s.batch + head * s.nhead + first * s.row;
}

// Gradients of scores, of one query head. P is exp2(score - lse), both in units of log2.
class HeadScores {
 public:
  __device__ HeadScores(const BwdFp32Params& p, const BwdSequence& s, int head)
      : p_(p), own_column_(diagonal_of(p.top_left, s.seqlen_q, s.seqlen_k)) {
    if (p.bias) bias_ = rows_of(typed<float>(p.bias), p.bias_strides, s, s.first_q, head);
    if (p.alibi) slope_ = p.alibi[int64_t{s.index} * p.alibi_stride_batch + head] * kLog2e;
    if (p.keep_at_most < 0) return;
    const uint64_t offset = p.philox ? p.philox[1] : p.philox_offset;
    const uint64_t head_of_all = static_cast<uint64_t>(s.index) * p.nhead_q + head;
    random_ = {p.philox ? p.philox[0] : p.philox_seed, offset + head_of_all * kRandomLanes};
  }

  // The score of a dot product, and what multiplies its gradient.
  __device__ float score(float dot, int row, int column, float& slope) const {
    float x = dot * (p_.scale * kLog2e);
    slope = 1;
    if (p_.softcap != 0) {
      const float e = __builtin_amdgcn_exp2f(dot * (2 * kLog2e * p_.scale / p_.softcap));
      const float tanh = 1 - 2 * __builtin_amdgcn_rcpf(e + 1);
      x = tanh * (p_.softcap * kLog2e);
      slope = 1 - tanh * tanh;
    }
    if (p_.bias) x = __builtin_fmaf(bias_[row * p_.bias_strides.row + column], kLog2e, x);
    if (p_.alibi) x -= slope_ * __builtin_fabsf(static_cast<float>(row + own_column_ - column));
    return x;
  }

  // Returns a bit for each of four elements from (row, column) on, of a column or a row: dropout keeps it.
  template <bool kColumn>
  __device__ uint32_t kept(int row, int column) const {
    if (p_.keep_at_most < 0) return 15;
    uint32_t bytes = 0, mask = 0;
    if constexpr (kColumn) bytes = random_.four_rows(row, column);
    for (int i = 0; i < 4; ++i) {
      if constexpr (!kColumn) bytes = random_.four_rows(row, column + i) >> (8 * (row & 3));
      mask |= static_cast<uint32_t>(static_cast<int>(bytes & 0xff) <= p_.keep_at_most) << i;
      if constexpr (kColumn) bytes >>= 8;
    }
    return mask;
  }

 private:
  const BwdFp32Params& p_;
  int own_column_;  // of row 0
  const float* bias_ = nullptr;
  float slope_ = 0;
  HeadRandom random_{};
};

// The terms of an element of the bias's gradient: sequences and heads, and rows or one tile of them.
struct BiasSum {
  int first_sequence, end_sequence;
  int first_head, end_head;
  bool all_rows;
};

__device__ inline BiasSum bias_sum() {
  const BwdFp32Params& p = arguments();
  const int sequence = grid_batch(p.turned), head = blockIdx.y;
  if (p.dbias_sums & BwdFp32Params::kNothing) return {};
  const bool heads = p.dbias_sums & BwdFp32Params::kHeads;
  const bool sequences = p.dbias_sums & BwdFp32Params::kSequences;
  return {sequences ? 0 : sequence, sequences ? static_cast<int>(grid_batches(p.turned)) : sequence + 1,
          heads ? 0 : head, heads ? p.nhead_q : head + 1, (p.dbias_sums & BwdFp32Params::kRows) != 0};
}

// Tells whether a workgroup has no part in it: another one of its column of the grid does the sum.
__device__ inline bool is_summed_elsewhere(const BwdFp32Params& p) {
  const bool heads = p.dbias_sums & BwdFp32Params::kHeads;
  const bool sequences = p.dbias_sums & BwdFp32Params::kSequences;
  return (heads && blockIdx.y > 0) || (sequences && grid_batch(p.turned) > 0);
}

// Rows of the bias's gradient that this sequence is to write: more than are in use, and the last one those
// behind it.
__device__ inline int bias_rows(const BwdFp32Params& p, int sequence) {
  if (p.cu_q == nullptr) return p.seqlen_q;
  const PackedRows whole = packed_rows(p.cu_q, nullptr, sequence, p.total_q, p.total_q);
  return sequence + 1 < static_cast<int>(grid_batches(p.turned)) ? whole.count : p.total_q - whole.first;
}

// The LSE as it is subtracted: a row that sees no key has P 0.
__device__ inline float lse_log2(float lse) {
  return lse == -__builtin_inff() ? __builtin_inff() : lse * kLog2e;
}

template <bool kKeys>
__device__ Window window_of(const BwdFp32Params& p, const BwdSequence& s) {
  const int shift = diagonal_of(p.top_left, s.seqlen_q, s.seqlen_k);
  if constexpr (kKeys) {
    return {-shift, p.window_right, p.window_left};
  } else {
    return {shift, p.window_left, p.window_right};
  }
}

// K or Q of a head, and V or dO.
template <bool kKeys>
__device__ Matrix matrix_a(const BwdFp32Params& p, const BwdSequence& s, int head) {
  if constexpr (kKeys) {
    return {rows_of(typed<float>(p.k), p.k_strides, s, s.first_k, head), p.k_strides.row, s.seqlen_k,
            p.hdim_q};
  } else {
    return {rows_of(typed<float>(p.q), p.q_strides, s, s.first_q, head), p.q_strides.row, s.seqlen_q,
            p.hdim_q};
  }
}

template <bool kKeys>
__device__ Matrix matrix_b(const BwdFp32Params& p, const BwdSequence& s, int head) {
  if constexpr (kKeys) {
    return {rows_of(typed<float>(p.v), p.v_strides, s, s.first_k, head), p.v_strides.row, s.seqlen_k,
            p.hdim_v};
  } else {
    return {rows_of(typed<float>(p.dout), p.dout_strides, s, s.first_q, head), p.dout_strides.row, s.seqlen_q,
            p.hdim_v};
  }
}

// Facts of an instance for the host. native/tools/catalogue/report.py reads them out of the code object.
struct BwdFp32Facts {
  int32_t tile_m, tile_n, hdim_q, hdim_v, block_size, blocks_per_cu;
};

}  // namespace fmha
