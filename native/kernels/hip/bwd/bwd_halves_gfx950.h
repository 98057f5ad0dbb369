// SPDX-License-Identifier: MIT OR Apache-2.0
// The blocks of hip/bwd/bwd_halves.h on gfx950, of 32 rows: loads write LDS, 16 bytes a lane, and reads turn
// what is there.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/bwd/bwd_in_vgprs.h"
#include "hip/bwd/bwd_pingpong_gfx950.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

inline constexpr int kBwdHalvesBlock = 32;

template <int kHdim, bool kKeys>
class BwdHalvesBlocks : BwdRowsInLds<kHdim> {
  using Base = BwdRowsInLds<kHdim>;
  using Base::exchange, Base::rows_of, Base::dims_of, Base::kChunks, Base::kRowBytes, Base::kTile;
  static constexpr int kWaves = 4, kHalf = kRowBytes / 2;
  static constexpr int kShared = kBwdHalvesBlock * 32 * sizeof(float);  // what a wave shares of a product
  static_assert(kChunks == 64, "a load is a row");

 public:
  // Four buffers, which a and b take in turn, give loads a whole block's time. Keys have room for three: two
  // of a, one of b.
  static constexpr bool kDeep = !kKeys, kStaged = false;
  static constexpr int kBuffers = kDeep ? 4 : 3, kBytes = kBuffers * kTile + 2 * kWaves * kShared;
  // Loads of a wave for a tensor of a block.
  static constexpr int kLoads = kBwdHalvesBlock / kWaves;
  // Steps of a phase, products of a step, and steps that are read ahead.
  static constexpr int kScoreSteps = 16, kScoreProducts = 1, kScoreAhead = 3;
  static constexpr int kSumSteps = 16, kSumProducts = 1, kSumAhead = 3;
  // Phases end with so many products behind the next phase's first reads.
  static constexpr int kScoreLate = 4, kSumLate = 4;
  // Parts of a product that a wave stores, and that it receives.
  static constexpr int kStores = 4, kReceives = 4;

  // A wave's part of S or dP.
  struct Partial {
    Float16 x;
  };
  struct Received {
    Float4 x[kReceives];
  };
  using ScoreOperand = Dwords4;
  using SumOperand = Dwords4;

  __device__ void begin(LdsByte* lds, int wave, int lane) {
    Base::begin(lds, lane);
    wave_ = wave;
    lane_ = lane;
    begin_block();
  }

  // Addresses of the second tensor's are made anew for each block: else each would keep a register.
  __device__ void begin_block() { second_ = remade_scalar(2 * kTile); }

  // Loads of a tensor of block n, of whose rows so many bytes count.
  __device__ void begin_loads(int bytes) { bytes_ = bytes; }
  template <int tensor, int i>
  __device__ void load(int n, Resource from, uint32_t row_bytes) const {
    const int row = wave_ * kLoads + i;
    const int column = exchange(row, remade(lane_)) * kChunk;
    load_to_lds_unseen<16>(from, tile<tensor>(n) + row * kRowBytes,
                           column < bytes_ ? row * row_bytes + column : kNowhere);
  }

  // The wave's dims of block n, for step `step` of scores and of sums.
  template <int tensor, int step>
  __device__ ScoreOperand rows(int n) const {
    return rows_of(tile<tensor>(n) + half(), step);
  }
  template <int tensor, int step>
  __device__ SumOperand dims(int n) const {
    return dims_of(tile<tensor>(n) + half(), step / 8, step % 8);
  }

  // A step's q-th product of scores, and of sums.
  template <typename T, int step, int q, typename Own>
  __device__ static void multiply_score(Partial& c, const ScoreOperand& x, const Own& own, bool first) {
    if constexpr (kKeys) {
      c.x = multiply_in_vgprs<T>(x, own.x[step], c.x, first);
    } else {
      c.x = multiply32<T>(x, own.x[step], first ? Float16{} : c.x);
    }
  }
  __device__ static void begin_score(Partial& c, Dwords2 row_parts, int) {
    c.x = multiply_in_vgprs<Bf16>(row_parts, kMinusThree, c.x, true);
  }
  template <typename T, int step, int q, typename Sum>
  __device__ static void multiply_sum(Sum& sum, const SumOperand& x, const Dwords4 (&own)[2]) {
    sum[step % 8] = multiply32<T>(x, own[step / 8], sum[step % 8]);
  }
  // 32 dims of sums.
  template <typename Sum>
  __device__ static Float16 tile_of(const Sum& sum, int t) {
    return sum[t];
  }

  // Stores a part of what the wave has of S (0) or dP (1), for the wave that shares its rows.
  template <int which, int i>
  __device__ void store(const Partial& x) const {
    const Float4 four = {x.x[4 * i], x.x[4 * i + 1], x.x[4 * i + 2], x.x[4 * i + 3]};
    lds_store(partials<which>(wave_) + i * 64 * kChunk, four);
  }
  template <int which, int i>
  __device__ void receive(Received& y) const {
    y.x[i] = lds_load<Float4>(partials<which>(wave_ ^ 1) + i * 64 * kChunk);
  }
  __device__ static float total(const Partial& x, const Received& y, int i) {
    return x.x[i] + y.x[i / 4][i % 4];
  }

 private:
  __device__ int half() const { return wave_ % 2 * kHalf; }
  template <int tensor>
  __device__ LdsByte* tile(int n) const {
    if constexpr (kDeep) return Base::begin_of_lds() + ((n + 2 * tensor) & 3) * kTile;
    return Base::begin_of_lds() + (tensor == 0 ? (n & 1) * kTile : second_);
  }
  template <int which>
  __device__ LdsByte* partials(int wave) const {
    return Base::begin_of_lds() + kBuffers * kTile + (which * kWaves + wave) * kShared +
           remade(lane_) * kChunk;
  }

  int wave_, lane_, bytes_, second_;
};

}  // namespace fmha
