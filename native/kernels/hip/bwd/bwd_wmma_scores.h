// SPDX-License-Identifier: MIT OR Apache-2.0
// The scores of hip/bwd/bwd_wmma.h: their exponents, the factors of their gradients, and the probabilities
// that dropout keeps.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/wmma_dropout.h"
#include "hip/common/wmma_features.h"

namespace fmha {

// x if bit i is set, else 0: of a condition the compiler would make branches.
__device__ inline float if_bit(uint32_t bits, int i, float x) {
  const uint32_t mask = -(bits >> i & 1);
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) & mask);
}

// The scores of one query head. A lane has an own row, a key (kKeys) or a query, and eight walked ones.
template <typename T, WmmaFeatures kFeatures, bool kKeys>
class BwdScores {
 public:
  // Rows of the bias are read from `bias_row` on.
  __device__ BwdScores(const BwdSequence& s, int head, int lane, int bias_row)
      : lane_(lane), bias_row_(bias_row) {
    const BwdFp32Params& p = arguments();
    diagonal_ = diagonal_of(p.top_left, s.seqlen_q, s.seqlen_k);
    if constexpr (kFeatures.softcap) softcap_.begin(p.scale, p.softcap);
    if constexpr (kFeatures.bias == WmmaBias::kAlibi) {
      alibi_ = p.alibi[int64_t{s.index} * p.alibi_stride_batch + head] * kLog2eOfScores;
    } else if constexpr (kFeatures.bias == WmmaBias::kElementwise) {
      const T* base = rows_of(typed<T>(p.bias), p.bias_strides, s, s.first_q, head);
      bias_.set(base + bias_row * p.bias_strides.row, p.bias_strides.row,
                min(s.seqlen_q - bias_row, kBiasRows), s.seqlen_k);
    }
    if constexpr (kFeatures.dropout) {
      const uint64_t offset = p.philox ? p.philox[1] : p.philox_offset;
      const uint64_t head_of_all = static_cast<uint64_t>(s.index) * p.nhead_q + head;
      random_ = {p.philox ? p.philox[0] : p.philox_seed, offset + head_of_all * kRandomLanes};
    }
  }

  // Returns the score of a dot product in units of log2, and sets the factor of its gradient.
  __device__ float exponent(float dot, int walked, int own, float scale_log2e, float& slope) const {
    const int row = kKeys ? walked : own, column = kKeys ? own : walked;
    float x;
    if constexpr (kFeatures.softcap) {
      const float tanh = softcap_.tanh(dot);
      slope = 1 - tanh * tanh;
      x = tanh * softcap_.outer;
    } else {
      x = dot * scale_log2e;
    }
    if constexpr (kFeatures.bias == WmmaBias::kAlibi) {
      x = __builtin_fmaf(-alibi_, __builtin_fabsf(static_cast<float>(row + diagonal_ - column)), x);
    } else if constexpr (kFeatures.bias == WmmaBias::kElementwise) {
      x = __builtin_fmaf(bias_.at(row - bias_row_, column), kLog2eOfScores, x);
    }
    return x;
  }

  // A bit for each of the lane's eight of 16 walked rows, which begin at `first`; `eight` is where its own do
  // among them. The wave's own rows begin at `wave_first`, and `own` is the lane's.
  __device__ uint32_t kept(int first, int eight, int wave_first, int own) const {
    const int keep_at_most = arguments().keep_at_most;
    if constexpr (!kKeys) {
      const Kept kept{random_, keep_at_most, lane_};
      return kept.bits(kept.draw(wave_first, first));
    }
    const int row = first + eight, column = remade(own);
    return bits_of(random_.four_rows(row, column), keep_at_most) |
           bits_of(random_.four_rows(row + 4, column), keep_at_most) << 4;
  }

 private:
  static constexpr int kBiasRows = 64;  // the most of a tile

  __device__ static uint32_t bits_of(uint32_t bytes, int keep_at_most) {
    uint32_t mask = 0;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      mask |= static_cast<uint32_t>(static_cast<int>(bytes >> (8 * i) & 0xff) <= keep_at_most) << i;
    }
    return mask;
  }

  int lane_, bias_row_;
  int diagonal_;  // of row 0: its column
  Softcap softcap_;
  float alibi_;
  BiasRows<T> bias_;
  HeadRandom random_;
};

}  // namespace fmha
