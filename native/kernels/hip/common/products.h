// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of matrices of 16 bits, and what stands in them.
#pragma once

#include "common/device.h"
#include "hip/common/numbers.h"

namespace fmha {

using Float2 = __attribute__((ext_vector_type(2))) float;
using Float4 = __attribute__((ext_vector_type(4))) float;
using Dwords2 = __attribute__((ext_vector_type(2))) uint32_t;
using Dwords4 = __attribute__((ext_vector_type(4))) uint32_t;
using Half2 = __attribute__((ext_vector_type(2))) _Float16;
using Half4 = __attribute__((ext_vector_type(4))) _Float16;
using Bfloat2 = __attribute__((ext_vector_type(2))) __bf16;
using Short4 = __attribute__((ext_vector_type(4))) short;

// a (16 x 16) times b (16 x 16), added to c. A lane has row lane % 16 of a and columns lane / 16 * 4 on; the
// same of b with rows and columns exchanged; and column lane % 16 of c and rows lane / 16 * 4 on.
template <typename T>
__device__ inline Float4 multiply(Dwords2 a, Dwords2 b, Float4 c) {
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(Half4, a), __builtin_bit_cast(Half4, b),
                                                 c, 0, 0, 0);
  } else {
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(Short4, a),
                                                     __builtin_bit_cast(Short4, b), c, 0, 0, 0);
  }
}

// The high halves of two dwords, as one.
__device__ inline uint32_t high_halves(uint32_t low, uint32_t high) {
  return __builtin_amdgcn_perm(high, low, 0x07060302);
}

// Bits whose high half is x as bf16, as round_to has it: to nearest, ties to even. Without a branch for NaNs,
// or only for numbers.
template <bool kNans = true>
__device__ inline uint32_t bits_to_even(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t number = bits + 0x7fff + (bits >> 16 & 1), nan = bits | 0x400000;
  return kNans && x != x ? nan : number;
}

// Two numbers from 0 to 1, to nearest; of two equally near ones bf16 takes the larger, on gfx950 the even
// one.
template <typename T>
__device__ inline uint32_t rounded_pair(float low, float high) {
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_bit_cast(uint32_t, Half2{static_cast<_Float16>(low), static_cast<_Float16>(high)});
  } else {
#if defined(__gfx950__)
    return __builtin_bit_cast(uint32_t, Bfloat2{static_cast<__bf16>(low), static_cast<__bf16>(high)});
#else
    return high_halves(__builtin_bit_cast(uint32_t, low) + 0x8000,
                       __builtin_bit_cast(uint32_t, high) + 0x8000);
#endif
  }
}

// Two numbers that T has.
template <typename T>
__device__ inline uint32_t exact_pair(float low, float high) {
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(low, high));
  } else {
    return high_halves(__builtin_bit_cast(uint32_t, low), __builtin_bit_cast(uint32_t, high));
  }
}

// Bytes 0 and 1 of four of the arch's 8-bit floats, or 2 and 3. fp16 and bf16 have them all.
template <bool kUpper>
__device__ inline Float2 floats_of_fp8(uint32_t four) {
#if defined(FMHA_HAS_FP8)
  return __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(four), kUpper);
#else
  static_assert(kUpper && !kUpper, "this arch has no conversion of fp8");
  return four;
#endif
}

#if defined(FMHA_HAS_FP8)
// The j % 4-th of four, by an instruction that converts one.
__device__ inline float one_of_fp8(uint32_t four, int j) {
  const int x = static_cast<int>(four);
  switch (j % 4) {
    case 0:
      return __builtin_amdgcn_cvt_f32_fp8(x, 0);
    case 1:
      return __builtin_amdgcn_cvt_f32_fp8(x, 1);
    case 2:
      return __builtin_amdgcn_cvt_f32_fp8(x, 2);
    default:
      return __builtin_amdgcn_cvt_f32_fp8(x, 3);
  }
}
#endif

// The j % 4-th of four. On gfx12 one at a time: of what v_cvt_pk_f32_fp8 takes, clang 20 keeps in registers
// below 128 for as long as it lives, and spills what does not fit there.
template <typename C>
__device__ inline float float_of_fp8(uint32_t four, int j) {
  static_assert(__is_same(C, ArchFp8));
#if defined(__GFX12__)
  return one_of_fp8(four, j);
#else
  const Float2 two = j % 4 < 2 ? floats_of_fp8<false>(four) : floats_of_fp8<true>(four);
  return two[j % 2];
#endif
}

#if defined(__gfx950__)
// The first pair of four, or the second, as T.
template <typename T>
__device__ inline uint32_t pair_of_fp8(uint32_t four, int second) {
  if constexpr (__is_same(T, Fp16)) {
    const auto low = __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(four, 1.0F, false),
               high = __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(four, 1.0F, true);
    return __builtin_bit_cast(uint32_t, second ? high : low);
  } else {
    const auto low = __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(four, 1.0F, false),
               high = __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(four, 1.0F, true);
    return __builtin_bit_cast(uint32_t, second ? high : low);
  }
}

template <typename T>
__device__ inline Dwords2 widened(uint32_t four) {
  return {pair_of_fp8<T>(four, 0), pair_of_fp8<T>(four, 1)};
}
#else
template <typename T>
__device__ inline Dwords2 widened(uint32_t four) {
  const Float2 low = floats_of_fp8<false>(four), high = floats_of_fp8<true>(four);
  return {exact_pair<T>(low.x, low.y), exact_pair<T>(high.x, high.y)};
}
#endif

template <typename T>
__device__ inline Dwords4 widened_eight(Dwords2 eight) {
  const Dwords2 low = widened<T>(eight.x), high = widened<T>(eight.y);
  return {low.x, low.y, high.x, high.y};
}

}  // namespace fmha
