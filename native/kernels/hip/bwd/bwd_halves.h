// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV without atomics, for head dims up to 512: as hip/bwd/bwd_wide.h, whose waves have too few
// registers for it. So two waves share 32 rows of the workgroup's own, and each has half of the dims: of own
// rows, and of sums. A workgroup of four waves owns 64 rows.
//
// A wave makes a part of S and dP, of its half of the dims. Waves that share rows exchange parts by LDS, and
// add them up. A product's way there and back lies beside the next products; so S comes a block ahead:
//
//   phase of block n    matrix cores          beside them
//   dP                  dP of n               receives S of n: P; loads a of n + 1
//   dV (keys)           dV of n               stores dP
//   S                   S of n + 1            receives dP: dS; loads b of n + 1
//   dK or dQ            dK or dQ of n         stores S
//
// These loads are those of keys. The file of an arch says how far ahead queries load.
//
// A phase's first operands are read beside the products of the one before it. A barrier lies in front of
// those of dP, behind which b of n and S are there, and one in front of those of S, behind which a of n + 1
// and dP are. For queries dP is there behind a third one.
//
//   budget, head dim 512, keys     gfx942
//   registers: sums                256 (AGPRs)
//     own rows                     128
//     S and dP, P and dS           32, 8
//     operands read ahead          16
//   LDS: a, b, exchanged           32 KB, 16 KB, 16 KB
//   a SIMD, of a block of 16
//     matrix cycles                2112
#pragma once

#include "args/bwd_pingpong.h"
#include "common/device.h"
#include "hip/bwd/bwd_in_vgprs.h"
#include "hip/bwd/bwd_side.h"
#include "hip/common/pingpong_parts.h"
#if defined(__gfx950__)
#include "hip/bwd/bwd_halves_gfx950.h"
#else
#include "hip/bwd/bwd_halves_gfx942.h"
#endif

namespace fmha {

inline constexpr int kBwdHalvesWaves = 4, kBwdHalvesShare = 2;

enum class BwdPhase { kDp, kDv, kS, kDk };

// A workgroup's 64 keys (kKeys), or rows of queries.
template <typename T, int kHdim, BwdScore kScore, bool kKeys>
class BwdHalvesSide
    : BwdSide<T, kHdim / 2, kScore, kKeys, kBwdHalvesWaves, kBwdHalvesShare, kBwdHalvesBlock> {
  using Side = BwdSide<T, kHdim / 2, kScore, kKeys, kBwdHalvesWaves, kBwdHalvesShare, kBwdHalvesBlock>;
  using Blocks = BwdHalvesBlocks<512, kKeys>;
  using Phase = BwdPhase;
  using Side::at, Side::rows_walk, Side::wave, Side::load_row_sums, Side::own_d;
  using Side::kElements;
  using Side::own_a, Side::own_b, Side::s, Side::dp, Side::lse_parts, Side::d_parts, Side::sums,
      Side::probabilities, Side::ds;

  // ---- Phases, in products.

  static constexpr bool kCapped = kScore == BwdScore::kSoftcap;
  static constexpr bool kDeep = Blocks::kDeep, kStaged = Blocks::kStaged;
  static constexpr bool is_scores(Phase p) { return p == Phase::kDp || p == Phase::kS; }
  static constexpr Phase next(Phase p) {
    switch (p) {
      case Phase::kDp:
        return kKeys ? Phase::kDv : Phase::kS;
      case Phase::kDv:
        return Phase::kS;
      case Phase::kS:
        return Phase::kDk;
      default:
        return Phase::kDp;
    }
  }
  template <Phase phase>
  static constexpr int kSteps = is_scores(phase) ? Blocks::kScoreSteps : Blocks::kSumSteps;
  template <Phase phase>
  static constexpr int kProducts = is_scores(phase) ? Blocks::kScoreProducts : Blocks::kSumProducts;
  // Slopes of the cap take registers.
  static constexpr int ahead(int most) { return kCapped && most > 2 ? most - 1 : most; }
  template <Phase phase>
  static constexpr int kAhead = ahead(is_scores(phase) ? Blocks::kScoreAhead : Blocks::kSumAhead);
  template <Phase phase>
  static constexpr int kSlots = kSteps<phase> * kProducts<phase>;
  // The product beside which a phase reads its last operands.
  template <Phase phase>
  static constexpr int kLastRead = kProducts<phase> * (kSteps<phase> - 1 - kAhead<phase>);
  // The product behind which the next phase begins, with its barrier and first operands. Behind the barrier
  // other waves load to where this phase's operands were: all of them have been read.
  template <Phase phase>
  static constexpr int kLast =
      max(kSlots<phase> - (is_scores(phase) ? Blocks::kScoreLate : Blocks::kSumLate), kLastRead<phase>);
  // S, whose first operands are read while dP's last are in use, counts on.
  template <Phase phase>
  static constexpr int kFirstOfRing = phase == Phase::kS && !kKeys ? kSteps<Phase::kDp> : 0;
  static constexpr int kScoreRing = 2 * Blocks::kScoreAhead, kSumRing = Blocks::kSumAhead + 1;

  // ---- Slots from which on other work lies beside them.

  static constexpr int kScoreSlots = kSlots<Phase::kS>;
  static constexpr int kUnit = kScoreSlots / 16;  // slots of a 16th of a phase
  static constexpr int kPartSize = 4, kParts = kElements / kPartSize + 2;
  static constexpr int kReceive = 4 * kUnit, kTotal = kReceive + 4 * kUnit, kWeights = kTotal + 1;
  static constexpr int kStore = 2;
  // For queries: dP is stored beside S.
  static constexpr int kStoreDp = 2 * kUnit, kShareDp = 5 * kUnit;
  static constexpr int kReceiveDp = kKeys ? kReceive : kShareDp + 1, kTotalDp = kReceiveDp + 4 * kUnit;
  static_assert(kStoreDp + 2 <= kShareDp);

 public:
  using Side::kOwnRows, Side::kThreads, Side::blocks;
  static constexpr int kLdsBytes = Side::template kLdsBytesWith<Blocks>;

  using Side::Side;

  __device__ void begin(LdsByte* lds) { this->begin_with(tiles, lds); }

  // The main loop.
  __device__ void walk() {
    _Pragma("unroll") for (int n = 0; n < BwdRowSums::kLead; ++n) load_row_sums(n);
    find_next_rows();
    load_parts<0, 0, Blocks::kLoads>(0);
    find_next_rows<kDeep>();
    load_parts<1, 0, Blocks::kLoads>(0);
    if constexpr (kDeep) load_parts<0, 0, Blocks::kLoads>(1);
    if constexpr (kStaged) {
      store_loaded<0, 0>(0);
      store_loaded<1, 0>(0);
      find_next_rows();
      load_parts<0, 0, Blocks::kLoads>(1);
      load_parts<1, 0, Blocks::kLoads>(1);
      wait_for_lds();
    }
    if constexpr (!kStaged) wait_for_loads<0>();
    barrier_beside_reads();
    begin_row_sums(0);
    read_first<Phase::kS>(0);
    steps<Phase::kS, 0, false>(0);
    if constexpr (kKeys) wait_for_scores();
    store_parts<0, 0, Blocks::kStores>();
    enter<Phase::kDp>();
    read_first<Phase::kDp>(0);
    for (int n = 0; n < blocks; ++n) {
      find_next_rows<true>();
      tiles.begin_block();
      steps<Phase::kDp, 0, true>(n);
      this->next_block(n);
      if constexpr (kKeys) steps<Phase::kDv, 0, true>(n);
      steps<Phase::kS, 0, true>(n);
      steps<Phase::kDk, 0, true>(n);
    }
    if constexpr (kDeep) wait_for_loads<0>();  // LDS must not be another workgroup's before they are there
  }

  __device__ void end() const {
    Side::end_with([](const auto& sum, int t) { return Blocks::tile_of(sum, t); });
  }

 private:
  // The rows of the block that is loaded next, and loads of either tensor, from one on. If a is loaded two
  // blocks ahead, b is loaded one block behind it.
  template <bool kGoesOn = true>
  __device__ void find_next_rows() {
    if constexpr (kGoesOn) {
      const int count = rows_walk.count();
      from[1] = kDeep ? from_next : rows_walk.b.rows(count);
      from[0] = rows_walk.a.rows(count);
      if constexpr (kDeep) from_next = rows_walk.b.rows(count);
      rows_walk.next();
    }
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

  template <int tensor, int i>
  __device__ void store_loaded(int n) {
    if constexpr (i < Blocks::kLoads) {
      tiles.template store_loaded<tensor, i>(n);
      store_loaded<tensor, i + 1>(n);
    }
  }
  // A load of block n in each slot; or stores of what was loaded before, and then loads of the block behind.
  template <int tensor, int slot>
  __device__ void load_beside(int n) {
    constexpr int load = kStaged ? slot - Blocks::kLoads : slot;
    if constexpr (load >= 0 && load < Blocks::kLoads) {
      load_parts<tensor, load, load + 1>(n);
    } else if constexpr (load < 0) {
      tiles.template store_loaded<tensor, slot>(n);
    }
  }

  // LSE and D of block n, of the first of the waves that share rows.
  __device__ void begin_row_sums(int n) {
    this->split_row_sums(n);
    load_row_sums(n + BwdRowSums::kLead);
    if constexpr (kKeys) {
      const bool first = wave % kBwdHalvesShare == 0;
      if constexpr (!kCapped) lse_parts = first ? lse_parts : Dwords2{};
      d_parts = first ? d_parts : Dwords2{};
      __builtin_amdgcn_sched_barrier(0);
    }
  }

  // ---- Products.

  // The tile that a phase reads is of block n or, S, of the next one.
  template <Phase phase>
  static constexpr int kTensor = phase == Phase::kDp || phase == Phase::kDv ? 1 : 0;

  template <Phase phase, int i>
  __device__ void read(int n) {
    if constexpr (is_scores(phase)) {
      score_ring[(kFirstOfRing<phase> + i) % kScoreRing] = tiles.template rows<kTensor<phase>, i>(n);
    } else {
      sum_ring[i % kSumRing] = tiles.template dims<kTensor<phase>, i>(n);
    }
  }
  template <Phase phase, int i = 0>
  __device__ void read_first(int n) {
    if constexpr (i < kAhead<phase>) {
      read<phase, i>(n);
      read_first<phase, i + 1>(n);
    } else {
      __builtin_amdgcn_sched_barrier(0);
    }
  }

  template <Phase phase, int i, int q>
  __device__ void multiply() {
    if constexpr (is_scores(phase)) {
      constexpr bool kIsS = phase == Phase::kS, kBegins = i == 0 && q < kTilesOfScore;
      constexpr bool kHasInitial = kKeys && (!kIsS || !kCapped);
      auto& c = kIsS ? s_part : dp_part;
      if constexpr (kBegins && kHasInitial) Blocks::begin_score(c, kIsS ? lse_parts : d_parts, q);
      Blocks::template multiply_score<T, i, q>(c, score_ring[(kFirstOfRing<phase> + i) % kScoreRing],
                                               kIsS ? own_a : own_b, kBegins && !kHasInitial);
    } else {
      constexpr bool kIsDv = phase == Phase::kDv;
      Blocks::template multiply_sum<T, i, q>(sums[kIsDv ? 1 : 0], sum_ring[i % kSumRing],
                                             kIsDv ? probabilities : ds);
    }
  }
  static constexpr int kTilesOfScore = Blocks::kScoreProducts == 1 ? 1 : 2;

  // Products from slot on, and what lies beside them.
  template <Phase phase, int slot, bool kBeside>
  __device__ void steps(int n) {
    if constexpr (slot < kSlots<phase>) {
      constexpr int i = slot / kProducts<phase>, q = slot % kProducts<phase>;
      const int of = phase == Phase::kS && kBeside ? n + 1 : n;
      if constexpr (q == 0 && i + kAhead<phase> < kSteps<phase>) read<phase, i + kAhead<phase>>(of);
      __builtin_amdgcn_sched_barrier(0);
      multiply<phase, i, q>();
      __builtin_amdgcn_sched_barrier(0);
      if constexpr (kBeside) {
        beside<phase, slot>(n);
        if constexpr (slot == kLast<phase>) {
          enter<next(phase)>();
          read_first<next(phase)>(phase == Phase::kDk || next(phase) == Phase::kS ? n + 1 : n);
        }
        if constexpr (next(phase) == Phase::kS && slot == kLast<phase> + 1) begin_row_sums(n + 1);
      }
      __builtin_amdgcn_sched_barrier(0);
      steps<phase, slot + 1, kBeside>(n);
    }
  }

  // The barrier in front of a phase's first reads.
  template <Phase phase>
  __device__ void enter() {
    if constexpr (is_scores(phase)) {
      wait_for_lds();
      if constexpr (!kStaged) wait_for_loads<kDeep ? Blocks::kLoads : 0>();
      barrier_beside_reads();
    }
  }

  // ---- Work beside products.

  template <Phase phase, int slot>
  __device__ void beside(int n) {
    if constexpr (phase == Phase::kDp) {
      receive_in_two<0, slot - kReceive>();
      if constexpr (slot == kTotal) find_s();
      if constexpr (slot == kWeights) begin_weights();
      constexpr int part = slot - kWeights - 1;
      if constexpr (part >= 0 && part < kParts) make_part<part>();
      static_assert(kWeights + kParts < kSlots<Phase::kDp>);
      static_assert(Blocks::kLoads <= kLast<phase>);  // queries may read them right behind
      load_beside<kDeep ? 1 : 0, slot>(n + 1);
    }
    if constexpr (phase == Phase::kDv) store_in_two<1, slot - kStore>();
    if constexpr (phase == Phase::kS) {
      if constexpr (!kKeys) {
        store_in_two<1, slot - kStoreDp>();
        if constexpr (slot == kShareDp) {
          wait_for_lds();
          barrier_beside_reads();
        }
      }
      receive_in_two<1, slot - kReceiveDp>();
      if constexpr (slot == kTotalDp) find_dp();
      constexpr int kSlopes = kTotalDp + 1, element = (slot - kSlopes) * kSlopeSize;
      static_assert(kSlopes + kElements / kSlopeSize <= kScoreSlots);
      if constexpr (slot >= kSlopes && element < kElements) make_slopes(element, element + kSlopeSize);
      load_beside<kDeep ? 0 : 1, slot>(kDeep ? n + 2 : n + 1);
    }
    if constexpr (phase == Phase::kDk) store_in_two<0, slot - kStore>();
  }
  static constexpr int kSlopeSize = 4;

  // Stores and receives in two slots each, from slot 0 on.
  template <int which, int slot>
  __device__ void store_in_two() {
    constexpr int n = Blocks::kStores / 2;
    if constexpr (slot == 0 || slot == 1) store_parts<which, slot * n, slot * n + n>();
  }
  template <int which, int slot>
  __device__ void receive_in_two() {
    constexpr int n = Blocks::kReceives / 2;
    if constexpr (slot == 0 || slot == 1) receive_parts<which, slot * n, slot * n + n>();
  }
  template <int which, int i, int end>
  __device__ void store_parts() {
    if constexpr (i < end) {
      tiles.template store<which, i>(which == 0 ? s_part : dp_part);
      store_parts<which, i + 1, end>();
    }
  }
  template <int which, int i, int end>
  __device__ void receive_parts() {
    if constexpr (i < end) {
      tiles.template receive<which, i>(received);
      receive_parts<which, i + 1, end>();
    }
  }

  __device__ void find_s() {
    _Pragma("unroll") for (int i = 0; i < kElements; ++i) s[i] = Blocks::total(s_part, received, i);
  }
  // With a softcap, dp has its slope meanwhile.
  __device__ void find_dp() {
    _Pragma("unroll") for (int i = 0; i < kElements; ++i) {
      const float total = Blocks::total(dp_part, received, i);
      dp[i] = kCapped ? (kKeys ? total : total + own_d) * dp[i] : total;
    }
  }

  __device__ void begin_weights() {
    this->cap_with([this](int i, float slope) { dp[i] = slope; });
    this->hide(at);
    column = this->first_column(at);
  }
  template <int i>
  __device__ void make_part() {
    constexpr int n = kPartSize;
    if constexpr (i >= 2) this->round_weights(n * (i - 2), n * (i - 1));
    if constexpr (i >= 1 && i <= kElements / n) this->raise_scores(n * (i - 1), n * i);
    if constexpr (i < kElements / n) this->scale_scores(n * i, n * (i + 1), column);
    __builtin_amdgcn_sched_barrier(0);
  }
  __device__ void make_slopes(int begin, int end) {
    this->subtract_own_d(begin, end);
    this->round_slopes(begin, end);
    __builtin_amdgcn_sched_barrier(0);
  }

  Blocks tiles;
  Resource from[2], from_next;  // the rows that are loaded
  float column;
  typename Blocks::ScoreOperand score_ring[kScoreRing];
  typename Blocks::SumOperand sum_ring[kSumRing];
  typename Blocks::Partial s_part, dp_part;
  typename Blocks::Received received;
};

}  // namespace fmha

// FMHA_BWD_HALVES_KERNEL(symbol, type, head dim, score): one kernel and its facts.
#define FMHA_BWD_HALVES_KERNEL(entry, type, hdim, score) \
  FMHA_BWD_SIDES_KERNEL(entry, BwdHalvesSide, 1, type, hdim, score)
