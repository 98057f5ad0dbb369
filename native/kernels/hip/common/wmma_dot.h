// SPDX-License-Identifier: MIT OR Apache-2.0
// A WMMA's product on gfx10.3, which has no matrix unit: 64 dot products of fp16, or 128
// multiply-adds of bf16.
//
// Element i of a lane's c is row 8 * half + i of a by the lane's column of b. That row of a lies in lane i
// (columns 0 to 7) and lane i + 8 (8 to 15) of the lane's own 16, from where DPP's row_share hands it to all
// of them: no instruction moves a, and no lane has an element of it twice.
//
// fp16: v_dot2c_f32_f16, c += a0 * b0 + a1 * b1. The products are exact; float32 rounds c at least once for
// two of them, and how often the manual leaves open. Subnormal numbers count.
// bf16: v_fmac_f32, c += a * b, rounded each time. A bf16 is the upper half of a float32, so that operands
// are exact, and what is subnormal is 0, as in all of float32 here.
//
// Eight instructions of one block have eight sums, so that none waits for the one before. The compiler makes
// no DPP of an instruction that adds to its own result (GCNDPPCombine): hence the assembly.
#pragma once

#include "common/device.h"
#include "hip/common/products.h"

namespace fmha {

// clang-format off
#define FMHA_DOT_ROW(op, i, lane) op " %" #i ", %8, %9 row_share:" #lane " row_mask:0xf bank_mask:0xf\n"
#define FMHA_DOT_ROWS(op, l0, l1, l2, l3, l4, l5, l6, l7)                                                \
  asm(FMHA_DOT_ROW(op, 0, l0) FMHA_DOT_ROW(op, 1, l1) FMHA_DOT_ROW(op, 2, l2) FMHA_DOT_ROW(op, 3, l3)    \
      FMHA_DOT_ROW(op, 4, l4) FMHA_DOT_ROW(op, 5, l5) FMHA_DOT_ROW(op, 6, l6) FMHA_DOT_ROW(op, 7, l7)    \
      : "+&v"(c[0]), "+&v"(c[1]), "+&v"(c[2]), "+&v"(c[3]), "+&v"(c[4]), "+&v"(c[5]), "+&v"(c[6]),       \
        "+&v"(c[7])                                                                                      \
      : "v"(a), "v"(b))
#define FMHA_DOT_EIGHTS(op)                                     \
  if constexpr (kUpper) {                                       \
    FMHA_DOT_ROWS(op, 8, 9, 10, 11, 12, 13, 14, 15);            \
  } else                                                        \
    FMHA_DOT_ROWS(op, 0, 1, 2, 3, 4, 5, 6, 7)
// clang-format on

// c[i] += the pair of a in lane i, or i + 8 (kUpper), by the lane's own of b.
template <bool kUpper>
__device__ inline void dot_pairs(float (&c)[8], uint32_t a, uint32_t b) {
  FMHA_DOT_EIGHTS("v_dot2c_f32_f16_dpp");
}

template <bool kUpper>
__device__ inline void multiply_add(float (&c)[8], float a, float b) {
  FMHA_DOT_EIGHTS("v_fmac_f32_dpp");
}

#undef FMHA_DOT_EIGHTS
#undef FMHA_DOT_ROWS
#undef FMHA_DOT_ROW

// Two bf16 as they are.
__device__ inline float low_bf16(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
__device__ inline float high_bf16(uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000); }

// Columns 2 * j and 2 * j + 1 of a, or 8 further on.
template <typename T, bool kUpper>
__device__ inline void dot_columns(float (&c)[8], uint32_t a, uint32_t b) {
  if constexpr (__is_same(T, Fp16)) {
    dot_pairs<kUpper>(c, a, b);
  } else {
    asm volatile("" : "+v"(b));  // else b's floats, which a loop uses again and again, would all be kept
    multiply_add<kUpper>(c, low_bf16(a), low_bf16(b));
    multiply_add<kUpper>(c, high_bf16(a), high_bf16(b));
  }
}

template <typename T, typename A, typename B, typename C>
__device__ inline C dot16(A a, B b, C c) {
  float sums[8];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) sums[i] = c[i];
  _Pragma("unroll") for (int j = 0; j < 4; ++j) {
    dot_columns<T, false>(sums, a[j], b[j]);
    dot_columns<T, true>(sums, a[j], b[j + 4]);
  }
  _Pragma("unroll") for (int i = 0; i < 8; ++i) c[i] = sums[i];
  return c;
}

}  // namespace fmha
