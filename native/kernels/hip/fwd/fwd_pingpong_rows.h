// SPDX-License-Identifier: MIT OR Apache-2.0
// A wave's 32 rows of Q and O, of hip/fwd/fwd_pingpong.h, from and to memory by way of LDS: in memory a load
// has whole rows, and a lane of the products has chunks of one row. L1 takes a cycle or two for each line, so
// that a load of 16 bytes of each of 32 rows takes it four times as long.
#pragma once

#include "common/device.h"
#include "hip/common/memory.h"
#include "hip/common/pingpong_parts.h"
#include "hip/fwd/fwd_pingpong_tiles.h"

namespace fmha {

// Until all waves are here, and what they stored is in LDS.
__device__ inline void meet() {
  wait_for_lds();
  pingpong_barrier();
}

// O times `factor`, as bf16, to nearest and ties to even. A NaN takes three instructions more, which only a
// wave that has one spends.
template <int kTilesO>
__device__ inline void round_in_place(Float16 (&o)[kTilesO], float factor, Dwords4 (&chunks)[2 * kTilesO]) {
  bool has_nan = false;
  _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) {
    _Pragma("unroll") for (int i = 0; i < 16; ++i) o[t][i] *= factor;
    _Pragma("unroll") for (int i = 0; i < 16; i += 2) {
      has_nan |= __builtin_isunordered(o[t][i], o[t][i + 1]);
    }
  }
  const auto round_all = [&](auto bits_of) {
    _Pragma("unroll") for (int i = 0; i < 8 * kTilesO; ++i) {
      const float low = o[i / 8][i % 8 * 2], high = o[i / 8][i % 8 * 2 + 1];
      chunks[i / 4][i % 4] = high_halves(bits_of(low), bits_of(high));
    }
  };
  if (__builtin_amdgcn_ballot_w64(has_nan) == 0) {
    round_all([](float x) { return bits_to_even<false>(x); });
  } else {
    round_all([](float x) { return bits_to_even<true>(x); });
  }
}

// kShares: waves of the same rows, of which each loads a part.
template <int kHdim, int kShares>
class RowsByLds {
  using Shape = KeysInLds<kHdim, 32>;
  static constexpr int kPieces = Shape::kChunks / 2, kLoads = kPieces / kShares;

 public:
  using Chunks = Dwords4[kHdim / 16];
  static constexpr int kBytes = Shape::kBytes;

  // `place` is that of the rows in LDS, `wave` the one of those that have different rows.
  __device__ RowsByLds(int wave_, int lane_, LdsByte* place, int share = 0)
      : area(place), first_row(wave_ * 32), lane(lane_), first(share * kLoads) {}

  __device__ void begin_load(Resource from, uint32_t row_bytes, int hdim, Chunks& x) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      x[i] = buffer_load<Dwords4>(from, in_memory(first + i, row_bytes, hdim));
    }
  }
  // Chunk 2 * i + lane / 32 of row lane % 32, each.
  __device__ void end_load(Chunks& x) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) lds_store(in_lds(first + i), x[i]);
    if constexpr (kShares > 1) meet();
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) x[i] = lds_load<Dwords4>(of_lane(i));
  }

  // Stores rows of which x has chunk 2 * i + lane / 32 of row lane % 32.
  __device__ void store(Resource to, uint32_t row_bytes, int hdim, const Chunks& x) const {
    static_assert(kShares == 1);
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) lds_store(of_lane(i), x[i]);
    _Pragma("unroll") for (int i = 0; i < kPieces; ++i) {
      __builtin_amdgcn_raw_buffer_store_b128(lds_load<Dwords4>(in_lds(i)), to, in_memory(i, row_bytes, hdim),
                                             0, 0);
    }
  }

 private:
  // Piece i, 64 chunks that lie together in LDS: the lane's one.
  __device__ LdsByte* in_lds(int i) const { return area + (i * 64 + lane) * kChunk; }
  __device__ uint32_t in_memory(int i, uint32_t row_bytes, int hdim) const {
    // Both go bit by bit, and those of i are others than those of the lane.
    const uint32_t own = lane / Shape::kChunks, of_piece = i * 64 / Shape::kChunks;
    const int chunk = Shape::exchange(own, lane % Shape::kChunks) ^ Shape::exchange(of_piece, 0);
    const uint32_t row = (first_row + place_of_row(own)) * row_bytes;
    return chunk * 8 < hdim ? row + chunk * kChunk + place_of_row(of_piece) * row_bytes : kNowhere;
  }
  // A row's place is place_of_row of it, and the other way round.
  __device__ LdsByte* of_lane(int i) const {
    return chunk_behind<Shape::kChunks>(area + Shape::place(place_of_row(lane % 32), lane / 32), 2 * i);
  }

  LdsByte* area;
  int first_row;
  uint32_t lane, first;
};

}  // namespace fmha
