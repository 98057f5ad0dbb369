// SPDX-License-Identifier: MIT OR Apache-2.0
// WMMA of gfx11 and gfx12 by waves of 32 lanes: a (16 x 16) times b (16 x 16) of 16 bits, added to c of
// float32. Lane l has, with half = l / 16:
//
//              gfx11                                  gfx12
//   a          row l % 16, all 16 columns: both       row l % 16, columns 8 * half + 0 to 7
//              halves have the same
//   b          the same of b's columns and rows
//   c          column l % 16, in element i row        column l % 16, in element i row
//              2 * i + half                           8 * half + i
//
// Callers see one layout, gfx12's. On gfx11 the rows of a are exchanged (row_of_lane): then element i of c is
// in row 8 * half + i too. So a lane has of a product eight rows that lie together, which the next product
// takes as columns of b: of its own eight on gfx12, and with the other half's on gfx11 (operand_of).
#pragma once

#include <hip/hip_runtime.h>

#include "hip/decode_numbers.h"

namespace fmha {

using Float8 = __attribute__((ext_vector_type(8))) float;
using Dwords8 = __attribute__((ext_vector_type(8))) uint32_t;

#if defined(__GFX12__)
inline constexpr bool kBothHalves = false;
using Operand = Dwords4;
#else
inline constexpr bool kBothHalves = true;  // have all 16 columns of a, and rows of b
using Operand = Dwords8;
#endif

using HalfOperand = __attribute__((ext_vector_type(sizeof(Operand) / 2))) _Float16;
using ShortOperand = __attribute__((ext_vector_type(sizeof(Operand) / 2))) short;

template <typename T>
__device__ inline Float8 multiply16(Operand a, Operand b, Float8 c) {
#if defined(__GFX12__)
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(__builtin_bit_cast(HalfOperand, a),
                                                            __builtin_bit_cast(HalfOperand, b), c);
  } else {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(ShortOperand, a),
                                                             __builtin_bit_cast(ShortOperand, b), c);
  }
#else
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(HalfOperand, a),
                                                      __builtin_bit_cast(HalfOperand, b), c);
  } else {
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(ShortOperand, a),
                                                       __builtin_bit_cast(ShortOperand, b), c);
  }
#endif
}

// Which of 16 rows of a lane l % 16 brings.
__device__ inline int row_of_lane(int lane) {
  if constexpr (kBothHalves) return (lane & 1) * 8 + (lane % 16) / 2;
  return lane % 16;
}

// The value that the lane of the other half has.
__device__ inline uint32_t across(uint32_t x) {
  return __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, true, false);
}
__device__ inline float across(float x) {
  return __builtin_bit_cast(float, across(__builtin_bit_cast(uint32_t, x)));
}

// b of 16 rows, of which a lane has those from 8 * half on.
__device__ inline Operand operand_of(Dwords4 own, bool upper) {
#if defined(__GFX12__)
  static_cast<void>(upper);
  return own;
#else
  Operand b;
  _Pragma("unroll") for (int i = 0; i < 4; ++i) {
    const uint32_t other = across(own[i]);
    b[i] = upper ? other : own[i];
    b[i + 4] = upper ? own[i] : other;
  }
  return b;
#endif
}

// Rounds pairs of floats to T, to nearest; of two equally near ones bf16 takes the larger. `one` is 1 that
// the compiler does not know: v_fma_mix multiplies by it, rounds and packs in two instructions, and a
// conversion would take three.
template <typename T>
__device__ inline uint32_t rounded_pair(float low, float high, float one) {
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_bit_cast(uint32_t, Half2{static_cast<_Float16>(__builtin_fmaf(low, one, -0.0F)),
                                              static_cast<_Float16>(__builtin_fmaf(high, one, -0.0F))});
  } else {
    return rounded_pair<T>(low, high);
  }
}

__device__ inline float unknown_one() {
  float one = 1;
  asm("" : "+s"(one));
  return one;
}

// The same number, of which the compiler does not know that it is: what is computed of it in a loop it would
// compute once, and keep in registers that are needed.
template <typename I>
__device__ inline I remade(I x) {
  asm volatile("" : "+v"(x));
  return x;
}

// The same of a number that all lanes have.
template <typename I>
__device__ inline I remade_scalar(I x) {
  asm volatile("" : "+s"(x));
  return x;
}

// Eight floats to T as round_to does it, to nearest and ties to even, without a branch for NaNs.
template <typename T>
__device__ inline Dwords4 rounded_eight(Float8 x) {
  Dwords4 rounded;
  _Pragma("unroll") for (int i = 0; i < 4; ++i) {
    if constexpr (__is_same(T, Fp16)) {
      rounded[i] = rounded_pair<T>(x[2 * i], x[2 * i + 1]);
    } else {
      uint32_t pair[2];
      _Pragma("unroll") for (int j = 0; j < 2; ++j) {
        const float element = x[2 * i + j];
        const auto bits = __builtin_bit_cast(uint32_t, element);
        const uint32_t number = bits + 0x7fff + (bits >> 16 & 1), nan = bits | 0x400000;
        pair[j] = element != element ? nan : number;
      }
      rounded[i] = high_halves(pair[0], pair[1]);
    }
  }
  return rounded;
}

}  // namespace fmha
