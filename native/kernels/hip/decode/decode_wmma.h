// SPDX-License-Identifier: MIT OR Apache-2.0
// The matrix unit of hip/decode/decode.h, by WMMA and waves of 32 lanes: a lane has eight keys, or
// dims, of row lane % 16 (hip/common/wmma.h).
#pragma once

#include "hip/common/wmma_tiles.h"
#include "hip/decode/decode_work.h"

namespace fmha {

using DecodeOperand = OperandB;  // of 16 keys by 16 rows, or dims

template <typename T>
__device__ inline Float8 multiply(OperandA a, OperandB b, Float8 c) {
  return multiply16<T>(a, b, c);
}

__device__ inline float max_of_row(float x) { return __builtin_fmaxf(x, across(x)); }
__device__ inline float sum_of_row(float x) { return x + across(x); }

template <typename T>
__device__ inline DecodeOperand rounded_run(DecodeRun p) {
  Dwords4 own;
  _Pragma("unroll") for (int i = 0; i < 4; ++i) own[i] = rounded_pair<T>(p[2 * i], p[2 * i + 1]);
  return operand_of(own, decode_part() != 0);
}

// A loop computes anew each time whatever it makes of the result, to save registers.
__device__ inline int recomputed(int x) { return remade(x); }

// Computed by now, and not later, when the registers of its operands have others.
__device__ inline void settle(DecodeRun& x) {
  asm volatile("" : "+v"(x));
  __builtin_amdgcn_sched_barrier(0);
}

// Q of a tile of rows: in LDS, since registers are few. All waves have the same, and write a part of it each.
template <typename T, typename Reader, int kQ>
class DecodeQ {
  using Tile = WmmaTile<kDecodeTileRows, kQ>;

 public:
  struct alignas(128) Shared {
    uint8_t bytes[Tile::kBytes];
  };

  // A lane's row begins at `row`.
  __device__ void begin(Shared& shared, const T* row, int hdim) {
    tile_ = (LdsByte*)(shared.bytes);  // NOLINT: the only cast that changes address spaces
    begin_ = Tile::begin_b(0, decode_lane());
    const int parts = static_cast<int>(blockDim.x) / 16;
    for (int i = static_cast<int>(threadIdx.x) / 16; i < Tile::kChunks; i += parts) {
      const auto x = i * 8 < hdim ? *reinterpret_cast<const Dwords4*>(row + i * 8) : Dwords4{};
      lds_store(tile_ + Tile::place(decode_lane() % 16, Reader::q_place(i)), x);
    }
  }

  // Between the beginning of all tiles and the first of `operand`.
  __device__ static void wait() { lds_barrier(); }

  // Read each time, and a few at once: the compiler would keep all of it in registers.
  __device__ DecodeOperand operand(int step) const {
    if (step % kAtOnce == 0) __builtin_amdgcn_sched_barrier(0);
    return Tile::read_b(tile_, remade(begin_), 0, step);
  }

 private:
  static constexpr int kAtOnce = kQ > 128 ? 2 : 4;

  LdsByte* tile_;
  int begin_;
};

}  // namespace fmha
