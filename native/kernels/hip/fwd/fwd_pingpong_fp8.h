// SPDX-License-Identifier: MIT OR Apache-2.0
// P of hip/fwd/fwd_pingpong.h as 8-bit floats.
//
//   budget, head dim 128      gfx942                gfx950
//   registers: O              64                    64
//     Q                       16                    16
//     S, P                    64, 16                64, 16
//     K and V on their way    16                    none
//     operands read ahead     16                    24
//   LDS: K, V                 2 * 16 KB each        2 * 16 KB each, and O
//   a SIMD, of a block's      128 keys of 256 rows, in both
//     matrix cycles           4096                  2048
//     vector cycles           about 3900            2900 or 3900, as exponentials take 8 cycles or 16
//
// So the softmax sets the pace on gfx950, and hardly less so on gfx942.
//
// P of a row's reference is not 1 but a power of two just below the type's largest number, so that fewer
// small P vanish: all exponents are so much higher. The row's sum has the same factor, and O is divided by
// it.
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

// The order of a product's operands. All tiles take a step, one after another; or each takes two, which are
// one product.
template <bool kTwoTogether>
struct OperandOrder {
  static constexpr bool kOneOfTwo = kTwoTogether;
  static constexpr int step(int j, int tiles) { return kOneOfTwo ? j / 2 / tiles * 2 + j % 2 : j / tiles; }
  static constexpr int tile(int j, int tiles) { return (kOneOfTwo ? j / 2 : j) % tiles; }
};

#if defined(FMHA_HAS_FP8)
// Four numbers, to nearest, ties to even. An instruction writes half a register: `old` is what it had before,
// so that no other one clears it.
__device__ inline uint32_t rounded_four(float x0, float x1, float x2, float x3, uint32_t old) {
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(x0, x1, static_cast<int>(old), false);
  return __builtin_amdgcn_cvt_pk_fp8_f32(x2, x3, low, true);
}
#endif

}  // namespace fmha
