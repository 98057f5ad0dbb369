// SPDX-License-Identifier: MIT OR Apache-2.0
// Products of 16 bits by waves of 32 lanes: a (16 x 16) times b (16 x 16), added to c of float32. By WMMA of
// gfx11 and gfx12; by dot products on gfx10.3, which has no matrix unit (hip/common/wmma_dot.h). Lane l has,
// with half = l / 16:
//
//              gfx11                            gfx12                           gfx10.3
//   a          row l % 16, all 16 columns:      row l % 16, columns             row 8 * half + l % 8, columns
//              both halves have the same        8 * half + 0 to 7               8 * (l / 8 % 2) + 0 to 7
//   b          the same of b's columns          the same of b's columns         as gfx11
//              and rows                         and rows
//   c          column l % 16, in element i      column l % 16, in element i     as gfx12
//              row 2 * i + half                 row 8 * half + i
//
// No product shows which eight of k a half has on gfx12, since a and b have the same: here 8 * half on, by
// AMD's matrix instruction calculator 0 to 3 and 8 to 11, or 4 to 7 and 12 to 15.
//
// Callers see one layout of c, gfx12's. On gfx11 the rows of a are exchanged (row_of_lane): then element i of
// c is in row 8 * half + i too. So a lane has of a product eight rows that lie together, which the next
// product takes as columns of b: of its own eight on gfx12, and with the other half's on gfx11 and gfx10.3
// (operand_of).
#pragma once

#include "common/device.h"
#include "hip/common/eights.h"
#include "hip/common/products.h"
#if defined(__GFX10__)
#include "hip/common/wmma_dot.h"
#endif

namespace fmha {

using Dwords8 = __attribute__((ext_vector_type(8))) uint32_t;

// True if a lane has all 16 columns of a, and all 16 rows of b.
#if defined(__GFX12__)
inline constexpr bool kWholeA = false, kWholeB = false;
using OperandA = Dwords4;
using OperandB = Dwords4;
#elif defined(__GFX11__)
inline constexpr bool kWholeA = true, kWholeB = true;
using OperandA = Dwords8;
using OperandB = Dwords8;
#else
inline constexpr bool kWholeA = false, kWholeB = true;
using OperandA = Dwords4;
using OperandB = Dwords8;
#endif

// An operand of `eight(0)` and `eight(1)`, eight elements each; of the first one, if a lane has no more.
template <typename Operand, typename Eight>
__device__ inline Operand operand_by(Eight eight) {
  if constexpr (sizeof(Operand) == sizeof(Dwords4)) {
    return eight(0);
  } else {
    const Dwords4 low = eight(0), high = eight(1);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
  }
}

template <typename T>
__device__ inline Float8 multiply16(OperandA a, OperandB b, Float8 c) {
#if defined(__GFX10__)
  return dot16<T>(a, b, c);
#else
  using Halves = __attribute__((ext_vector_type(sizeof(OperandA) / 2))) _Float16;
  using Shorts = __attribute__((ext_vector_type(sizeof(OperandA) / 2))) short;
  if constexpr (__is_same(T, Fp16)) {
    const auto x = __builtin_bit_cast(Halves, a), y = __builtin_bit_cast(Halves, b);
#if defined(__GFX12__)
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, c);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, c);
#endif
  } else {
    const auto x = __builtin_bit_cast(Shorts, a), y = __builtin_bit_cast(Shorts, b);
#if defined(__GFX12__)
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, c);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, c);
#endif
  }
#endif
}

// The row of a that lane l brings, and the eight of its columns if not all.
__device__ inline int row_of_lane(int lane) {
#if defined(__GFX10__)
  return lane / 16 * 8 + lane % 8;
#else
  if constexpr (kWholeA) return (lane & 1) * 8 + (lane % 16) / 2;
  return lane % 16;
#endif
}
__device__ inline int chunk_of_lane(int lane) {
#if defined(__GFX10__)
  return lane / 8 % 2;
#else
  return lane / 16;
#endif
}

// The value that the lane of the other half has.
__device__ inline uint32_t across(uint32_t x) {
  return __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, true, false);
}
__device__ inline float across(float x) {
  return __builtin_bit_cast(float, across(__builtin_bit_cast(uint32_t, x)));
}

// b of 16 rows, of which a lane has those from 8 * half on.
__device__ inline OperandB operand_of(Dwords4 own, bool upper) {
#if defined(__GFX12__)
  static_cast<void>(upper);
  return own;
#else
  OperandB b;
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

}  // namespace fmha
