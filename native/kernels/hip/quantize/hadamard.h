// SPDX-License-Identifier: MIT OR Apache-2.0
// The Hadamard transform of a row that lanes share, eight elements each: H_n = [[H, H], [H, -H]] of n / 2.
// Sums and differences of elements whose numbers differ in one bit, bit by bit: three within a lane, the
// others between lanes, which differ in a bit of their number.
#pragma once

#include "common/device.h"
#include "hip/common/fp8.h"

namespace fmha {

template <int kControl>
__device__ inline float moved(float x) {
  const int bits = __builtin_bit_cast(int, x);
  return __builtin_bit_cast(float, __builtin_amdgcn_update_dpp(bits, bits, kControl, 0xf, 0xf, false));
}

// The value of the lane whose number differs by kMask.
template <int kMask>
__device__ inline float of_other(float x) {
  constexpr int kSwap1 = 0xb1, kSwap2 = 0x4e, kSwap3 = 0x1b, kMirror8 = 0x141, kMirror16 = 0x140;
  if constexpr (kMask == 1) return moved<kSwap1>(x);
  if constexpr (kMask == 2) return moved<kSwap2>(x);
  if constexpr (kMask == 4) return moved<kMirror8>(moved<kSwap3>(x));
  if constexpr (kMask == 8) return moved<kMirror16>(moved<kMirror8>(x));
  static_assert(kMask <= 16);
  constexpr int kSwap16 = 16 << 10 | 0x1f;  // bits of ds_swizzle: xor, or, and
  return __builtin_bit_cast(float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, x), kSwap16));
}

template <int kMask>
__device__ inline void hadamard_lanes(EightNumbers& e, int lane) {
  const float sign = (lane & kMask) != 0 ? -1.0F : 1.0F;
  for (float& x : e.x) x = __builtin_fmaf(x, sign, of_other<kMask>(x));
}

// `lane` of the row's lanes, of which there are 1 << lanes_shift, at most 32. Not yet divided by sqrt(n).
__device__ inline void hadamard(EightNumbers& e, int lane, int lanes_shift) {
  for (int bit = 1; bit < kPerThread; bit *= 2) {
    for (int i = 0; i < kPerThread; ++i) {
      if ((i & bit) != 0) continue;
      const float a = e.x[i], b = e.x[i + bit];
      e.x[i] = a + b;
      e.x[i + bit] = a - b;
    }
  }
  if (lanes_shift > 0) hadamard_lanes<1>(e, lane);
  if (lanes_shift > 1) hadamard_lanes<2>(e, lane);
  if (lanes_shift > 2) hadamard_lanes<4>(e, lane);
  if (lanes_shift > 3) hadamard_lanes<8>(e, lane);
  if (lanes_shift > 4) hadamard_lanes<16>(e, lane);
}

}  // namespace fmha
