// SPDX-License-Identifier: MIT OR Apache-2.0
// Eight numbers that lie together: rounded, loaded and stored.
#pragma once

#include "common/device.h"
#include "hip/common/memory.h"
#include "hip/common/products.h"

namespace fmha {

using Float8 = __attribute__((ext_vector_type(8))) float;

// Eight floats to T as round_to does it, to nearest and ties to even, without a branch for NaNs.
template <typename T>
__device__ inline Dwords4 rounded_eight(Float8 x) {
  Dwords4 rounded;
  _Pragma("unroll") for (int i = 0; i < 4; ++i) {
    if constexpr (__is_same(T, Fp16)) {
      rounded[i] = rounded_pair<T>(x[2 * i], x[2 * i + 1]);
    } else {
      rounded[i] = high_halves(bits_to_even(x[2 * i]), bits_to_even(x[2 * i + 1]));
    }
  }
  return rounded;
}

// Eight elements of 16 or 32 bits that lie together.
template <typename E>
__device__ inline Eight<E> load_eight(Resource from, uint32_t at) {
  constexpr int kVectors = sizeof(E) / 2;
  struct {
    Dwords4 x[kVectors];
  } loaded;
  _Pragma("unroll") for (int i = 0; i < kVectors; ++i) {
    loaded.x[i] = __builtin_amdgcn_raw_buffer_load_b128(from, at + i * sizeof(Dwords4), 0, 0);
  }
  return __builtin_bit_cast(Eight<E>, loaded);
}

template <typename E>
__device__ inline void store_eight(Float8 x, Resource to, uint32_t at) {
  if constexpr (sizeof(E) == 2) {
    __builtin_amdgcn_raw_buffer_store_b128(rounded_eight<E>(x), to, at, 0, 0);
  } else {
    _Pragma("unroll") for (int i = 0; i < 8; i += 4) {
      const Float4 four = {x[i], x[i + 1], x[i + 2], x[i + 3]};
      __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(Dwords4, four), to, at + i * sizeof(E), 0, 0);
    }
  }
}

}  // namespace fmha
