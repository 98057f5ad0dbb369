// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV without atomics, whose matrix cores hardly ever wait: eight waves in two groups of four, of
// which one is at its products while the other makes P and dS (hip/fwd/fwd_pingpong.h is the model).
//
// A workgroup owns 256 keys of a key head, for dK and dV, and walks over the rows of all query heads of its
// group; or it owns 256 rows of a query head, for dQ, and walks over the keys. Gradients never leave its
// registers before they are complete, so that they have the same bits in any order of workgroups. That takes
// seven products where five would do; but a float32 sum of dQ in memory costs more than the two, by tiles of
// 128 keys (docs/kernels/bwd_pingpong.md). A launch has both kinds, keys first: the others fill their drain.
//
// A wave owns 32 rows: "a" is the pair Q and K, whose product is S; "b" is dO and V, whose product is dP. Its
// own rows stay in registers. Walked rows come in blocks of 32. Between two barriers lies a phase:
//
//   phase    group 0                             group 1
//   2n       products of n - 1, scores of n      P, dS of n - 1; turns block n; loads ahead
//   2n + 1   P, dS of n; turns block n; loads    products of n - 1, scores of n
//
// Scores: S, dP = walked rows times own rows, by 32x32x8, on gfx950 by 32x32x16. Walked rows are rows of the
// result, so that what a lane has of P and dS is what the products take: dV^T += dO^T P, dK^T += Q^T dS; or
// dQ^T += K^T dS^T. These want the walked rows turned (hip/bwd/bwd_pingpong_gfx942.h, ..._gfx950.h).
//
// LSE and D of walked rows cost the scores no registers, and hardly any vector instruction: as three bf16
// each, which have all 24 bits, they are one more step of the products S and dP, times -1. Thus S begins with
// -LSE / scale, and dP with -D.
//
//   budget, head dim 128, keys     gfx942
//   registers: sums                128
//     own rows                     64
//     S and dP, P and dS           32, 16
//     operands read ahead          16
//   LDS: rows, turned              2 * 16 KB, 2 * 16 KB
//   a SIMD, of a block
//     matrix cycles                4224
#pragma once

#include "args/bwd_pingpong.h"
#include "common/device.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/pingpong_parts.h"
#if defined(__gfx950__)
#include "hip/bwd/bwd_pingpong_gfx950.h"
#else
#include "hip/bwd/bwd_pingpong_gfx942.h"
#endif
#include "hip/bwd/bwd_side.h"

namespace fmha {

inline constexpr int kBwdPingpongWaves = 8;

// A workgroup's 256 keys (kKeys), or rows of queries.
template <typename T, int kHdim, BwdScore kScore, bool kKeys>
class BwdPingpongSide : BwdSide<T, kHdim, kScore, kKeys, kBwdPingpongWaves> {
  using Side = BwdSide<T, kHdim, kScore, kKeys, kBwdPingpongWaves>;
  using Blocks = BwdBlocks<kHdim, kKeys ? 2 : 1>;
  using Side::at, Side::rows_walk, Side::wave, Side::load_row_sums, Side::split_row_sums;
  using Side::kSteps, Side::kTiles, Side::kSums;
  using Side::own_a, Side::own_b, Side::s, Side::dp, Side::lse_parts, Side::d_parts, Side::sums,
      Side::probabilities, Side::ds;
  // Steps of a phase: pairs of operands, each read kAhead steps ahead. Sums come first.
  static constexpr int kPairs = kTiles, kPairsOfSums = kSums * kPairs;
  static constexpr int kAhead = Blocks::kAhead, kRing = kAhead + 1;
  // Loads of a wave that may be on their way at the end of a phase.
  static constexpr int kMayMiss = Blocks::kMayMiss + (kKeys ? BwdRowSums::kMayMiss : 0);

 public:
  using Side::kOwnRows, Side::kThreads, Side::blocks, Side::end;
  static constexpr int kLdsBytes = Side::template kLdsBytesWith<Blocks>;

  using Side::Side;

  __device__ void begin(LdsByte* lds) {
    this->begin_with(tiles, lds);
    group = wave / (kBwdPingpongWaves / 2);
  }

  // The main loop.
  __device__ void walk() {
    _Pragma("unroll") for (int n = 0; n < Blocks::kLead; ++n) load_rows(n);
    _Pragma("unroll") for (int n = 0; n < BwdRowSums::kLead; ++n) load_row_sums(n);
    wait_for_loads<0>();
    split_row_sums(0);
    pingpong_barrier();
    if (group != 0) {
      move(0);
      pingpong_barrier();
    }
    scores_only(0);
    pingpong_barrier();
    weigh(0);
    for (int n = 1; n < blocks; ++n) {
      read_first<0>(n);
      barrier_beside_reads();
      run_steps<0, kPairsOfSums + kSteps>(n);
      barrier_beside_reads();
      weigh(n);
    }
    // Group 1 is one phase behind: its last barrier is that of group 0's last phase.
    if (group == 0) pingpong_barrier();
    read_first<0>(blocks);
    run_steps<0, kPairsOfSums>(blocks);
  }

 private:
  __device__ void load_rows(int n) {
    const int count = rows_walk.count();
    const auto &a = rows_walk.a, &b = rows_walk.b;
    tiles.load(n, a.rows(count), b.rows(count), a.row_bytes, b.row_bytes, a.bytes, b.bytes);
    rows_walk.next();
  }
  // Turns block n, and loads another.
  __device__ void move(int n) {
    load_rows(n + Blocks::kLead);
    tiles.turn(n);
    wait_for_loads<kMayMiss>();
  }

  // ---- The phase of products. The first that are read are those that group 1 has turned.

  template <int i>
  static constexpr int kTensorOfSum = kKeys && i < kPairs ? 1 : 0;
  template <int i>
  static constexpr int kStepOfSum = 1 - i % kPairs / (kTiles / 2);
  template <int i>
  static constexpr int kTileOfSum = i % (kTiles / 2) * 2;

  // Pair i of the phase.
  template <int i>
  __device__ Pair read(int n) const {
    if constexpr (i < kPairsOfSums) {
      constexpr int tensor = kTensorOfSum<i>, step = kStepOfSum<i>, t = kTileOfSum<i>;
      return {tiles.dims(n - 1, tensor, step, t), tiles.dims(n - 1, tensor, step, t + 1)};
    } else {
      return {tiles.rows(n, 0, i - kPairsOfSums), tiles.rows(n, 1, i - kPairsOfSums)};
    }
  }

  template <int i>
  __device__ void multiply(const Pair& x) {
    if constexpr (i < kPairsOfSums) {
      constexpr int sum = kTensorOfSum<i>, step = kStepOfSum<i>, t = kTileOfSum<i>;
      multiply_pair<T>(x, sum == 0 ? ds[step] : probabilities[step], sums[sum][t], sums[sum][t + 1]);
    } else {
      constexpr int step = i - kPairsOfSums;
      if constexpr (step == 0) {
        s = dp = Float16{};
        if constexpr (kKeys && kScore != BwdScore::kSoftcap) s = multiply32<Bf16>(lse_parts, kMinusThree, s);
        if constexpr (kKeys) dp = multiply32<Bf16>(d_parts, kMinusThree, dp);
      }
      multiply_two<T>(x, own_a.x[step], own_b.x[step], s, dp);
    }
  }

  // Steps from i to before `end`. A step's reads are used kAhead steps later.
  template <int i, int end>
  __device__ void steps(int n) {
    if constexpr (i < end) {
      if constexpr (i + kAhead < end) ring[(i + kAhead) % kRing] = read<i + kAhead>(n);
      __builtin_amdgcn_sched_barrier(0);
      multiply<i>(ring[i % kRing]);
      __builtin_amdgcn_sched_barrier(0);
      steps<i + 1, end>(n);
    }
  }

  template <int from, int ahead = 0>
  __device__ void read_first(int n) {
    ring[(from + ahead) % kRing] = read<from + ahead>(n);
    if constexpr (ahead + 1 < kAhead) {
      read_first<from, ahead + 1>(n);
    } else {
      __builtin_amdgcn_sched_barrier(0);
    }
  }

  template <int from, int end>
  __device__ void run_steps(int n) {
    __builtin_amdgcn_s_setprio(1);
    steps<from, end>(n);
    __builtin_amdgcn_s_setprio(0);
    __builtin_amdgcn_sched_barrier(0);
  }

  __device__ void scores_only(int n) {
    read_first<kPairsOfSums>(n);
    run_steps<kPairsOfSums, kPairsOfSums + kSteps>(n);
  }

  // ---- The other phase.

  __device__ void weigh(int n) {
    load_row_sums(n + BwdRowSums::kLead);
    load_rows(n + group + Blocks::kLead);
    tiles.turn(n + group);
    this->cap();
    this->hide(at);
    this->make_weights(this->first_column(at));
    this->next_block(n);
    wait_for_lds();  // what was turned was stored long ago
    wait_for_loads<kMayMiss>();
    split_row_sums(n + 1);
  }

  int group;
  Blocks tiles;
  Pair ring[kRing];
};

}  // namespace fmha

// FMHA_BWD_PINGPONG_KERNEL(symbol, type, head dim, score): one kernel and its facts.
#define FMHA_BWD_PINGPONG_KERNEL(entry, type, hdim, score) \
  FMHA_BWD_SIDES_KERNEL(entry, BwdPingpongSide, 2, type, hdim, score)
