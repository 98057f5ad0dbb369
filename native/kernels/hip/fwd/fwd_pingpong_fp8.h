// SPDX-License-Identifier: MIT OR Apache-2.0
// P of hip/fwd/fwd_pingpong.h as 8-bit floats, and their products on gfx950.
//
// P of a row's reference is not 1 but a power of two just below the type's largest number, so that fewer
// small P vanish: all exponents are so much higher. The row's sum has the same factor, and O is divided by it.
#pragma once

#include "common/device.h"
#include "hip/common/numbers.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// P of the reference is 2^kUp, 1 / kDown, and the reference follows any maximum whose P would be above kMost.
template <typename T>
struct PingpongP {
  static constexpr float kUp = 0, kDown = 1, kMost = 256;
};
// At most 1.75 times that: what float32 rounds off an exponent below 2^20 makes it no number above the
// largest, 240, or with OCP's type 448.
template <>
struct PingpongP<Fp8> {
  static constexpr float kUp = 7, kDown = 1.0F / 128, kMost = 224;
};
template <>
struct PingpongP<Fp8fn> {
  static constexpr float kUp = 8, kDown = 1.0F / 256, kMost = 448;
};

#if defined(FMHA_HAS_FP8)
// Four numbers, to nearest, ties to even.
__device__ inline uint32_t rounded_four(float x0, float x1, float x2, float x3) {
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(x0, x1, __builtin_nondeterministic_value(0), false);
  return __builtin_amdgcn_cvt_pk_fp8_f32(x2, x3, low, true);
}
#endif

}  // namespace fmha
