// SPDX-License-Identifier: MIT OR Apache-2.0
// The rows that hip/bwd/bwd_wmma.h walks over, and those that its waves own.
#pragma once

#include <hip/hip_runtime.h>

#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/wmma_tiles.h"

namespace fmha {

// The tiles of kWalk rows to walk over, head by head: one head of keys, or those of a group's queries.
template <int kWalk>
struct WmmaWalk {
  int head, end_head, at;
  RowRange range;

  __device__ bool more() const { return head < end_head && range.begin < range.end; }
  __device__ WmmaWalk next() const {
    const bool same = at + kWalk < range.end;
    return {same ? head : head + 1, end_head, same ? at + kWalk : range.begin, range};
  }
};

// A wave's own rows as operands of one product: 16 of the workgroup's kRows, and if kParts waves share them
// its part of the head dim. All of the workgroup's are in LDS, or a wave's in registers.
template <int kRows, int kHdim, int kParts, bool kInLds, int kThreads>
class WmmaOwn {
  using Tile = WmmaTile<kRows, kHdim>;
  static constexpr int kDims = kHdim / kParts;
  static constexpr int kSteps = kDims / 16;
  static_assert(!kInLds || kParts == 1);

 public:
  __device__ void load(const WmmaRows& rows, int hdim, int first, int lane, LdsByte* lds) {
    lds_ = lds;
    if constexpr (kInLds) {
      RowMover<kRows, kHdim, kThreads> mover;
      mover.begin(rows.row_bytes, hdim);
      mover.load(rows.from(first, kRows));
      mover.store(lds);
    } else {
      load_registers(rows, hdim, first, lane);
    }
  }

  // `begin` is of the lane, as Tile has it.
  __device__ OperandB at(int begin, int step) const {
    if constexpr (kInLds) return Tile::read_b(lds_, begin, 0, step);
    return x_[step];
  }

 private:
  __device__ void load_registers(const WmmaRows& rows, int hdim, int first, int lane) {
    const int wave = static_cast<int>(threadIdx.x) / 32;
    const uint32_t begin = (wave / kParts * 16 + lane % 16) * rows.row_bytes;
    const Resource from = rows.from(first, kRows);
    const auto eight = [&](int dim_of_part) {
      const int dim = wave % kParts * kDims + dim_of_part;
      return __builtin_amdgcn_raw_buffer_load_b128(from, dim < hdim ? begin + dim * 2 : kNowhere, 0, 0);
    };
    _Pragma("unroll") for (int s = 0; s < kSteps; ++s) {
      x_[s] = operand_by<OperandB>([&](int i) { return eight(s * 16 + (kWholeB ? i : lane / 16) * 8); });
    }
  }

  LdsByte* lds_;
  OperandB x_[kInLds ? 1 : kSteps];
};

}  // namespace fmha
