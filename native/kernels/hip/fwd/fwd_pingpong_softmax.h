// SPDX-License-Identifier: MIT OR Apache-2.0
// The softmax of hip/fwd/fwd_pingpong.h: of scores P, its row sums, and the reference of its exponentials.
//
// P of a row's largest score has no rounding error if it is 1, so the reference follows the row's maximum. It
// stays behind only if P of the new maximum is a small share of the row's sum, and at most 256: the rounding
// error of one P hardly shows there, and O is rarely rescaled in long rows of similar scores.
//
// P is rounded to nearest: bf16 by adding half a unit and cutting off, halves up, or on gfx950, which has a
// conversion, to even.
//
// Each lane looks at its half of the keys; only if the reference of some row must follow, both halves do.
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"
#include "hip/fwd/fwd_pingpong_fp8.h"
#include "hip/fwd/fwd_pingpong_scores.h"

namespace fmha {

// The lane's number, found anew each time: it takes no register until then.
__device__ inline int lane_anew() {
  const uint32_t all = remade_scalar(~0U);
  return __builtin_amdgcn_mbcnt_hi(all, __builtin_amdgcn_mbcnt_lo(all, 0));
}

// The x of lanes l and l ^ 32, in both of them.
struct Halves {
  float first, second;
};

__device__ inline Halves halves(float x, [[maybe_unused]] int lane) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
#if defined(__gfx950__)
  const auto both = __builtin_amdgcn_permlane32_swap(bits, bits, false, false);
  const uint32_t first = both[0], second = both[1];  // clang casts both[1] itself as if it were both[0]
  return {__builtin_bit_cast(float, first), __builtin_bit_cast(float, second)};
#else
  const int other = (lane ^ 32) * 4;
  return {x, __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(other, bits))};
#endif
}

// Four of O's elements times a factor, where O fills the AGPRs: the compiler would take all of it to VGPRs,
// at once. Products that wrote O are long over, and those that read it are further away than they must be.
template <int i>
__device__ inline void scale_in_agprs(Float16& o, float factor) {
  Four x = {o[i], o[i + 1], o[i + 2], o[i + 3]}, y;
  asm volatile(
      "v_accvgpr_read_b32 %4, %0\n\tv_accvgpr_read_b32 %5, %1\n\t"
      "v_accvgpr_read_b32 %6, %2\n\tv_accvgpr_read_b32 %7, %3\n\t"
      "v_mul_f32 %4, %8, %4\n\tv_mul_f32 %5, %8, %5\n\tv_mul_f32 %6, %8, %6\n\tv_mul_f32 %7, %8, %7\n\t"
      "v_accvgpr_write_b32 %0, %4\n\tv_accvgpr_write_b32 %1, %5\n\t"
      "v_accvgpr_write_b32 %2, %6\n\tv_accvgpr_write_b32 %3, %7"
      : "+a"(x.x0), "+a"(x.x1), "+a"(x.x2), "+a"(x.x3), "=&v"(y.x0), "=&v"(y.x1), "=&v"(y.x2), "=&v"(y.x3)
      : "v"(factor));
  o[i] = x.x0, o[i + 1] = x.x1, o[i + 2] = x.x2, o[i + 3] = x.x3;
}

// A lane's share: one row, and half of the keys. kTilesS and kTilesO: of 32 keys and of 32 dims.
template <typename T, int kTilesS, int kTilesO>
class Softmax {
  static constexpr int kSteps = 4 * kTilesS;  // of four keys
  using P = Dwords4[kTilesS * sizeof(T)];
  static constexpr float kUp = PingpongP<T>::kUp, kMost = PingpongP<T>::kMost;
  static constexpr float kLowest = -3.40282346638528859811704183484516925440e+38F;

 public:
  // As O is left to the end: what divides it, but not of a row that sees no key, and the row's LSE.
  struct Result {
    float factor, lse;
  };

  __device__ void begin() {
    reference = limit = kLowest;
    sum = 0;
  }

  // P of the first block's scores (hip/fwd/fwd_pingpong_scores.h): there is no O to rescale.
  template <typename Scores>
  __device__ void run_first(const Float16 (&s)[kTilesS], const Scores& scores, P& p) {
    constexpr auto kNothing = [](int) {};
    refer_to(highest(scores.exponent(maximum(s, kNothing)), reference));
    fill(s, scores, p, kNothing);
  }

  // P of a later block's scores. O is rescaled if need be. `meanwhile` is called now and then, with the
  // number of the call: first kTilesS times, then four times as often.
  template <typename Scores, typename Meanwhile>
  __device__ void run(const Float16 (&s)[kTilesS], const Scores& scores, P& p, Float16 (&o)[kTilesO],
                      Meanwhile meanwhile) {
    const float most = scores.exponent(maximum(s, meanwhile));
    if (any_lane(most > limit) && must_raise(most)) raise(most, o);
    fill(s, scores, p, meanwhile);
  }

  // The lane's part, for waves that have other keys of the same rows.
  __device__ Float2 state() const { return {reference, sum}; }

  // Takes the parts of all of those; returns the factor on O of the own part.
  template <int kParts>
  __device__ float join(const Float2 (&parts)[kParts]) {
    const float own = reference;
    _Pragma("unroll") for (int i = 0; i < kParts; ++i) reference = __builtin_fmaxf(reference, parts[i][0]);
    sum = 0;
    _Pragma("unroll") for (int i = 0; i < kParts; ++i) {
      sum += parts[i][1] * __builtin_amdgcn_exp2f(parts[i][0] - reference);
    }
    return __builtin_amdgcn_exp2f(own - reference);
  }

  // `sinks` has a score without a value for each head, which no block has; nullptr: there are none.
  __device__ Result result(const float* sinks, int head) const {
    const Halves of_halves = halves(sum, own_lane());
    float all = of_halves.first + of_halves.second, most = reference, of_keys = 1;
    constexpr float kLn2 = 0.693147180559945309F, kLog2e = 1.44269504088896341F;
    if (sinks != nullptr) {
#pragma clang fp contract(off)  // of a large sink, fma(sinks[head], kLog2e, -most) is the product's rounding
      const float sink = sinks[head] * kLog2e;
      most = __builtin_fmaxf(reference, sink);
      of_keys = __builtin_amdgcn_exp2f(reference - most);
      all = all * of_keys + __builtin_amdgcn_exp2f(sink - most);
    }
    if (all == 0) return {0, -__builtin_inff()};
    const float factor = all > 0 ? of_keys / all : all;  // a NaN stays one
    if constexpr (kUp != 0) {
      return {factor, (most + kUp + __builtin_amdgcn_logf(all * PingpongP<T>::kDown)) * kLn2};
    }
    return {factor, (most + __builtin_amdgcn_logf(all)) * kLn2};
  }

 private:
  // A new maximum is the reference if its P is above this share of the sum of the lane's half, or above
  // kMost.
  static constexpr float kShare = 1.0F / 8;

  // P of `next` is 2^kUp.
  __device__ void refer_to(float next) {
    reference = limit = next;
    if constexpr (kUp != 0) limit += kUp;
  }

  template <typename Meanwhile>
  __device__ static float maximum(const Float16 (&s)[kTilesS], Meanwhile meanwhile) {
    Four most = {largest(s[0][0], s[0][1], s[0][2]), largest(s[0][3], s[0][4], s[0][5]),
                 largest(s[0][6], s[0][7], s[0][8]), largest(s[0][9], s[0][10], s[0][11])};
    maximum_from<12>(most, s, meanwhile);
    return largest(largest(most.x0, most.x1, most.x2), most.x3, most.x3);
  }

  // In turn, so that none of the four waits for the one in front of it.
  template <int first, typename Meanwhile>
  __device__ static void maximum_from(Four& most, const Float16 (&s)[kTilesS], Meanwhile meanwhile) {
    if constexpr (first < 16 * kTilesS) {
      if constexpr (first % 16 == 12) meanwhile(first / 16);
      raise_to<first>(most.x0, s);
      raise_to<first + 2>(most.x1, s);
      raise_to<first + 4>(most.x2, s);
      raise_to<first + 6>(most.x3, s);
      in_order();
      maximum_from<first + 8>(most, s, meanwhile);
    }
  }

  template <int i>
  __device__ static void raise_to(float& most, const Float16 (&s)[kTilesS]) {
    if constexpr (i < 16 * kTilesS) most = largest(most, s[i / 16][i % 16], s[i / 16][i % 16 + 1]);
  }

  __device__ static float largest(float x, float y, float z) {
    return __builtin_fmaxf(__builtin_fmaxf(x, y), z);
  }

  // The reference that the largest of x in both halves of the row asks for, but `least` at least.
  __device__ static float highest(float x, float least) {
    Halves of_halves = halves(x, own_lane());
    if constexpr (kUp != 0) of_halves = {of_halves.first - kUp, of_halves.second - kUp};
    return largest(of_halves.first, of_halves.second, least);
  }

  __device__ static int own_lane() {
    if constexpr (kTilesO > 6) return lane_anew();
    return threadIdx.x % 64;
  }

  __device__ static bool any_lane(bool x) { return __builtin_amdgcn_ballot_w64(x) != 0; }

  // Brings the limit up to date, since the sum has grown.
  __device__ bool must_raise(float most) {
    const float lag = __builtin_amdgcn_logf(__builtin_fminf(sum * kShare, kMost));
    limit = reference + __builtin_fmaxf(lag, kUp);
    return any_lane(most > limit);
  }

  __device__ void raise(float most, Float16 (&o)[kTilesO]) {
    const float next = highest(most, reference);
    const float factor = __builtin_amdgcn_exp2f(reference - next);
    refer_to(next);
    sum *= factor;
    rescale(o, factor);
  }

 public:
  __device__ static void rescale(Float16 (&o)[kTilesO], float factor) {
    _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) {
      if constexpr (kTilesO > 8) {
        scale_in_agprs<0>(o[t], factor);
        scale_in_agprs<4>(o[t], factor);
        scale_in_agprs<8>(o[t], factor);
        scale_in_agprs<12>(o[t], factor);
      } else {
        _Pragma("unroll") for (int i = 0; i < 16; ++i) o[t][i] *= factor;
      }
    }
  }

 private:
  struct Filling {
    Four arguments, powers, sums;
  };

  // Four at a time, in steps: arguments of the next four, exponentials of these, sums and P of those before,
  // so that no instruction waits for the one in front of it. Steps are no loop, of which the compiler would
  // move all sums to the end.
  template <typename Scores, typename Meanwhile>
  __device__ void fill(const Float16 (&s)[kTilesS], const Scores& scores, P& p, Meanwhile meanwhile) {
    Filling f = {argue<0>(s, scores), {}, {}};
    fill_from<0>(f, s, scores, p, meanwhile);
    finish<kSteps - 1>(f, p);
    sum += (f.sums.x0 + f.sums.x1) + (f.sums.x2 + f.sums.x3);
  }

  template <int step, typename Scores, typename Meanwhile>
  __device__ void fill_from(Filling& f, const Float16 (&s)[kTilesS], const Scores& scores, P& p,
                            Meanwhile meanwhile) {
    if constexpr (step < kSteps) {
      meanwhile(kTilesS + step);
      const Four next = {power(f.arguments.x0), power(f.arguments.x1), power(f.arguments.x2),
                         power(f.arguments.x3)};
      if constexpr (step + 1 < kSteps) f.arguments = argue<step + 1>(s, scores);
      if constexpr (step > 0) finish<step - 1>(f, p);
      f.powers = next;
      in_order();
      fill_from<step + 1>(f, s, scores, p, meanwhile);
    }
  }

  template <int step, typename Scores>
  __device__ Four argue(const Float16 (&s)[kTilesS], const Scores& scores) const {
    const Float16& of = s[step / 4];
    constexpr int i = step % 4 * 4;
    return scores.arguments({of[i], of[i + 1], of[i + 2], of[i + 3]}, reference);
  }

  template <int step>
  __device__ static void finish(Filling& f, P& p) {
    const Four& x = f.powers;
    if constexpr (step == 0) {
      f.sums = x;
    } else {
      f.sums = {f.sums.x0 + x.x0, f.sums.x1 + x.x1, f.sums.x2 + x.x2, f.sums.x3 + x.x3};
    }
    if constexpr (sizeof(T) == 1) {
      p[step / 4][step % 4] = rounded_four(x.x0, x.x1, x.x2, x.x3, p[step / 4][step % 4]);
    } else {
      p[step / 2][step % 2 * 2] = rounded_pair<T>(x.x0, x.x1);
      p[step / 2][step % 2 * 2 + 1] = rounded_pair<T>(x.x2, x.x3);
    }
  }

  __device__ static float power(float x) { return __builtin_amdgcn_exp2f(x); }

  // The compiler moves nothing across, on gfx950 and if P has 8 bits. It would otherwise put each argument in
  // front of its exponential, which saves registers and costs a wait.
  __device__ static void in_order() {
#if defined(__gfx950__)
    __builtin_amdgcn_sched_barrier(0);
#else
    if constexpr (sizeof(T) == 1) __builtin_amdgcn_sched_barrier(0);
#endif
  }

  float reference, sum;  // the sum is of half the keys
  float limit;           // a maximum that is not above it needs no new reference
};

}  // namespace fmha
