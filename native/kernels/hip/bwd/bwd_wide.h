// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV without atomics, for head dims up to 256: as hip/bwd/bwd_pingpong.h, whose waves have too few
// registers for it. Four waves, one a SIMD, have 512 each: a workgroup owns 128 rows. There is no other wave
// that computes P and dS meanwhile; so a wave issues those, what turns a block and the next block's loads
// between its own matrix instructions.
//
//   a block        matrix cores             beside them
//   scores         S                        turns the block (gfx942)
//                  dP                       P; turns the block
//   sums           dV, dK, or dQ            dS; loads
//
// dQ takes dS at once, so that half of it is made in between. With a softcap, whose slope dP takes too, P is
// made there as well.
//
//   budget, head dim 256, keys     gfx942
//   registers: sums                256 (AGPRs)
//     own rows                     128
//     S and dP, P and dS           32, 16
//     operands read ahead          16
//   LDS: rows, turned              32 KB, 32 KB
//   a SIMD, of a block
//     matrix cycles                4224
//
// The compiler gives all results of matrix instructions AGPRs, or all of them VGPRs, and either has 256
// registers. So S and dP, which vector instructions read, are multiplied by lines of assembly
// (hip/bwd/bwd_in_vgprs.h).
#pragma once

#include "args/bwd_pingpong.h"
#include "common/device.h"
#include "hip/bwd/bwd_in_vgprs.h"
#include "hip/bwd/bwd_side.h"
#include "hip/common/pingpong_parts.h"
#if defined(__gfx950__)
#include "hip/bwd/bwd_wide_gfx950.h"
#else
#include "hip/bwd/bwd_wide_gfx942.h"
#endif

namespace fmha {

inline constexpr int kBwdWideWaves = 4;

// A workgroup's 128 keys (kKeys), or rows of queries.
template <typename T, int kHdim, BwdScore kScore, bool kKeys>
class BwdWideSide : BwdSide<T, kHdim, kScore, kKeys, kBwdWideWaves> {
  using Side = BwdSide<T, kHdim, kScore, kKeys, kBwdWideWaves>;
  // Blocks in LDS have rows of 256 dims, whose rest is zeros.
  using Blocks = BwdWideBlocks<256, kKeys ? 2 : 1>;
  using Side::at, Side::rows_walk, Side::load_row_sums;
  using Side::kSteps, Side::kTiles, Side::kSums;
  using Side::own_a, Side::own_b, Side::s, Side::dp, Side::lse_parts, Side::d_parts, Side::sums,
      Side::probabilities, Side::ds;
  // Steps of a phase: pairs of operands, each read kAhead steps ahead.
  static constexpr int kPairs = kTiles / 2, kPairsOfSums = 2 * kSums * kPairs;
  static constexpr int kAhead = Blocks::kAhead, kRing = kAhead + 1;
  // Matrix instructions of a step. Behind each there is a slot for others.
#if defined(__gfx950__)
  static constexpr int kProducts = 2;
#else
  static constexpr int kProducts = 4;
#endif
  // Steps of both S and dP come first, whose products take turns: one waits a little for the one before it if
  // that has the same result. Then come the rest of S, and the rest of dP, beside which P is made. After so
  // many slots the result of a product is there.
  static constexpr bool kEarly = kScore != BwdScore::kSoftcap;
  static constexpr int kSlotsUntilThere = 4;
  // Elements of a part of P or dS, which a slot makes, and parts of P: it has three stages.
  static constexpr int kPartSize = kProducts == 4 || kHdim == 256 ? 2 : 4, kParts = 16 / kPartSize + 2;
  static constexpr int kStepsOfRest = !kEarly ? 0 : (kSlotsUntilThere + kParts + kProducts - 1) / kProducts;
  static constexpr int kStepsOfBoth = kSteps - 2 * kStepsOfRest;
  static_assert(kStepsOfBoth >= 0);
  static constexpr int kFirstWeights = (kStepsOfBoth + kStepsOfRest) * kProducts + kSlotsUntilThere;
  // Loads of a wave that may be on their way when a block must be there.
  static constexpr int kMayMiss =
      (Blocks::kLead - 1) * (2 * Blocks::kLoads + (kKeys ? BwdRowSums::kMayMiss : 0));
  static_assert(Blocks::kLead == BwdRowSums::kLead);

 public:
  using Side::kOwnRows, Side::kThreads, Side::blocks, Side::end;
  static constexpr int kLdsBytes = Side::template kLdsBytesWith<Blocks>;

  using Side::Side;

  __device__ void begin(LdsByte* lds) { this->begin_with(tiles, lds); }

  // The main loop.
  __device__ void walk() {
    _Pragma("unroll") for (int n = 0; n < Blocks::kLead; ++n) {
      load_row_sums(n);
      find_next_rows();
      load_parts<0, 0, Blocks::kLoads>(n);
      load_parts<1, 0, Blocks::kLoads>(n);
    }
    for (int n = 0; n < blocks; ++n) {
      wait_for_loads<kMayMiss>();
      barrier_beside_reads();
      this->split_row_sums(n);
      load_row_sums(n + Blocks::kLead);
      if constexpr (Blocks::kLoadsSecondEarly) find_next_rows();
      phase<true>(n);
      if constexpr (Blocks::kWaitsForTurns) pingpong_barrier();
      if constexpr (!Blocks::kLoadsSecondEarly) find_next_rows();
      wait_for_scores();
      finish_weights();
      phase<false>(n);
      this->next_block(n);
    }
  }

 private:
  // The rows of the block that is loaded next, and loads of either tensor, from one on.
  __device__ void find_next_rows() {
    const int count = rows_walk.count();
    from[0] = rows_walk.a.rows(count);
    from[1] = rows_walk.b.rows(count);
    rows_walk.next();
  }
  template <int tensor, int i, int end>
  __device__ void load_parts(int n) {
    if constexpr (i < end) {
      const auto& of = tensor == 0 ? rows_walk.a : rows_walk.b;
      if constexpr (i == 0) tiles.begin_loads(of.bytes);
      tiles.template load<tensor, i>(n, from[tensor], of.row_bytes);
      load_parts<tensor, i + 1, end>(n);
    }
  }

  // ---- P and dS.

  __device__ void begin_weights() {
    this->cap();
    this->hide(at);
    column = this->first_column(at);
  }
  template <int i>
  __device__ void make_part() {
    constexpr int n = kPartSize;
    if constexpr (i >= 2) this->round_weights(n * (i - 2), n * (i - 1));
    if constexpr (i >= 1 && i <= 16 / n) this->raise_scores(n * (i - 1), n * i);
    if constexpr (i < 16 / n) this->scale_scores(n * i, n * (i + 1), column);
    __builtin_amdgcn_sched_barrier(0);
  }
  template <int i>
  __device__ void make_parts() {
    if constexpr (i < kParts) {
      make_part<i>();
      make_parts<i + 1>();
    }
  }
  __device__ void make_slopes(int begin, int end) {
    this->subtract_own_d(begin, end);
    this->round_slopes(begin, end);
    __builtin_amdgcn_sched_barrier(0);
  }
  // Makes P and dS that the sums take at once.
  __device__ void finish_weights() {
    if constexpr (!kEarly) {
      begin_weights();
      make_parts<0>();
    }
    if constexpr (!kKeys) make_slopes(0, 8);
  }

  // ---- A phase: scores, or sums.

  template <bool kScores>
  __device__ void phase(int n) {
    read_ahead<kScores, 0>(n);
    __builtin_amdgcn_sched_barrier(0);
    steps<kScores, 0>(n);
  }

  template <bool kScores>
  static constexpr int kStepsOf = kScores ? kSteps : kPairsOfSums;

  template <bool kScores, int i>
  __device__ void read_ahead(int n) {
    if constexpr (i < kAhead) {
      ring[i % kRing] = read<kScores, i>(n);
      read_ahead<kScores, i + 1>(n);
    }
  }

  // Steps from i on.
  template <bool kScores, int i>
  __device__ void steps(int n) {
    if constexpr (i < kStepsOf<kScores>) {
      if constexpr (i + kAhead < kStepsOf<kScores>) ring[(i + kAhead) % kRing] = read<kScores, i + kAhead>(n);
      __builtin_amdgcn_sched_barrier(0);
      products<kScores, i, 0>(n);
      steps<kScores, i + 1>(n);
    }
  }

  // The operands of a score's step.
  template <int i, int q>
  static constexpr int kTensorOfScore = i < kStepsOfBoth                  ? q % 2
                                        : i < kStepsOfBoth + kStepsOfRest ? 0
                                                                          : 1;
  template <int i, int q>
  static constexpr int kChunkOfScore =
      i < kStepsOfBoth ? i : kStepsOfBoth + (i - kStepsOfBoth) % (kStepsOfRest + !kStepsOfRest) * 2 + q % 2;

  // Sums take the first half of a block's rows, and then the other.
  template <int i>
  static constexpr int kTensorOfSum = kKeys ? 1 - i / kPairs % 2 : 0;
  template <int i>
  static constexpr int kHalfOfSum = i / (kSums * kPairs);
  template <int i>
  static constexpr int kTileOfSum = i % kPairs * 2;

  template <bool kScores, int i>
  __device__ Pair read(int n) const {
    if constexpr (kScores) {
      return {tiles.rows(n, kTensorOfScore<i, 0>, kChunkOfScore<i, 0>),
              tiles.rows(n, kTensorOfScore<i, 1>, kChunkOfScore<i, 1>)};
    } else {
      constexpr int tensor = kTensorOfSum<i>, half = kHalfOfSum<i>, t = kTileOfSum<i>;
      return {tiles.dims(n, tensor, half, t), tiles.dims(n, tensor, half, t + 1)};
    }
  }

  // The products of step i from the q-th on.
  template <bool kScores, int i, int q>
  __device__ void products(int n) {
    if constexpr (q < kProducts) {
      if constexpr (kScores) {
        multiply_scores<i, q>();
        __builtin_amdgcn_sched_barrier(0);
        beside_scores<i * kProducts + q>(n);
      } else {
        multiply_sums<i, q>();
        __builtin_amdgcn_sched_barrier(0);
        beside_sums<i * kProducts + q>(n);
      }
      __builtin_amdgcn_sched_barrier(0);
      products<kScores, i, q + 1>(n);
    }
  }

  // The part of an operand that a step's q-th product takes: the products take both operands in turn.
  template <int q>
  __device__ static auto part(Dwords4 x) {
#if defined(__gfx950__)
    return x;
#else
    if constexpr (q / 2 == 0) {
      return low_half(x);
    } else {
      return high_half(x);
    }
#endif
  }

  template <int i, int q>
  __device__ void multiply_scores() {
    constexpr bool kIsS = kTensorOfScore<i, q> == 0;
    constexpr int chunk = kChunkOfScore<i, q>;
    constexpr bool kFirst = chunk == 0 && q / 2 == 0;
    constexpr bool kHasInitial = kKeys && (!kIsS || kScore != BwdScore::kSoftcap);
    Float16& c = kIsS ? s : dp;
    if constexpr (kFirst && kHasInitial) {
      c = multiply_in_vgprs<Bf16>(kIsS ? lse_parts : d_parts, kMinusThree, c, true);
    }
    c = multiply_in_vgprs<T>(part<q>(ring[i % kRing].x[q % 2]), part<q>((kIsS ? own_a : own_b).x[chunk]), c,
                             kFirst && !kHasInitial);
  }

  template <int i, int q>
  __device__ void multiply_sums() {
    constexpr int sum = kTensorOfSum<i>, half = kHalfOfSum<i>, t = kTileOfSum<i> + q % 2;
    const auto x = part<q>(ring[i % kRing].x[q % 2]);
    sums[sum][t] = multiply32<T>(x, part<q>(sum == 0 ? ds[half] : probabilities[half]), sums[sum][t]);
  }

  // Parts of turning the block, P, and the next block's second tensor.
  template <int slot>
  __device__ void beside_scores(int n) {
    if constexpr (kEarly && slot == kFirstWeights) begin_weights();
    constexpr int part = slot - kFirstWeights;
    if constexpr (kEarly && part >= 0 && part < kParts) make_part<part>();
    constexpr int kEvery = Blocks::kTurns > 0 ? kSteps * kProducts / 4 : 1;  // slots of a part of turning
    constexpr int i = slot / kEvery, of_part = slot % kEvery;
    if constexpr (i < Blocks::kTurns) {
      if constexpr (of_part < 4) tiles.template read_turn<i>(2 * of_part, 2);
      if constexpr (of_part == 8 || of_part == 10) tiles.template store_turn<i>(of_part == 10);
    } else if constexpr (Blocks::kLoadsSecondEarly) {
      constexpr int load = slot - kEvery * Blocks::kTurns;
      if constexpr (load < Blocks::kLoads) load_parts<1, load, load + 1>(n + Blocks::kLead);
    }
  }

  // dS, and the next block.
  template <int slot>
  __device__ void beside_sums(int n) {
    // For keys, the last products of dP come meanwhile.
    constexpr int kFirstSlope = kKeys ? kSlotsUntilThere : 0, kFirstElement = kKeys ? 0 : 8;
    static_assert(!kKeys || kFirstSlope + 8 / kPartSize <= kPairs * kProducts);
    constexpr int element = (slot - kFirstSlope) * kPartSize + kFirstElement, kFirstLoad = kKeys ? 1 : 4;
    if constexpr (slot >= kFirstSlope && element < 16) make_slopes(element, element + kPartSize);
    constexpr int kOfSecond = Blocks::kLoadsSecondEarly ? 0 : Blocks::kLoads, load = slot - kFirstLoad;
    static_assert(kFirstLoad + Blocks::kLoads + kOfSecond <= kPairsOfSums * kProducts);
    if constexpr (load >= 0 && load < Blocks::kLoads) {
      load_parts<0, load, load + 1>(n + Blocks::kLead);
    } else if constexpr (load >= Blocks::kLoads && load - Blocks::kLoads < kOfSecond) {
      load_parts<1, load - Blocks::kLoads, load - Blocks::kLoads + 1>(n + Blocks::kLead);
    }
  }

  Blocks tiles;
  Resource from[2];  // the rows that are loaded
  float column;
  Pair ring[kRing];
};

}  // namespace fmha

// FMHA_BWD_WIDE_KERNEL(symbol, type, head dim, score): one kernel and its facts.
#define FMHA_BWD_WIDE_KERNEL(entry, type, hdim, score) \
  FMHA_BWD_SIDES_KERNEL(entry, BwdWideSide, 1, type, hdim, score)
