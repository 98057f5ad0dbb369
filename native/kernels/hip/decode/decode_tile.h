// SPDX-License-Identifier: MIT OR Apache-2.0
// Sixteen rows of queries of hip/decode/decode.h: their scores with a block of keys, P, and O. A lane has of
// them row lane % 16, with the keys and dims of lane / 16: four by MFMA, eight by WMMA.
#pragma once

#include "hip/common/rdna.h"

#if defined(FMHA_RDNA)
#include "hip/decode/decode_cache_wmma.h"
#else
#include "hip/decode/decode_cache.h"
#endif

namespace fmha {

// T of q; Reader of the cache; head dims of q up to kQ.
template <typename T, typename Reader, int kQ>
struct DecodeTile {
  static constexpr int kTilesO = Reader::kEach * Reader::kParts;  // 16 dims each
  static constexpr float kLog2e = 1.44269504088896340736F;
  using Scores = DecodeRun[Reader::kTiles];
  using P = DecodeOperand[Reader::kTiles];
  using Q = DecodeQ<T, Reader, kQ>;

  // Rows from `first` on; those beyond the last are the last again, and are not stored.
  __device__ void begin(const DecodeWork& w, int first, float first_unit, typename Q::Shared& shared) {
    const int row = min(first + decode_lane() % kDecodeTileRows, w.rows - 1);
    token = w.token_of(row);
    head = w.head_of(row, token);
    seen_from = w.first_seen(token);
    seen_to = w.last_seen(token);
    unit = first_unit;
    q.begin(shared, row_of_q(w), w.p.hdim_q);
    _Pragma("unroll") for (auto& tile : o) tile = DecodeRun{};
    row_max = -__builtin_inff();
    row_sum = 0;
  }

  // Adds up the steps from `first_step` on whose keys the reader has.
  __device__ void scores(const Reader& cache, int first_step, Scores& s) const {
    _Pragma("unroll") for (int t = 0; t < Reader::kTiles; ++t) {
      if (first_step == 0) s[t] = DecodeRun{};
      _Pragma("unroll") for (int i = first_step; i < first_step + Reader::kStepsAtOnce; ++i) {
        s[t] = multiply<T>(cache.key(t, i), q.operand(i), s[t]);
      }
      settle(s[t]);
    }
  }

  // Scores to base-2 exponents: scale, softcap, ALiBi, mask. A lane has kDecodeRun keys of its row.
  __device__ void change(const DecodeWork& w, DecodeRun& s, int block, int tile) const {
    const DecodeParams& p = w.p;
    const int at = Reader::scored(block, tile);
    if (scales_pages(p, p.k_scale)) s *= w.page_scales(p.k_scale, p.k_scale_strides, at);
    if (p.softcap != 0) {
      const float to_two = 2 * kLog2e * w.scale / p.softcap;
      _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) {
        s[i] = p.softcap * kLog2e * (1 - 2 / (__builtin_amdgcn_exp2f(s[i] * to_two) + 1));
      }
    } else {
      s *= w.scale * kLog2e;
    }
    if (p.alibi != nullptr) {
      const float slope = p.alibi[w.batch() * p.alibi_stride_batch + recomputed(head)] * kLog2e;
      const int own = w.own(recomputed(token));
      _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) s[i] -=
          slope * __builtin_fabsf(static_cast<float>(at + i - own));
    }
    const int first = Reader::first(block, tile);
    const bool all_seen = first >= seen_from && first + Reader::kSpan - 1 <= seen_to;
    if (__all(all_seen)) return;
    _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) {
      if (at + i < seen_from || at + i > seen_to) s[i] = -__builtin_inff();
    }
  }

  // P of the scores, and what it changes of the sums so far.
  __device__ void exponentials(const DecodeWork& w, Scores& s, int block, P& p_t) {
    float most = row_max;
    for (const auto& tile : s) {
      _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) most = __builtin_fmaxf(most, tile[i]);
    }
    most = max_of_row(most);
    const float shift = most == -__builtin_inff() ? 0 : most;
    float factor = __builtin_amdgcn_exp2f(row_max - shift);
    row_max = most;
    row_sum *= factor;
    _Pragma("unroll") for (auto& tile : s) {
      _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) {
        tile[i] = __builtin_amdgcn_exp2f(tile[i] - shift);
        row_sum += tile[i];
      }
    }
    if (scales_pages(w.p, w.p.v_scale)) {
      Scores fractions;
      factor *= scale_values(w, block, fractions);
      _Pragma("unroll") for (int t = 0; t < Reader::kTiles; ++t) s[t] *= fractions[t];
    }
    _Pragma("unroll") for (int t = 0; t < Reader::kTiles; ++t) { p_t[t] = rounded_run<T>(s[t]); }
    if (__any(factor != 1)) {
      _Pragma("unroll") for (auto& tile : o) tile *= factor;
    }
  }

  // A logit without a value: for one wave of one split.
  __device__ void add_sink(const float* sinks) {
#pragma clang fp contract(off)  // of a large sink, fma(sinks[head], kLog2e, -most) is the product's rounding
    const float sink = sinks[head] * kLog2e;
    if (sink == -__builtin_inff()) return;
    const float most = __builtin_fmaxf(row_max, sink);
    const float factor = __builtin_amdgcn_exp2f(row_max - most);
    row_sum = row_sum * factor + __builtin_amdgcn_exp2f(sink - most);
    _Pragma("unroll") for (auto& tile : o) tile *= factor;
    row_max = most;
  }

  int token, head;         // of this lane's row
  int seen_from, seen_to;  // keys that it sees, both included
  Q q;
  DecodeRun o[kTilesO];
  float row_max, row_sum;  // of this lane's keys
  float unit;              // of O

 private:
  __device__ const T* row_of_q(const DecodeWork& w) const {
    const DecodeParams& p = w.p;
    const T* row =
        static_cast<const T*>(p.q) + head * p.q_strides.nhead + (w.q_base + token) * p.q_strides.row;
    return p.cu_q == nullptr ? row + w.batch() * p.q_strides.batch : row;
  }

  __device__ static bool scales_pages(const DecodeParams& p, const float* scales) {
    return Reader::kWidens && p.scale_per_page && scales != nullptr;
  }

  // Sets the fractions that multiply P, and returns the factor on the sums so far.
  __device__ float scale_values(const DecodeWork& w, int block, Scores& fractions) {
    float most = unit;
    _Pragma("unroll") for (int t = 0; t < Reader::kTiles; ++t) {
      fractions[t] = w.page_scales(w.p.v_scale, w.p.v_scale_strides, Reader::scored(block, t));
      _Pragma("unroll") for (int i = 0; i < kDecodeRun; ++i) most = __builtin_fmaxf(most, fractions[t][i]);
    }
    most = max_of_row(most);
    constexpr uint32_t kExponent = 0x7f800000, kOne = 0x00800000;
    const float next =
        most == unit ? unit
                     : __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, most) & kExponent) + kOne);
    const float inverse = next == 0 ? 0 : 1 / next;
    for (auto& tile : fractions) tile *= inverse;
    const float factor = unit * inverse;
    unit = next;
    return factor;
  }
};

}  // namespace fmha
