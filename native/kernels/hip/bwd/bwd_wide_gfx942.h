// SPDX-License-Identifier: MIT OR Apache-2.0
// The blocks of hip/bwd/bwd_wide.h on gfx942: loads write LDS, 4 bytes a lane, and waves turn in LDS what is
// there. One block fills it: the next one's rows are loaded once they have been turned. Where only the first
// tensor is turned, there is room for two blocks of the second.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/bwd/bwd_pingpong_gfx942.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// A workgroup's block in LDS. kTurned: how many of the two tensors are turned; 1: only the first.
template <int kHdim, int kTurned>
class BwdWideBlocks {
  using Rows = RowTile<kHdim>;
  static constexpr int kWaves = 4, kRowBytes = Rows::kRowBytes, kTile = 32 * kRowBytes;
  static constexpr int kLoadsOfRow = kRowBytes / 256, kLoadsOfTile = kTile / 256 / kWaves;
  static_assert(kHdim == 256, "a load is half a row, and four waves turn sixteen rows of a tensor at a time");

 public:
  static constexpr int kBytes = 4 * kTile;
  // The second tensor's rows lie where the next block's do not.
  static constexpr bool kLoadsSecondEarly = kTurned == 1;
  // A block is loaded so many blocks before its use.
  static constexpr int kLead = 1;
  // Loads of a wave for a tensor of a block.
  static constexpr int kLoads = kLoadsOfTile;
  // Parts of turning a block.
  static constexpr int kTurns = 2 * kTurned;
  // Pairs of operands that are read ahead.
  static constexpr int kAhead = 1;
  // The rows that are loaded lie where the block's rows are.
  static constexpr bool kWaitsForTurns = true;

  __device__ void begin(LdsByte* lds, int wave, int lane) {
    lds_ = lds;
    wave_ = wave;
    lane_ = lane;
    read_rows_ = Rows::place(place_of_row(lane % 32), lane / 32);
    read_turned_ = TurnedTile::place(place_of_row(lane % 32), lane / 32);
    column_ = (lane / 4 ^ Rows::exchange(wave)) * kChunk + lane % 4 * 4;
    // The wave turns rows from 8 * (wave / 2) on, and those 16 behind, of the lane's two dims. Half of the
    // lanes store the odd dim first, so that eight lanes store 16 bytes each to different banks.
    const int pair = (wave & 1) * 64 + lane, odd = pair >> 1 & 1, first = wave / 2 * 8;
    turn_from_ = Rows::place(first, pair / 4) + pair % 4 * 4;
    turn_to_ = TurnedTile::place(pair * 2 + odd, wave / 2);
  }

  // Loads of a tensor of block n, of whose rows so many bytes count: the i-th of a wave's is half a row.
  __device__ void begin_loads(int bytes) {
    const int column = rather_remade(column_);
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      const int at = (column ^ i / 2 * Rows::exchange(8) * kChunk) + i % 2 * 256;
      columns_[i] = at < bytes ? at : kNowhere;
    }
  }
  template <int tensor, int i>
  __device__ void load(int n, Resource from, uint32_t row_bytes) const {
    constexpr int half = i % kLoadsOfRow, row_of_wave = i / kLoadsOfRow * kWaves;
    const int row = wave_ + row_of_wave;
    load_to_lds_unseen<4>(from, tile(n, tensor) + row * kRowBytes + half * 256,
                          columns_[(row_of_wave & 8) / 4 + half] + row * row_bytes);
  }

  // Part i of turning the block: eight rows of two dims, read and then stored.
  template <int i>
  __device__ void read_turn(int from, int count) {
    const LdsByte* rows = tile(0, tensor_of<i>) + turn_from_ + i % 2 * 16 * kRowBytes;
    _Pragma("unroll") for (int j = from; j < from + count; ++j) {
      column_of_rows_[j] = lds_load<uint32_t>(flipped(rows, Rows::exchange(j) * kChunk) + j * kRowBytes);
    }
  }
  template <int i>
  __device__ void store_turn(bool other_dim) const {
    LdsByte* to = flipped(turned(tensor_of<i>) + turn_to_, i % 2 * 2 * kChunk);
    Dwords4 column;
    const bool odd = (remade(lane_) & 2) != 0;  // as in begin
    const uint32_t which = odd != other_dim ? 0x07060302 : 0x05040100;
    _Pragma("unroll") for (int j = 0; j < 4; ++j) {
      column[j] = __builtin_amdgcn_perm(column_of_rows_[2 * j + 1], column_of_rows_[2 * j], which);
    }
    lds_store(other_dim ? flipped(to, TurnedTile::kRowBytes) : to, column);
  }

  // Chunk 2 * step + lane / 32 of a row of block n, of tensor 0 or 1.
  __device__ Dwords4 rows(int n, int tensor, int step) const {
    return lds_load<Dwords4>(flipped(lds_ + rather_remade(read_rows_), step * 2 * kChunk) +
                             (tile(n, tensor) - lds_));
  }
  // Rows 16 * step + lane / 32 * 8 on of dims from 32 * t on.
  __device__ Dwords4 dims(int, int tensor, int step, int t) const {
    return lds_load<Dwords4>(flipped(turned(tensor) + read_turned_, step * 2 * kChunk) +
                             t * 32 * TurnedTile::kRowBytes);
  }

 private:
  // Addresses are made anew where registers are needed more.
  __device__ static int rather_remade(int x) { return kTurned == 2 ? remade(x) : x; }

  __device__ LdsByte* tile(int n, int tensor) const {
    return lds_ + (tensor == 0 ? 0 : kLoadsSecondEarly ? 1 + (n & 1) : 1) * kTile;
  }
  __device__ LdsByte* turned(int tensor) const { return lds_ + (tensor == 0 ? 3 : 2) * kTile; }

  template <int i>
  static constexpr int tensor_of = i / 2;

  LdsByte* lds_;
  int wave_, lane_;
  int read_rows_, read_turned_, turn_from_, turn_to_;
  int column_;
  uint32_t columns_[4];  // of loads: of either half of a row, and of rows that differ in bit 3
  uint32_t column_of_rows_[8];
};

}  // namespace fmha
