// SPDX-License-Identifier: MIT OR Apache-2.0
// The matrix unit of hip/decode/decode.h, by MFMA and waves of 64 lanes: a lane has four keys, or
// dims, of row lane % 16.
#pragma once

#include "hip/common/products.h"
#include "hip/decode/decode_work.h"

namespace fmha {

using DecodeOperand = Dwords2;  // of 16 keys by 16 rows, or dims

__device__ inline float max_of_row(float x) {
  x = __builtin_fmaxf(x, __shfl_xor(x, 16));
  return __builtin_fmaxf(x, __shfl_xor(x, 32));
}
__device__ inline float sum_of_row(float x) {
  x += __shfl_xor(x, 16);
  return x + __shfl_xor(x, 32);
}

template <typename T>
__device__ inline DecodeOperand rounded_run(DecodeRun p) {
  return {rounded_pair<T>(p[0], p[1]), rounded_pair<T>(p[2], p[3])};
}

// Registers are enough for what a loop computes once, or later.
__device__ inline int recomputed(int x) { return x; }
__device__ inline void settle(DecodeRun& /*x*/) {}

// Q of a tile of rows: in registers, as the reader of keys has their dims.
template <typename T, typename Reader, int kQ>
class DecodeQ {
 public:
  struct Shared {};

  // A lane's row begins at `row`.
  __device__ void begin(Shared& /*shared*/, const T* row, int hdim) {
    constexpr int kOfChunk = Reader::kDims / 8;
    _Pragma("unroll") for (int i = 0; i < kQ / 32; ++i) {
      const int dim = Reader::key_dim(i / kOfChunk) + i % kOfChunk * 8;
      q_[i] = dim < hdim ? *reinterpret_cast<const Dwords4*>(row + dim) : Dwords4{};
    }
  }

  // Between the beginning of all tiles and the first of `operand`.
  __device__ static void wait() {}

  __device__ DecodeOperand operand(int step) const {
    return step % 2 == 0 ? q_[step / 2].xy : q_[step / 2].zw;
  }

 private:
  Dwords4 q_[kQ / 32];
};

}  // namespace fmha
