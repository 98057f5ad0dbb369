// SPDX-License-Identifier: MIT OR Apache-2.0
// Eight elements rounded to a type, to nearest, ties to even.
#pragma once

#include "hip/common/numbers.h"

namespace fmha {

struct EightNumbers {
  float x[kPerThread];
};

// `factor` is that of 8-bit types: others have none.
template <typename T>
__device__ inline Eight<T> rounded_eight(const EightNumbers& numbers, float /*factor*/) {
  Eight<T> rounded;
  for (int i = 0; i < kPerThread; ++i) round_to(rounded.x[i], numbers.x[i]);
  return rounded;
}

#if defined(FMHA_HAS_FP8)
// NaN stays what it is; the instruction would make NaN of what is too large.
__device__ inline float clamped(float x) {
  return x != x ? x : __builtin_fminf(__builtin_fmaxf(x, -kLargestFp8), kLargestFp8);
}

template <>
__device__ inline Eight<ArchFp8> rounded_eight<ArchFp8>(const EightNumbers& numbers, float factor) {
  float y[kPerThread];
  for (int i = 0; i < kPerThread; ++i) y[i] = clamped(numbers.x[i] * factor);
  struct {
    uint32_t low, high;
  } packed = {};
  packed.low = __builtin_amdgcn_cvt_pk_fp8_f32(y[0], y[1], packed.low, false);
  packed.low = __builtin_amdgcn_cvt_pk_fp8_f32(y[2], y[3], packed.low, true);
  packed.high = __builtin_amdgcn_cvt_pk_fp8_f32(y[4], y[5], packed.high, false);
  packed.high = __builtin_amdgcn_cvt_pk_fp8_f32(y[6], y[7], packed.high, true);
  return __builtin_bit_cast(Eight<ArchFp8>, packed);
}
#endif

}  // namespace fmha
