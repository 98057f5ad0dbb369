// SPDX-License-Identifier: MIT OR Apache-2.0
// The blocks of hip/bwd/bwd_halves.h on gfx942, of 16 rows. Loads of keys write LDS, 4 bytes a lane; those
// of queries wait in registers, 16 bytes a lane. Waves read rows, or two dims of a row a lane, which they
// turn in registers: LDS has no room for what is turned.
//
// Scores are products of 16x16x16: what a wave has of them, 16 rows by 32 of its own, comes back from LDS as
// the sums by 32x32x8 take it.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/bwd/bwd_in_vgprs.h"
#include "hip/bwd/bwd_pingpong_gfx942.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

inline constexpr int kBwdHalvesBlock = 16;

template <int kHdim, bool kKeys>
class BwdHalvesBlocks {
  using Rows = RowTile<kHdim>;
  static constexpr int kWaves = 4, kRowBytes = Rows::kRowBytes, kTile = kBwdHalvesBlock * kRowBytes;
  static constexpr int kQuarters = kRowBytes / 256, kHalf = kRowBytes / 2;
  static constexpr int kShared = kBwdHalvesBlock * 32 * sizeof(float);  // what a wave shares of a product
  static_assert(kHdim == 512, "a load is a quarter of a row");

 public:
  static constexpr int kBytes = 3 * kTile + 2 * kWaves * kShared;
  // LDS has no room for loads that take long. Queries have registers for them, which are stored a block
  // later.
  static constexpr bool kDeep = false, kStaged = !kKeys;
  // Loads of a wave for a tensor of a block.
  static constexpr int kLoads = kTile / (kStaged ? 1024 : 256) / kWaves;
  // Steps of a phase, products of a step, and steps that are read ahead.
  static constexpr int kScoreSteps = 8, kScoreProducts = 4, kScoreAhead = 2;
  static constexpr int kSumSteps = 4, kSumProducts = 4, kSumAhead = 1;
  // Phases end with so many products behind the next phase's first reads.
  static constexpr int kScoreLate = 8, kSumLate = 4;
  // Parts of a product that a wave stores, and that it receives.
  static constexpr int kStores = 2, kReceives = 4;

  // A wave's part of S or dP: rows by its first and its other sixteen.
  struct Partial {
    Float4 x[2];
  };
  struct Received {
    Float4 x[kReceives];
  };
  using ScoreOperand = Dwords4;
  // Four rows of two dims, and of the two that lie 128 dims behind.
  struct SumOperand {
    uint32_t x[2][4];
  };

  __device__ void begin(LdsByte* lds, int wave, int lane) {
    lds_ = lds;
    wave_ = wave;
    lane_ = lane;
    const int half = wave % 2 * kHalf;
    read_rows_ = Rows::place(place_of_row(lane % 16), lane / 16) + half;
    read_dims_ = Rows::place(lane / 32 * 8, lane % 32 / 4) + lane % 4 * 4 + half;
    const int row = lane % 16, four = (lane / 32 & 1) | (lane / 16 & 1) << 1;
    store_ = shared(row, four) + wave * kShared;
    receive_ = shared(lane % 32, lane / 32 * 2);
  }

  __device__ static void begin_block() {}

  // Loads of a tensor of block n, of whose rows so many bytes count.
  __device__ void begin_loads(int bytes) {
    if constexpr (kStaged) {
      const int at = remade(lane_) * kChunk;
      columns_[0] = at < bytes ? at : kNowhere;
      return;
    }
    const int lane = remade(lane_);
    const int column = (lane / 4 ^ Rows::exchange(wave_)) * kChunk + lane % 4 * 4;
    _Pragma("unroll") for (int i = 0; i < 2 * kQuarters; ++i) {
      const int at = (column ^ i / kQuarters * Rows::exchange(8) * kChunk) + i % kQuarters * 256;
      columns_[i] = at < bytes ? at : kNowhere;
    }
  }
  template <int tensor, int i>
  __device__ void load(int n, Resource from, uint32_t row_bytes) {
    if constexpr (kStaged) {
      const uint32_t row = wave_ + i * kWaves;
      staged_[tensor][i] = __builtin_amdgcn_raw_buffer_load_b128(from, columns_[0] + row * row_bytes, 0, 0);
      return;
    }
    constexpr int quarter = i % kQuarters, row_of_wave = i / kQuarters * kWaves;
    const int row = wave_ + row_of_wave;
    load_to_lds_unseen<4>(from, tile<tensor>(n) + row * kRowBytes + quarter * 256,
                          columns_[(row_of_wave & 8) / 8 * kQuarters + quarter] + row * row_bytes);
  }

  // Stores what such a load has brought, as a part of block n.
  template <int tensor, int i>
  __device__ void store_loaded(int n) const {
    constexpr int row_of_wave = i * kWaves;
    const int to = Rows::place(wave_, remade(lane_));
    lds_store(flipped(tile<tensor>(n) + to, Rows::exchange(row_of_wave) * kChunk) + row_of_wave * kRowBytes,
              staged_[tensor][i]);
  }

  // The wave's dims of block n, for step `step` of scores and of sums.
  template <int tensor, int step>
  __device__ ScoreOperand rows(int n) const {
    return lds_load<Dwords4>(flipped(tile<tensor>(n) + read_rows_, step % 2 * 4 * kChunk) + step / 2 * 128);
  }
  template <int tensor, int step>
  __device__ SumOperand dims(int n) const {
    const LdsByte* from = tile<tensor>(n) + read_dims_;
    SumOperand y;
    _Pragma("unroll") for (int j = 0; j < 4; ++j) {
      const int row_of_eight = step % 2 * 4 + j;
      const LdsByte* row =
          flipped(from, Rows::exchange(j) * kChunk) + row_of_eight * kRowBytes + step / 2 * 128;
      y.x[0][j] = lds_load<uint32_t>(row);
      y.x[1][j] = lds_load<uint32_t>(row + 256);
    }
    return y;
  }

  // A step's q-th product of scores, and of sums.
  template <typename T, int step, int q, typename Own>
  __device__ static void multiply_score(Partial& c, const ScoreOperand& x, const Own& own, bool first) {
    constexpr int tile = q % 2;
    const Dwords4 b = own.x[tile * kScoreSteps + step];
    const Dwords2 a_part = q < 2 ? low_half(x) : high_half(x), b_part = q < 2 ? low_half(b) : high_half(b);
    if constexpr (kKeys) {
      c.x[tile] = multiply_in_vgprs<T>(a_part, b_part, c.x[tile], first);
    } else {
      c.x[tile] = multiply<T>(a_part, b_part, first ? Float4{} : c.x[tile]);
    }
  }
  __device__ static void begin_score(Partial& c, Dwords2 row_parts, int tile) {
    c.x[tile] = multiply_in_vgprs<Bf16>(row_parts, kMinusThree, c.x[tile], true);
  }
  template <typename T, int step, int q, typename Sum>
  __device__ static void multiply_sum(Sum& sum, const SumOperand& x, const Dwords4 (&own)[1]) {
    constexpr int odd = q % 2, other = q / 2, t = (step / 2 + 2 * other) * 2 + odd;
    constexpr uint32_t which = odd ? 0x07060302 : 0x05040100;
    const auto& rows = x.x[other];
    const Dwords2 a = {__builtin_amdgcn_perm(rows[1], rows[0], which),
                       __builtin_amdgcn_perm(rows[3], rows[2], which)};
    sum[t] = multiply32<T>(a, step % 2 ? high_half(own[0]) : low_half(own[0]), sum[t]);
  }
  // 32 dims of sums of even and of odd ones.
  template <typename Sum>
  __device__ static Float16 tile_of(const Sum& sum, int t) {
    Float16 y;
    _Pragma("unroll") for (int i = 0; i < 16; ++i) y[i] = sum[(t & ~1) + i % 2][t % 2 * 8 + i / 2];
    return y;
  }

  // Stores a part of what the wave has of S (0) or dP (1), for the wave that shares its rows.
  template <int which, int i>
  __device__ void store(const Partial& x) const {
    lds_store(partials<which>() + store_ + i * 16 * 64, x.x[i]);
  }
  template <int which, int i>
  __device__ void receive(Received& y) const {
    const int wave = i < 2 ? wave_ : wave_ ^ 1;
    y.x[i] = lds_load<Float4>(flipped(partials<which>() + receive_, i % 2 * kChunk) + wave * kShared);
  }
  __device__ static float total(const Partial&, const Received& y, int i) {
    return y.x[i / 4][i % 4] + y.x[2 + i / 4][i % 4];
  }

 private:
  template <int tensor>
  __device__ LdsByte* tile(int n) const {
    return lds_ + (tensor == 0 ? (n & 1) * kTile : 2 * kTile);
  }
  template <int which>
  __device__ LdsByte* partials() const {
    return lds_ + 3 * kTile + which * kWaves * kShared;
  }
  // Where four rows of an own row lie. Eight lanes have eight own rows.
  __device__ static int shared(int own, int four) { return own * 64 + (four ^ (own >> 1 & 3)) * kChunk; }

  LdsByte* lds_;
  int wave_, lane_;
  int read_rows_, read_dims_, store_, receive_;
  Dwords4 staged_[2][kStaged ? kLoads : 1];
  uint32_t columns_[2 * kQuarters];  // of loads: of quarters of a row, and of rows that differ in bit 3
};

}  // namespace fmha
