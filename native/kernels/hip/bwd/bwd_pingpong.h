// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV without atomics, whose matrix cores hardly ever wait: eight waves in two groups of four, of
// which one is at its products while the other makes P and dS (hip/fwd/fwd_pingpong.h is the model).
//
// A workgroup owns 256 keys of a key head, for dK and dV, and walks over the rows of all query heads of its
// group; or it owns 256 rows of a query head, for dQ, and walks over the keys. Gradients never leave its
// registers before they are complete, so that they have the same bits in any order of workgroups. That takes
// seven products where five would do; but a float32 sum of dQ in memory costs more than the two
// (docs/kernels/bwd_pingpong.md). A launch has both kinds, keys first: the others fill their drain.
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

#include <hip/hip_runtime.h>

#include "args/bwd_pingpong.h"
#include "hip/bwd/bwd_fp32_problem.h"
#include "hip/common/pingpong_parts.h"
#if defined(__gfx950__)
#include "hip/bwd/bwd_pingpong_gfx950.h"
#else
#include "hip/bwd/bwd_pingpong_gfx942.h"
#endif
#include "hip/bwd/bwd_pingpong_rows.h"

namespace fmha {

// A score is scaled; and ALiBi is added to it, or it is capped.
enum class BwdScore { kPlain, kAlibi, kSoftcap };

// A workgroup's 256 keys (kKeys), or rows of queries.
template <typename T, int kHdim, BwdScore kScore, bool kKeys>
class BwdPingpongSide {
  static constexpr int kSums = kKeys ? 2 : 1;
  using Blocks = BwdBlocks<kHdim, kSums>;
  static constexpr int kSteps = kHdim / 16;  // of two products each, of S and dP
  static constexpr int kTiles = kHdim / 32;  // of a sum
  // Steps of a phase: pairs of operands, each read kAhead steps ahead. Sums come first.
  static constexpr int kPairs = kTiles, kPairsOfSums = kSums * kPairs;
  static constexpr int kAhead = Blocks::kAhead, kRing = kAhead + 1;
  static constexpr float kMostLse = 3e38F;
  // Loads of a wave that may be on their way at the end of a phase.
  static constexpr int kMayMiss = Blocks::kMayMiss + (kKeys ? BwdRowSums::kMayMiss : 0);

 public:
  static constexpr int kLdsBytes = Blocks::kBytes + (kKeys ? BwdRowSums::kBytes : 0);

  __device__ static void run(const BwdPingpongParams& params, const BwdSequence& sequence, int head,
                             int first, LdsByte* lds) {
    BwdPingpongSide d(params.problem, sequence, head, first, params.key_parts);
    d.begin(lds);
    if (d.blocks > 0) d.walk();
    d.end();
  }

 private:
  __device__ BwdPingpongSide(const BwdFp32Params& params, const BwdSequence& sequence, int head_, int first_,
                             int key_parts)
      : p(params), s_(sequence), head(head_), first(first_), parts(key_parts) {}

  // ---- The beginning.

  __device__ void begin(LdsByte* lds) {
    wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64);
    group = wave / (kBwdPingpongWaves / 2);
    lane = threadIdx.x % 64;
    own_count = kKeys ? s_.seqlen_k : s_.seqlen_q;
    tiles.begin(lds, wave, lane);
    if constexpr (kKeys) row_sums.begin(lds + Blocks::kBytes, wave, lane);
    find_scales();
    find_blocks();
    load_own();
    _Pragma("unroll") for (int i = 0; i < kSums; ++i) {
      _Pragma("unroll") for (int t = 0; t < kTiles; ++t) sums[i][t] = Float16{};
    }
  }

  // All lanes have the same scales: in a scalar register they take none of the others.
  __device__ void find_scales() {
    const auto same = [](float x) {
      return __builtin_bit_cast(float, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(int, x)));
    };
    constexpr bool kCapped = kScore == BwdScore::kSoftcap;
    scale = same(p.scale * (kCapped ? 2 * kLog2e / p.softcap : kLog2e));
    cap_log2 = same(p.softcap * kLog2e);
    lse_scale = same(kCapped ? kLog2e : 1 / p.scale);
  }

  // The walked rows that any own row sees; of blocks in `whole` each own row of the wave sees all.
  __device__ void find_blocks() {
    const int walked = kKeys ? s_.seqlen_q : s_.seqlen_k;
    const Window window = window_of<kKeys>(p, s_);
    const int last = min(first + kBwdPingpongTile, own_count) - 1;
    const RowRange seen = window.seen_by(first, last, walked);
    const int begin = seen.begin / 32 * 32;
    const int of_head = seen.begin < seen.end ? (seen.end - begin + 31) / 32 : 0;
    const int heads = kKeys ? p.nhead_ratio_qk / parts : 1;
    blocks = of_head * heads;
    const int wave_first = first + wave * 32;
    whole = {window.first(min(wave_first + 31, last)), min(window.last(wave_first) + 1, walked)};
    range = {begin, begin + of_head * 32};
    const int first_head = kKeys ? head * heads : head / p.nhead_ratio_qk;
    rows_walk = BlockWalk(matrix<!kKeys, false>(p, s_, first_head), matrix<!kKeys, true>(p, s_, first_head),
                          range, blocks);
    at = begin;
    walked_head = first_head;
    if (blocks > 0) find_slope(kKeys ? first_head : head);
    if constexpr (kKeys) {
      sums_walk = BlockWalk(row_vector(p.lse, p.lse_strides, s_, first_head),
                            row_vector(p.d, p.d_strides, s_, first_head), range, blocks);
    }
  }

  __device__ void load_own() {
    const int own_head = kKeys ? head / parts : head;
    own_a.load(matrix<kKeys, false>(p, s_, own_head), first, wave, lane);
    own_b.load(matrix<kKeys, true>(p, s_, own_head), first, wave, lane);
    if constexpr (!kKeys) {
      const float* lse = rows_of(p.lse, p.lse_strides, s_, s_.first_q, head);
      const float* d = rows_of(p.d, p.d_strides, s_, s_.first_q, head);
      const int row = min(first + wave * 32 + lane % 32, own_count - 1);
      own_lse = -lse_log2(lse[row]);
      own_d = -d[row];
    }
  }

  // ---- The main loop.

  __device__ void load_rows(int n) {
    const int count = rows_walk.count();
    const auto &a = rows_walk.a, &b = rows_walk.b;
    tiles.load(n, a.rows(count), b.rows(count), a.row_bytes, b.row_bytes, a.bytes, b.bytes);
    rows_walk.next();
  }
  __device__ void load_row_sums(int n) {
    if constexpr (kKeys) {
      const int count = sums_walk.count();
      row_sums.load(n, sums_walk.a.rows(count), sums_walk.b.rows(count));
      sums_walk.next();
    }
  }

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
    if constexpr (kScore == BwdScore::kSoftcap) cap();
    hide(at);
    make_weights(at);
    next_block(n);
    wait_for_lds();  // what was turned was stored long ago
    wait_for_loads<kMayMiss>();
    split_row_sums(n + 1);
  }

  // The block behind the n-th.
  __device__ void next_block(int n) {
    at += 32;
    if (at < range.end) return;
    at = range.begin;
    ++walked_head;
    if (kKeys && n + 1 < blocks) find_slope(walked_head);
  }

  __device__ void find_slope(int head_q) {
    if constexpr (kScore == BwdScore::kAlibi) {
      slope = p.alibi[int64_t{s_.index} * p.alibi_stride_batch + head_q] * -kLog2e;
    }
  }

  // S in units of log2, less LSE, and dP times the slope of the cap.
  __device__ void cap() {
    _Pragma("unroll") for (int i = 0; i < 16; ++i) {
      const float tanh = 1 - 2 * __builtin_amdgcn_rcpf(__builtin_amdgcn_exp2f(s[i] * scale) + 1);
      s[i] = kKeys ? tanh * cap_log2 : __builtin_fmaf(tanh, cap_log2, own_lse);
      dp[i] = (kKeys ? dp[i] : dp[i] + own_d) * (1 - tanh * tanh);
      if (i % 4 == 3) __builtin_amdgcn_sched_barrier(0);
    }
    if constexpr (kKeys) s = multiply32<Bf16>(lse_parts, kMinusThree, s);
  }

  // Hides what own rows do not see of the block.
  __device__ void hide(int block) {
    if (block >= whole.begin && block + 32 <= whole.end) return;
    const int lane_now = remade(lane), first_of_lane = block + lane_now / 32 * 8;
    const Window window = window_of<kKeys>(p, s_);
    const int row_of_lane = first + wave * 32 + lane_now % 32, walked = kKeys ? s_.seqlen_q : s_.seqlen_k;
    const int begin = window.first(row_of_lane) - first_of_lane;
    const int end = min(window.last(row_of_lane) + 1, walked) - first_of_lane;
    _Pragma("unroll") for (int i = 0; i < 16; ++i) {
      const int row = (i & 8) * 2 + (i & 7);
      s[i] = row < begin || row >= end ? -__builtin_inff() : s[i];
    }
  }

  // P in place of S, and dS in place of dP, four at a time: exponentials wait for nothing that was asked for
  // just before them.
  __device__ void make_weights(int block) {
    // The column of the lane's first walked row, as its own row sees it.
    float column = 0;
    if constexpr (kScore == BwdScore::kAlibi) {
      const int of_lane = remade(lane);
      column = static_cast<float>(block + of_lane / 32 * 8 - window_of<kKeys>(p, s_).shift -
                                  (first + wave * 32 + of_lane % 32));
    }
    _Pragma("unroll") for (int i = 0; i < 16 + 8; i += 4) {
      if (i >= 8) round_four(i - 8);
      _Pragma("unroll") for (int j = i - 4; j < i; ++j) {
        if (j < 0 || j >= 16) continue;
        s[j] = __builtin_amdgcn_exp2f(s[j]);
        if constexpr (!kKeys && kScore != BwdScore::kSoftcap) dp[j] += own_d;
      }
      _Pragma("unroll") for (int j = i; j < i + 4; ++j) {
        if (j >= 16) continue;
        if constexpr (kScore == BwdScore::kSoftcap) continue;
        s[j] = kKeys ? s[j] * scale : __builtin_fmaf(s[j], scale, own_lse);
        if constexpr (kScore == BwdScore::kAlibi) {
          s[j] = __builtin_fmaf(slope, __builtin_fabsf(column + ((j & 8) * 2 + (j & 7))), s[j]);
        }
      }
      __builtin_amdgcn_sched_barrier(0);
    }
  }
  __device__ void round_four(int i) {
    _Pragma("unroll") for (int j = i; j < i + 4; j += 2) {
      if constexpr (kKeys) probabilities[j / 8][j % 8 / 2] = rounded_pair<T>(s[j], s[j + 1]);
      ds[j / 8][j % 8 / 2] = rounded_pair<T>(s[j] * dp[j], s[j + 1] * dp[j + 1]);
    }
  }

  // Makes of LSE and D of block n what the products take.
  __device__ void split_row_sums(int n) {
    if constexpr (kKeys) {
      // A row whose LSE is infinite has P 0, as in load_own: parts of an infinite number would be NaNs.
      const float lse = row_sums.lse(n) * lse_scale;
      lse_parts = three_parts(__builtin_fabsf(lse) > kMostLse ? kMostLse : lse);
      d_parts = three_parts(row_sums.d(n));
      __builtin_amdgcn_sched_barrier(0);
    }
  }

  // ---- The end.

  __device__ void end() const {
    const BwdFp32Params& again = arguments();
    if constexpr (kKeys) {
      write(sums[0], again.scale, again.dk, again.dk_strides, s_.first_k, again.hdim_q);
      write(sums[1], 1, again.dv, again.dv_strides, s_.first_k, again.hdim_v);
    } else {
      write(sums[0], again.scale, again.dq, again.dq_strides, s_.first_q, again.hdim_q);
    }
  }

  __device__ void write(const Float16 (&sum)[kTiles], float factor, void* gradient, const BwdStrides& strides,
                        int64_t first_row, int hdim) const {
    const bool is_part = kKeys && parts > 1, adds = arguments().accumulate != 0 && !is_part;
    const auto to = [&]<typename E>(E* data) {
      const OwnGradient<E> rows(rows_of(data, strides, s_, first_row, head), strides.row, first, own_count,
                                hdim);
      _Pragma("unroll") for (int t = 0; t < kTiles; ++t) {
        rows.write(sum[t], factor, wave * 32 + lane % 32, t * 32 + lane / 32 * 8, adds);
      }
    };
    if (arguments().float_gradients || is_part) {
      to(typed<float>(gradient));
    } else {
      to(typed<T>(gradient));
    }
  }

  const BwdFp32Params& p;
  BwdSequence s_;
  int head, first;
  int parts;  // how many workgroups divide a key head's group; `head` counts them
  int wave, group, lane, own_count;
  int blocks, at;  // the first row of the block whose scores come next
  RowRange range, whole;
  Blocks tiles;
  BwdRowSums row_sums;
  BlockWalk rows_walk, sums_walk;
  OwnRows<kHdim> own_a, own_b;
  int walked_head;
  float slope;           // ALiBi's of the query head whose weights come next, negative
  float own_lse, own_d;  // of queries: negative
  float scale;           // takes S to units of log2; with a cap, to the argument of its exponential
  float cap_log2;        // the cap, in units of log2
  float lse_scale;       // takes LSE to units of S; with a cap, to units of log2
  Dwords2 lse_parts, d_parts;
  Float16 s, dp, sums[kSums][kTiles];
  Dwords4 probabilities[2], ds[2];
  Pair ring[kRing];
};

template <typename T, int kHdim, BwdScore kScore>
class BwdPingpong {
  using Keys = BwdPingpongSide<T, kHdim, kScore, true>;
  using Queries = BwdPingpongSide<T, kHdim, kScore, false>;
  static constexpr int kLdsBytes =
      Keys::kLdsBytes > Queries::kLdsBytes ? Keys::kLdsBytes : Queries::kLdsBytes;

 public:
  __device__ static void run() {
    __shared__ __attribute__((aligned(256))) uint8_t lds[kLdsBytes];
    auto* const memory = (LdsByte*)(lds);  // NOLINT: the only cast that changes address spaces
    const auto& p = *reinterpret_cast<const BwdPingpongParams*>(__builtin_amdgcn_kernarg_segment_ptr());
    const BwdPlace place(p);
    const BwdSequence sequence = uniform(sequence_of(p.problem, place.batch));
    const int z = static_cast<int>(blockIdx.z) - p.key_parts;
    if (z < 0) {
      const int first = place.tile * kBwdPingpongTile;
      if (first < sequence.seqlen_k)
        Keys::run(p, sequence, place.head_k * p.key_parts + blockIdx.z, first, memory);
    } else {
      const int head = place.head_k * p.problem.nhead_ratio_qk + z;
      // With a causal mask the last tile has most keys: it begins first.
      const int tile = (sequence.seqlen_q - 1) / kBwdPingpongTile - place.tile;
      if (tile >= 0 && sequence.seqlen_q > 0) {
        Queries::run(p, sequence, head, tile * kBwdPingpongTile, memory);
      }
    }
  }
};

}  // namespace fmha

// FMHA_BWD_PINGPONG_KERNEL(symbol, type, head dim, score): one kernel and its facts.
#define FMHA_BWD_PINGPONG_KERNEL(entry, type, hdim, score)                                                  \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                      \
  const fmha::BwdFp32Facts entry##_facts = {32,   fmha::kBwdPingpongTile,  hdim,                            \
                                            hdim, fmha::kBwdPingpongBlock, 1};                              \
  extern "C" __global__ __launch_bounds__(fmha::kBwdPingpongBlock, 2) void entry(fmha::BwdPingpongParams) { \
    fmha::BwdPingpong<fmha::type, hdim, fmha::BwdScore::score>::run();                                      \
  }
