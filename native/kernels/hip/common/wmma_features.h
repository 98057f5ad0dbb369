// SPDX-License-Identifier: MIT OR Apache-2.0
// The features of kernels by WMMA beyond a plain problem, forward and backward: masks, softcap, a bias,
// ALiBi, dropout.
#pragma once

#include "common/device.h"
#include "hip/common/memory.h"
#include "hip/common/numbers.h"

namespace fmha {

enum class WmmaBias { kNone, kElementwise, kAlibi };

struct WmmaFeatures {
  bool mask = false;
  WmmaBias bias = WmmaBias::kNone;
  bool softcap = false;
  bool dropout = false;
  bool dbias = false;  // backward: the gradient of the bias

  // True if scores are turned into exponents one by one; else the exponentials' own product does it.
  constexpr bool shapes() const { return bias != WmmaBias::kNone || softcap; }
};

inline constexpr float kLog2eOfScores = 1.4426950408889634F;

// softcap * tanh(scale * dot / softcap), in units of log2.
struct Softcap {
  float inner, outer;

  __device__ void begin(float scale, float softcap) {
    inner = 2 * kLog2eOfScores * scale / softcap;
    outer = softcap * kLog2eOfScores;
  }
  __device__ float tanh(float dot) const {
    const float e = __builtin_amdgcn_exp2f(dot * inner);
    return __builtin_fmaf(__builtin_amdgcn_rcpf(e + 1), -2.0F, 1.0F);
  }
};

// Elements of a bias, whose rows have any stride, so that they come one by one. A column that is not there
// has 0.
template <typename T>
struct BiasRows {
  Resource from;
  uint32_t row_bytes;
  int columns;

  // Takes `rows` rows that begin at `base`.
  __device__ void set(const T* base, int64_t row_elements, int rows, int columns_there) {
    columns = columns_there;
    row_bytes = static_cast<uint32_t>(row_elements * sizeof(T));
    from = resource(base, rows > 0 ? (rows - 1) * row_bytes + columns * sizeof(T) : 0);
  }
  __device__ float at(int row, int column) const {
    const uint32_t place = row * row_bytes + column * sizeof(T), offset = column < columns ? place : kNowhere;
    return to_float(__builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b16(from, offset, 0, 0)));
  }
};

}  // namespace fmha
