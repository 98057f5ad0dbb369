// SPDX-License-Identifier: MIT OR Apache-2.0
// The scores of hip/fwd/fwd_pingpong.h: a product of q and k is scaled; and ALiBi is added to it, or it is
// capped. The softmax takes scores in units of log2 from one of these types:
//
//   exponent(s)               the score of a product; it rises with s, so that the largest s has the largest
//   arguments(s, reference)   exponent(s) - reference of four, by few instructions
//
// Some of the work is done on all products of a block beforehand, in place. ALiBi takes one instruction a
// product more than a plain score, and a softcap three and a half.
#pragma once

#include "args/fwd_pingpong.h"
#include "common/device.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

enum class PingpongScore { kPlain, kAlibi, kSoftcap };

// The arguments of an instance.
template <typename T, PingpongScore kScore>
struct PingpongParamsOf {
  using Type = PingpongScoreParams;
};
template <typename T>
  requires(sizeof(T) != 1)
struct PingpongParamsOf<T, PingpongScore::kPlain> {
  using Type = PingpongParams;
};
template <typename T>
  requires(sizeof(T) == 1)
struct PingpongParamsOf<T, PingpongScore::kPlain> {
  using Type = PingpongFp8Params;
};
__device__ inline const PingpongParams& plain_of(const PingpongParams& p) { return p; }
__device__ inline const PingpongParams& plain_of(const PingpongScoreParams& p) { return p.plain; }
__device__ inline const PingpongParams& plain_of(const PingpongFp8Params& p) { return p.plain; }

struct Four {
  float x0, x1, x2, x3;
};

__device__ inline Four multiply_add(Four x, Four y, Four z) {
  return {__builtin_fmaf(x.x0, y.x0, z.x0), __builtin_fmaf(x.x1, y.x1, z.x1),
          __builtin_fmaf(x.x2, y.x2, z.x2), __builtin_fmaf(x.x3, y.x3, z.x3)};
}
__device__ inline Four four_times(float x) { return {x, x, x, x}; }

struct PlainScores {
  const float& scale;

  __device__ float exponent(float s) const { return s * scale; }
  __device__ Four arguments(Four s, float reference) const {
    return multiply_add(s, four_times(scale), four_times(-reference));
  }
};

// The key of element i of tile t of S^T, counted from the lane's first one.
__device__ constexpr int key_of_element(int t, int i) { return t * 32 + (i & 8) * 2 + (i & 7); }

// ALiBi of a block that lies on one side of a row's own column is a number for the lane's first key,
// `offset`, and steps from key to key. The steps are added to the products, in their units.
struct AlibiScores {
  float scale, offset;

  __device__ float exponent(float s) const { return __builtin_fmaf(s, scale, offset); }
  __device__ Four arguments(Four s, float reference) const {
    return multiply_add(s, four_times(scale), four_times(offset - reference));
  }
};

class Alibi {
 public:
  __device__ void begin(const PingpongScoreParams& p, int batch, int head) {
    const float slope = p.alibi[batch * p.alibi_batch + head];
    constexpr float kLog2e = 1.4426950408889634F;
    in_log2 = slope * kLog2e;
    in_products = slope * p.per_scale;
  }

  // Takes a block of kKeys keys from column `first` on, and rows with own columns from `first_own` on in the
  // wave, `own` in the lane, whose first key is `away` columns in front of it.
  template <int kTilesS>
  __device__ AlibiScores shape(Float16 (&s)[kTilesS], float scale, int first, int first_own, int away) const {
    const bool before = first + kTilesS * 32 - 1 <= first_own, behind = first >= first_own + 31;
    const auto distance = static_cast<float>(away);
    // From the lane's key that is nearest to the column: no step is larger than the bias that it is part of.
    if (before) {
      constexpr float kLast = key_of_element(kTilesS - 1, 15);
      for_all(s, [this](float x, float key) { return __builtin_fmaf(in_products, key - kLast, x); });
      return {scale, (kLast - distance) * in_log2};
    }
    if (behind) {
      for_all(s, [this](float x, float key) { return __builtin_fmaf(-in_products, key, x); });
      return {scale, distance * in_log2};
    }
    for_all(s, [&](float x, float key) {
      return __builtin_fmaf(-in_products, __builtin_fabsf(distance - key), x);
    });
    return {scale, 0};
  }

 private:
  template <int kTilesS, typename Change>
  __device__ static void for_all(Float16 (&s)[kTilesS], Change change) {
    _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
      _Pragma("unroll") for (int i = 0; i < 16; ++i) {
        s[t][i] = change(s[t][i], static_cast<float>(key_of_element(t, i)));
      }
    }
  }

  float in_log2, in_products;  // the slope, in units of log2 and of products
};

// A cap of scores that are small beside it is nearly a line: s (c0 + c1 s^2 + c2 s^4). A hidden s, which is
// infinite, makes it infinite too, since c2 is above 0.
struct CappedScores {
  float c0, c1, c2;

  __device__ float factor(float s) const {
    const float square = s * s;
    return __builtin_fmaf(square, __builtin_fmaf(square, c2, c1), c0);
  }
  __device__ float exponent(float s) const { return s * factor(s); }
  // In steps, none of which waits for the one before it.
  __device__ Four arguments(Four s, float reference) const {
    const Four squares = {s.x0 * s.x0, s.x1 * s.x1, s.x2 * s.x2, s.x3 * s.x3};
    __builtin_amdgcn_sched_barrier(0);
    Four factors = multiply_add(squares, four_times(c2), four_times(c1));
    __builtin_amdgcn_sched_barrier(0);
    factors = multiply_add(squares, factors, four_times(c0));
    __builtin_amdgcn_sched_barrier(0);
    return multiply_add(s, factors, four_times(-reference));
  }
};

// If some product of the wave's block is large, all are capped by the exponential, in place.
template <int kTilesS>
__device__ inline CappedScores cap_scores(Float16 (&s)[kTilesS], const PingpongCap& cap) {
  float most = 0;
  _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
    _Pragma("unroll") for (int i = 0; i < 16; i += 2) {
      most = __builtin_fmaxf(__builtin_fmaxf(most, __builtin_fabsf(s[t][i])), __builtin_fabsf(s[t][i + 1]));
    }
  }
  if (__builtin_amdgcn_ballot_w64(most > cap.nearly_line) == 0) return {cap.c0, cap.c1, cap.c2};
  _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
    _Pragma("unroll") for (int i = 0; i < 16; ++i) {
      const float e = __builtin_amdgcn_exp2f(s[t][i] * cap.inner);
      s[t][i] = __builtin_fmaf(__builtin_amdgcn_rcpf(e + 1), -2 * cap.outer, cap.outer);
    }
  }
  constexpr float kSmallest = 1.17549435e-38F;
  return {1, 0, kSmallest};  // s itself, by the same instructions
}

}  // namespace fmha
