// SPDX-License-Identifier: MIT OR Apache-2.0
// The blocks of hip/bwd/bwd_pingpong.h on gfx950: loads write LDS, 16 bytes a lane, and reads turn what is
// there. A block of 32 rows of both tensors takes one of four buffers.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// A workgroup's blocks in LDS, by their rows: one tile of 32 rows for each of the two tensors.
template <int kHdim>
class BwdRowsInLds {
 protected:
  static constexpr int kRowBytes = 2 * kHdim, kChunks = kRowBytes / kChunk, kTile = 32 * kRowBytes;
  static constexpr int kBuffers = 4;

 public:
  static constexpr int kBytes = kBuffers * 2 * kTile;

  // Chunk 2 * step + lane / 32 of a row of block n, of tensor 0 or 1.
  __device__ Dwords4 rows(int n, int tensor, int step) const {
    return rows_of(buffer(n), step, tensor * kTile);
  }
  // Rows 16 * step + lane / 32 * 8 on of dims from 32 * t on.
  __device__ Dwords4 dims(int n, int tensor, int step, int t) const {
    return dims_of(buffer(n), step, t, tensor * kTile);
  }

 protected:
  // The same of a tile that lies so many bytes behind `tile`.
  __device__ Dwords4 rows_of(const LdsByte* tile, int step, int behind = 0) const {
    return lds_load<Dwords4>(flipped(tile + read_rows_, step * 2 * kChunk) + behind);
  }
  __device__ Dwords4 dims_of(const LdsByte* tile, int step, int t, int behind = 0) const {
    using Short4InLds = __attribute__((address_space(3))) Short4;
    const LdsByte* at = tile + read_turned_;
    const auto four = [&](int i) {
      const LdsByte* first = flipped(at, t * 4 * kChunk ^ exchange(4 * i, 0) * kChunk);
      return __builtin_bit_cast(
          Dwords2, __builtin_amdgcn_ds_read_tr16_b64_v4i16(
                       (Short4InLds*)(first + behind + (step * 16 + i * 4) * kRowBytes)));  // NOLINT
    };
    const Dwords2 low = four(0), high = four(1);
    return {low[0], low[1], high[0], high[1]};
  }

  __device__ void begin(LdsByte* lds, int lane) {
    lds_ = lds;
    const int own = place_of_row(lane % 32);
    read_rows_ = own * kRowBytes + exchange(own, lane / 32) * kChunk;
    // ds_read_b64_tr_b16: sixteen lanes read four rows by sixteen dims, a lane four dims of a row, and get
    // four rows of a dim each.
    const int turned = lane / 32 * 8 + lane % 16 / 4, dim = place_of_row((lane & 16) + lane % 4 * 4);
    read_turned_ = turned * kRowBytes + exchange(turned, dim / 8) * kChunk + dim % 8 * 2;
  }

  // The chunk that lies in the place of `chunk`, and the other way round. Sixteen lanes read rows that differ
  // in bits 0 to 3, and 32 lanes 64 bytes of each of four rows that differ in bits 0 and 1.
  __device__ static constexpr int exchange(int row, int chunk) {
    const int low = kChunks >= 16 ? (row & 3) << 2 : (row & 2) << 1;
    return chunk ^ low ^ (row >> 2 & 3);
  }

  __device__ LdsByte* begin_of_lds() const { return lds_; }
  __device__ LdsByte* buffer(int n) const { return lds_ + (n % kBuffers) * 2 * kTile; }

 private:
  LdsByte* lds_;
  int read_rows_, read_turned_;
};

// The blocks of eight waves.
template <int kHdim, int kTurned>
class BwdBlocks : BwdRowsInLds<kHdim> {
  using Base = BwdRowsInLds<kHdim>;
  using Base::exchange, Base::buffer, Base::kChunks, Base::kRowBytes, Base::kTile;
  static constexpr int kRowsOfLoad = 64 / kChunks;
  // A wave loads a part of both tensors, or two parts of the one of its group.
  static constexpr bool kBoth = kHdim == 128;
  static constexpr int kLoads = kBoth ? 2 : 1;
  static_assert(kTile == (kBoth ? 8 : 4) * 64 * kChunk);

 public:
  using Base::rows, Base::dims, Base::kBytes;
  // Waves of the first group load a block so many blocks before its use.
  static constexpr int kLead = 2;
  // Loads of a wave that may be on their way at the end of a phase.
  static constexpr int kMayMiss = kLoads;
  // Pairs of operands that are read ahead: two MFMA take 64 cycles, LDS twice as long. Where both tensors of
  // head dim 128 are turned, there are no registers for the second pair.
  static constexpr int kAhead = kTurned * kHdim > 128 ? 1 : 2;

  __device__ void begin(LdsByte* lds, int wave, int lane) {
    Base::begin(lds, lane);
    wave_ = wave;
    lane_ = lane;
  }

  // Loads the wave's part of block n, of whose rows so many bytes count.
  __device__ void load(int n, Resource a, Resource b, uint32_t a_row, uint32_t b_row, int a_bytes,
                       int b_bytes) const {
    const uint32_t lane = kTurned * kHdim > 128 ? remade(lane_) : lane_;  // registers are needed more
    const int row = first_row() + lane / kChunks % kRowsOfLoad;
    const int column = exchange(row, lane % kChunks) * kChunk;
    const auto tile = [&](int tensor, Resource from, uint32_t row_bytes, int bytes) {
      load_to_lds_unseen<16>(from, buffer(n) + tensor * kTile + first_row() * kRowBytes,
                             column < bytes ? row * row_bytes + column : kNowhere);
    };
    if (kBoth || wave_ < 4) tile(0, a, a_row, a_bytes);
    if (kBoth || wave_ >= 4) tile(1, b, b_row, b_bytes);
    __builtin_amdgcn_sched_barrier(0);
  }

  __device__ static void turn(int) {}

 private:
  __device__ int first_row() const { return (kBoth ? wave_ : wave_ % 4) * kRowsOfLoad; }

  int wave_, lane_;
};

}  // namespace fmha
