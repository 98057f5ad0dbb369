// SPDX-License-Identifier: MIT OR Apache-2.0
// The blocks of hip/bwd/bwd_pingpong.h on gfx942: loads write LDS, 4 bytes a lane, and waves turn in LDS what
// is there. A block of 32 rows of both tensors takes a buffer; what is turned of it another one.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// Tiles of 32 rows, as they are. Eight lanes read rows that differ in bits 0, 1 and 3 (place_of_row); bits 2
// and 4 exchange nothing.
template <int kHdim>
struct RowTile {
  static constexpr int kRowBytes = 2 * kHdim, kChunks = kRowBytes / kChunk;

  __device__ static constexpr int exchange(int row) { return (row & 3) | (row & 8) >> 1; }
  __device__ static int place(int row, int chunk) {
    return row * kRowBytes + (chunk ^ exchange(row)) * kChunk;
  }
};

// Tiles turned: a row is a dim, and has 32 of the other rows, in four chunks.
struct TurnedTile {
  static constexpr int kRowBytes = 64;

  // Lanes read dims that differ in bits 0, 1 and 3, and write dims that do in bits 0 to 3.
  __device__ static int place(int dim, int chunk) {
    return dim * kRowBytes + (chunk ^ ((dim >> 1 & 1) | (dim >> 3 & 1) << 1)) * kChunk;
  }
};

// A workgroup's blocks in LDS. kTurned: how many of the two tensors are turned; 1: only the first.
template <int kHdim, int kTurned, int kTurnedBuffers = 2>
class BwdBlocks {
  using Rows = RowTile<kHdim>;
  static constexpr int kRowBytes = Rows::kRowBytes, kTile = 32 * kRowBytes;
  static constexpr int kLanesOfRow = kRowBytes / 4, kRowsOfLoad = 64 / kLanesOfRow;
  static constexpr int kLoadsOfTile = kTile / (8 * 256);
  // LDS has no room for three where both tensors of head dim 128 are turned; of 64 they are no faster.
  static constexpr int kBuffers = kTurned == 2 ? 2 : 3;
  // Eight waves turn, and a lane has kLaneRows rows of two dims.
  static constexpr int kLanes = 512 / kTurned, kPairsOfDims = kHdim / 2;
  static constexpr int kLaneRows = 32 * kPairsOfDims / kLanes;

 public:
  static constexpr int kBytes = kBuffers * 2 * kTile + kTurnedBuffers * kTurned * kTile;
  // Waves of the first group load a block so many blocks before its use.
  static constexpr int kLead = kBuffers - 1;
  // Loads of a wave that may be on their way at the end of a phase.
  static constexpr int kMayMiss = (kLead - 1) * 2 * kLoadsOfTile;
  // Pairs of operands that are read ahead.
  static constexpr int kAhead = 1;

  __device__ void begin(LdsByte* lds, int wave, int lane) {
    lds_ = lds;
    wave_ = wave;
    lane_ = lane;
    read_rows_ = Rows::place(place_of_row(lane % 32), lane / 32);
    read_turned_ = TurnedTile::place(place_of_row(lane % 32), lane / 32);
  }

  // Loads the wave's eighth of block n: four rows of each tensor, of which so many bytes count.
  __device__ void load(int n, Resource a, Resource b, uint32_t a_row, uint32_t b_row, int a_bytes,
                       int b_bytes) const {
    const uint32_t lane = rather_remade(lane_), row = lane / kLanesOfRow % kRowsOfLoad;
    const int column = (lane / 4 % Rows::kChunks ^ Rows::exchange(first_row() + row)) * kChunk + lane % 4 * 4;
    load_tile(buffer(n), a, a_row, row, column < a_bytes ? column : kNowhere);
    load_tile(buffer(n) + kTile, b, b_row, row, column < b_bytes ? column : kNowhere);
    __builtin_amdgcn_sched_barrier(0);
  }

  // Turns the wave's part of block n.
  __device__ void turn(int n) const {
    const Task task(wave_, rather_remade(lane_));
    const LdsByte* tile = buffer(n) + turned_tensor() * kTile + task.from();
    uint32_t x[kLaneRows];
    _Pragma("unroll") for (int i = 0; i < kLaneRows; ++i) {
      x[i] = lds_load<uint32_t>(flipped(tile, Rows::exchange(i) * kChunk) + i * kRowBytes);
    }
    const uint32_t which = task.odd != 0 ? 0x07060302 : 0x05040100;
    LdsByte* to = turned(n, turned_tensor()) + task.to();
    store_turned(to, x, which);
    store_turned(flipped(to, TurnedTile::kRowBytes), x, which ^ 0x02020202);  // the pair's other dim
    __builtin_amdgcn_sched_barrier(0);
  }

  // Chunk 2 * step + lane / 32 of a row of block n, of tensor 0 or 1.
  __device__ Dwords4 rows(int n, int tensor, int step) const {
    return lds_load<Dwords4>(flipped(buffer(n) + read_rows_, step * 2 * kChunk) + tensor * kTile);
  }
  // Rows 16 * step + lane / 32 * 8 on of dims from 32 * t on.
  __device__ Dwords4 dims(int n, int tensor, int step, int t) const {
    return lds_load<Dwords4>(flipped(turned(n, tensor) + read_turned_, step * 2 * kChunk) +
                             t * 32 * TurnedTile::kRowBytes);
  }

 private:
  // Addresses are made anew where registers are needed more.
  __device__ static int rather_remade(int lane) { return kTurned * kHdim > 128 ? remade(lane) : lane; }

  // A lane turns kLaneRows rows of two dims. Half of the lanes store the odd dim first, so that eight lanes
  // store 16 bytes each to different banks.
  struct Task {
    uint32_t first_row, pair, odd;

    __device__ Task(uint32_t wave, uint32_t lane) {
      const uint32_t task = (wave * 64 + lane % 64) % kLanes;
      first_row = task / kPairsOfDims * kLaneRows;
      pair = task % kPairsOfDims;
      odd = pair >> 1 & 1;
    }
    __device__ int from() const { return Rows::place(first_row, pair / 4) + pair % 4 * 4; }
    __device__ int to() const { return TurnedTile::place(pair * 2 + odd, first_row / 8) + first_row % 8 * 2; }
  };

  __device__ LdsByte* buffer(int n) const { return lds_ + static_cast<uint32_t>(n) % kBuffers * 2 * kTile; }
  __device__ LdsByte* turned(int n, int tensor) const {
    return lds_ + (kBuffers * 2 + n % kTurnedBuffers * kTurned + tensor) * kTile;
  }
  // Waves of the second group turn the second tensor, if both are turned.
  __device__ int turned_tensor() const { return kTurned == 2 ? wave_ / 4 : 0; }

  // A wave's loads are of rows that differ in bits 2 and 4.
  __device__ int first_row() const {
    return kRowsOfLoad == 1 ? (wave_ & 3) | (wave_ & 4) << 1
                            : (wave_ & 1) << 1 | (wave_ & 2) << 2 | (wave_ & 4) << 2;
  }

  __device__ void load_tile(LdsByte* tile, Resource from, uint32_t row_bytes, uint32_t row,
                            uint32_t column) const {
    const uint32_t at = (kRowsOfLoad == 1 ? 0 : row * row_bytes) + column;
    _Pragma("unroll") for (int i = 0; i < kLoadsOfTile; ++i) {
      const int first = first_row() + (i & 1) * 4 + (i & 2) * 8;
      load_to_lds_unseen<4>(from, tile + first * kRowBytes, at + first * row_bytes);
    }
  }

  __device__ static void store_turned(LdsByte* to, const uint32_t (&x)[kLaneRows], uint32_t which) {
    using Column = __attribute__((ext_vector_type(kLaneRows / 2))) uint32_t;
    Column column;
    _Pragma("unroll") for (int i = 0; i < kLaneRows / 2; ++i) {
      column[i] = __builtin_amdgcn_perm(x[2 * i + 1], x[2 * i], which);
    }
    lds_store(to, column);
  }

  LdsByte* lds_;
  int wave_, lane_;
  int read_rows_, read_turned_;
};

}  // namespace fmha
