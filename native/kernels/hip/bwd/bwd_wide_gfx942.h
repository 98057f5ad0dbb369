// SPDX-License-Identifier: MIT OR Apache-2.0
// The blocks of hip/bwd/bwd_wide.h on gfx942: loads write LDS, 4 bytes a lane, and waves turn in LDS what is
// there. One block fills it: the next one's rows are loaded once they have been turned.
#pragma once

#include <hip/hip_runtime.h>

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
  static constexpr int kBytes = (2 + kTurned) * kTile;
  // A block is loaded so many blocks before its use.
  static constexpr int kLead = 1;
  // Loads of a wave for one block: of both tensors.
  static constexpr int kLoads = 2 * kLoadsOfTile;
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

  // The i-th of a wave's loads of the block, of whose rows so many bytes count: half a row of a tensor.
  template <int i>
  __device__ void load(int, Resource from, uint32_t row_bytes, int bytes) const {
    constexpr int tensor = i / kLoadsOfTile, half = i % kLoadsOfRow;
    constexpr int row_of_wave = i % kLoadsOfTile / kLoadsOfRow * kWaves;
    const int row = wave_ + row_of_wave;
    const uint32_t column = (remade(column_) ^ Rows::exchange(row_of_wave) * kChunk) + half * 256;
    load_to_lds_unseen<4>(from, lds_ + tensor * kTile + row * kRowBytes + half * 256,
                          static_cast<int>(column) < bytes ? row * row_bytes + column : kNowhere);
  }

  // Part i of turning the block: eight rows of two dims, read and then stored.
  template <int i>
  __device__ void read_turn(int from, int count) {
    const LdsByte* rows = lds_ + turn_from_ + tensor_of<i> * kTile + i % 2 * 16 * kRowBytes;
    _Pragma("unroll") for (int j = from; j < from + count; ++j) {
      column_of_rows_[j] = lds_load<uint32_t>(flipped(rows, Rows::exchange(j) * kChunk) + j * kRowBytes);
    }
  }
  template <int i>
  __device__ void store_turn(bool other_dim) const {
    LdsByte* to = flipped(lds_ + (2 + tensor_of<i>)*kTile + turn_to_, i % 2 * 2 * kChunk);
    Dwords4 column;
    const bool odd = (remade(lane_) & 2) != 0;  // as in begin
    const uint32_t which = odd != other_dim ? 0x07060302 : 0x05040100;
    _Pragma("unroll") for (int j = 0; j < 4; ++j) {
      column[j] = __builtin_amdgcn_perm(column_of_rows_[2 * j + 1], column_of_rows_[2 * j], which);
    }
    lds_store(other_dim ? flipped(to, TurnedTile::kRowBytes) : to, column);
  }

  // Chunk 2 * step + lane / 32 of a row of the block, of tensor 0 or 1.
  __device__ Dwords4 rows(int, int tensor, int step) const {
    return lds_load<Dwords4>(flipped(lds_ + read_rows_, step * 2 * kChunk) + tensor * kTile);
  }
  // Rows 16 * step + lane / 32 * 8 on of dims from 32 * t on.
  __device__ Dwords4 dims(int, int tensor, int step, int t) const {
    return lds_load<Dwords4>(flipped(lds_ + 2 * kTile + read_turned_, step * 2 * kChunk) + tensor * kTile +
                             t * 32 * TurnedTile::kRowBytes);
  }

 private:
  template <int i>
  static constexpr int tensor_of = i / 2;

  LdsByte* lds_;
  int wave_, lane_;
  int read_rows_, read_turned_, turn_from_, turn_to_;
  int column_;
  uint32_t column_of_rows_[8];
};

}  // namespace fmha
