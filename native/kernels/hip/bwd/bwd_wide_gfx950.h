// SPDX-License-Identifier: MIT OR Apache-2.0
// The blocks of hip/bwd/bwd_wide.h on gfx950: loads write LDS, 16 bytes a lane, and reads turn what is there.
// A block of 32 rows of both tensors takes one of four buffers.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/bwd/bwd_pingpong_gfx950.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// A workgroup's blocks in LDS.
template <int kHdim, int kTurned>
class BwdWideBlocks : BwdRowsInLds<kHdim> {
  using Base = BwdRowsInLds<kHdim>;
  using Base::exchange, Base::buffer, Base::kChunks, Base::kRowBytes, Base::kTile;
  static constexpr int kWaves = 4, kRowsOfLoad = 64 / kChunks, kLoadsOfTile = 32 / kRowsOfLoad / kWaves;

 public:
  using Base::rows, Base::dims, Base::kBytes;
  // A block is loaded so many blocks before its use.
  static constexpr int kLead = 2;
  // Loads of a wave for a tensor of a block.
  static constexpr int kLoads = kLoadsOfTile;
  static constexpr int kTurns = 0;
  // Pairs of operands that are read ahead.
  static constexpr int kAhead = 2;
  static constexpr bool kWaitsForTurns = false, kLoadsSecondEarly = false;

  __device__ void begin(LdsByte* lds, int wave, int lane) {
    Base::begin(lds, lane);
    wave_ = wave;
    lane_ = lane;
  }

  // Loads of a tensor of block n, of whose rows so many bytes count.
  __device__ void begin_loads(int bytes) { bytes_ = bytes; }
  template <int tensor, int i>
  __device__ void load(int n, Resource from, uint32_t row_bytes) const {
    const int first = (wave_ * kLoadsOfTile + i) * kRowsOfLoad;
    const int lane = remade(lane_), row = first + lane / kChunks;
    const int column = exchange(row, lane % kChunks) * kChunk;
    load_to_lds_unseen<16>(from, buffer(n) + tensor * kTile + first * kRowBytes,
                           column < bytes_ ? row * row_bytes + column : kNowhere);
  }

 private:
  int wave_, lane_, bytes_;
};

}  // namespace fmha
