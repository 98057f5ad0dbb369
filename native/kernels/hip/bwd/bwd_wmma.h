// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV for Radeon, by WMMA or what stands in for it (hip/common/wmma.h), of 16 bits. As of float32
// (hip/bwd/bwd_fp32_kernel.h) nothing is added up in memory, so that gradients have the same bits whatever
// the order of waves and workgroups: a tile of 64 keys walks over the queries of its group's heads, for dK
// and dV; a tile of 64 queries over the keys, for dQ. One launch has both kinds, keys first: they take
// longer.
//
// "a" is the pair Q and K, whose product is S; "b" is dO and V, whose product is dP. A wave has 16 of the 64
// rows of its own, and takes 32 walked rows at a time; of head dim 256 four waves share 16 of 32 rows, and
// each has 64 of the head dim. With tiles of kWalk walked rows:
//
//   phase       own rows                 walked rows             result              WMMA of 16 own, 32
//   barrier                              the tile is in LDS as rows
//   turned                               registers to LDS, turned
//   S, dP       LDS (d64: registers)     LDS, rows               8 elements a lane   kHdim / 4
//   sharing                                                   d256: S and dP of four waves, added up in LDS
//   P, dS                                early waves             in registers
//   barrier                              the tile is in LDS turned
//   P, dS                                late waves              in registers
//   dK, dV      P, dS                    LDS, turned             sums in registers   kHdim / 4
//   or dQ       dS                       LDS, turned             sums in registers   kHdim / 8
//
// The next tile is loaded and stored as rows when registers and LDS are free (kLoadsFirst). Early waves are
// half of a workgroup. A SIMD has one of each half, and one makes P and dS while the other multiplies. At
// head dim 64 two workgroups do that for each other: a tile comes to LDS at once, between two barriers.
//
// The own rows are columns of b's operand, so that a lane's elements of S are of one own row and eight walked
// ones, which is what the last products take of P and dS (operand_of). Own rows of head dim 128 stay in LDS:
// b's operands have every element twice but on gfx12, and 128 registers of K and V beside 128 of dK and dV
// are too many. A lane holds LSE and D of one walked row, or two, and DPP hands them to its sixteen
// (row_share). Sums of dP begin with -D, unless dropout hides some of dP first.
//
// Where nothing of another wave runs beside a product, an instruction between products waits for one, and so
// does the LDS read whose address it makes. So all addresses of a phase are made before its products
// (KeyPlaces).
//
//   kHdim   kWalk   LDS       workgroups a unit   registers: sums, own rows, S and dP, on their way
//   64      64      32 KiB    2                   64, 64 (gfx12: 32), 32, 32
//   128     32      64 KiB    1                   128, 0, 32, 32
//   256     32      64 KiB    1                   64, 64 (gfx12: 32), 32, 32
//
// The gradient of a bias (hip/bwd/bwd_wmma_bias.h) has workgroups of its own. On gfx11 and gfx12
// hip/bwd/bwd_wmma_roles.h does head dim 128 without features but masks.
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_wmma_parts.h"
#include "hip/bwd/bwd_wmma_roles.h"
#include "hip/bwd/bwd_wmma_scores.h"
#include "hip/common/wmma_tiles.h"

namespace fmha {

template <typename Main>
class BwdWmmaBias;

template <typename T, int kHdim, WmmaFeatures kFeatures>
class BwdWmma {
 public:
  using Type = T;
  static constexpr int kParts = kHdim > 128 ? 4 : 1;  // waves that share rows
  static constexpr int kWaves = kParts > 1 ? 8 : 4;
  static constexpr int kBlockSize = 32 * kWaves;
  static constexpr int kOwn = 16 * kWaves / kParts;
  static constexpr int kWalk = kParts > 1 ? 32 : 4096 / kHdim;  // a tile of 8 KB, or 16
  static constexpr int kBlocksPerCu = kHdim > 64 ? 1 : 2;

  __device__ static void run() {
    __shared__ __attribute__((aligned(128))) uint8_t lds[kLdsBytes];
    const BwdFp32Params& p = arguments();
    const int head = blockIdx.y, x = grid_tile(p.turned), after_keys = x - p.key_tiles;
    auto* const memory = (LdsByte*)(lds);  // NOLINT: the only cast that changes address spaces
    if constexpr (kFeatures.dbias) {
      if (after_keys >= p.query_tiles) return Bias::tile(after_keys - p.query_tiles, memory);
    }
    const BwdSequence sequence = uniform(sequence_of(p, grid_batch(p.turned)));
    if (after_keys >= 0) {
      if (after_keys * kOwn < sequence.seqlen_q) {
        Side<false>(sequence, head, after_keys * kOwn, memory).work();
      }
    } else if (head * p.nhead_ratio_qk < p.nhead_q && x * kOwn < sequence.seqlen_k) {
      Side<true>(sequence, head, x * kOwn, memory).work();
    }
  }

 private:
  static constexpr int kGroup = 16;             // rows of a wave, and of a product
  static constexpr int kPair = 2;               // products that share an operand of own rows
  static constexpr int kDims = kHdim / kParts;  // of a wave
  static constexpr int kSteps = kDims / 16;
  static constexpr int kRegisters = kWalk / 32;  // of a walked row's number
  static constexpr bool kOwnInLds = kDims > 64;
  static constexpr bool kDInSums = kParts == 1 && !kFeatures.dropout;  // products that make dP begin with -D
  static constexpr bool kPlain = !kFeatures.shapes() && !kFeatures.dropout && !kFeatures.dbias;
  static constexpr WmmaAhead kAheads = wmma_ahead(kOwnInLds, kPlain);
  // A tile is stored in two parts, each behind a barrier that is there anyway. Else all of it is between two.
  static constexpr bool kApart = kWalk == kPair * kGroup;
  static constexpr bool kLoadsFirst = kAheads.loads_first;
  // Sums of dK and dV take turns; else first comes one, then the other, whose weights take fewer registers.
  static constexpr bool kTakeTurns = kOwnInLds || !kWholeB;
  using WalkTile = WmmaTile<kWalk, kHdim>;
  using TurnedTile = WmmaTile<kHdim, kWalk>;
  using OwnTile = WmmaTile<kOwn, kHdim>;
  static constexpr int kWalkBytes = WalkTile::kBytes;
  static constexpr int kOwnBytes = kOwnInLds ? OwnTile::kBytes : 0;
  // The bytes of a wave's S and dP, which it tells the waves of its rows in place of a and b.
  static constexpr int kToldBytes = 4 * kPair * 512;
  static constexpr int kLdsBytes = 4 * kWalkBytes + 2 * kOwnBytes;
  static_assert(kLdsBytes <= 65536 && (kParts == 1 || (4 * kToldBytes == kWalkBytes && kWalk == 2 * kGroup)));

  using Own = WmmaOwn<kOwn, kHdim, kParts, kOwnInLds, kBlockSize>;
  using Walk = WmmaWalk<kWalk>;
  using Bias = BwdWmmaBias<BwdWmma>;
  friend Bias;

  // Sums for a wave's own rows, turned: element i of tile t is of its dim 16 * t + 8 * (lane / 16) + i.
  struct Sums {
    Float8 x[kSteps];

    __device__ void clear() { _Pragma("unroll") for (int t = 0; t < kSteps; ++t) x[t] = Float8{}; }
  };

  // A workgroup's tile of keys, or of queries.
  template <bool kKeys>
  class Side {
   public:
    __device__ Side(const BwdSequence& sequence, int head, int first, LdsByte* lds)
        : s_(sequence), lds_(lds), head_(head), first_(first) {}

    __device__ void work() {
      begin();
      Walk walk = Walk::template of<kKeys>(seen_.all, head_);
      if (walk.more()) load(walk);
      if (kApart && walk.more()) store_rows();
      while (walk.more()) {
        lds_barrier();
        if constexpr (!kApart) {
          store_rows();
          store_turned();
        }
        const float lse[2] = {lse_[0], lse_[kRegisters - 1]}, d[2] = {d_[0], d_[kRegisters - 1]};
        if constexpr (!kApart) lds_barrier();
        const Walk after = walk.next();
        tile(walk, after, lse, d);
        if (kApart && !kLoadsFirst && after.more()) store_rows();
        walk = after;
      }
      write_all();
    }

   private:
    friend Bias;

    __device__ void store_rows() const {
      a_.store_rows(lds_);
      b_.store_rows(lds_ + 2 * kWalkBytes);
    }

    __device__ void store_turned() const {
      a_.store_turned(lds_ + kWalkBytes);
      if constexpr (kKeys) b_.store_turned(lds_ + 3 * kWalkBytes);
    }

    // ---- The beginning.

    __device__ void begin() {
      const BwdFp32Params& p = arguments();
      lane_ = static_cast<int>(threadIdx.x % 32);
      const int wave = __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / 32);
      wave_ = wave;
      part_ = wave % kParts;
      wave_first_ = first_ + wave / kParts * kGroup;
      row_ = wave_first_ + (lane_ & 15);
      own_rows_ = kKeys ? s_.seqlen_k : s_.seqlen_q;
      walked_rows_ = kKeys ? s_.seqlen_q : s_.seqlen_k;
      seen_.begin<kOwn, kGroup>(window_of<kKeys>(p, s_), first_, wave_first_, row_, own_rows_, walked_rows_);
      own_begin_ = OwnTile::begin_b(wave / kParts * kGroup, lane_);
      walk_begin_ = WalkTile::begin_a(lane_) + part_ * kDims * 2;
      turned_begin_ = TurnedTile::begin_a(lane_) + TurnedTile::line(part_ * kDims);
      const int wave_row = wave / kParts * kGroup;
      own_a_.load(rows_a<T, kKeys>(p, s_, head_), p.hdim_q, first_, wave_row, lane_, lds_ + 4 * kWalkBytes);
      own_b_.load(rows_b<T, kKeys>(p, s_, head_), p.hdim_v, first_, wave_row, lane_,
                  lds_ + 4 * kWalkBytes + kOwnBytes);
      a_.begin(rows_a<T, !kKeys>(p, s_, head_).row_bytes, p.hdim_q);
      b_.begin(rows_b<T, !kKeys>(p, s_, head_).row_bytes, p.hdim_v);
      if constexpr (!kKeys) {
        own_lse_ = own_d_ = 0;
        if (row_ < own_rows_) {
          own_lse_ = lse_log2(rows_of(p.lse, p.lse_strides, s_, s_.first_q, head_)[row_]);
          own_d_ = rows_of(p.d, p.d_strides, s_, s_.first_q, head_)[row_];
        }
      }
      __builtin_amdgcn_sched_barrier(0);
      one_ = unknown_one();
      scale_log2e_ = p.scale * kLog2e;
      _Pragma("unroll") for (int i = 0; i < kRegisters; ++i) lse_[i] = d_[i] = 0;
      from_head_ = -1;
      sums_a_.clear();
      if constexpr (kKeys) sums_b_.clear();
    }

    // ---- The walk.

    __device__ void load(const Walk& walk) {
      if (walk.head != from_head_) begin_head(walk.head);
      a_.load(from_a_.from(walk.at, kWalk));
      b_.load(from_b_.from(walk.at, kWalk));
      if constexpr (kKeys) {
        const int rows = min(walked_rows_ - walk.at, kWalk);
        const Resource lse = floats(from_lse_ + walk.at, rows), d = floats(from_d_ + walk.at, rows);
        const int own = held_row(remade(lane_)) * 4;
        _Pragma("unroll") for (int i = 0; i < kRegisters; ++i) {
          lse_[i] = load_float(lse, own + i * 128);
          d_[i] = load_float(d, own + i * 128);
        }
      }
    }
    // Its rows, of which the tiles to come are loaded: to find them anew takes 200 scalar instructions.
    __device__ void begin_head(int head) {
      const BwdFp32Params& p = arguments();
      from_head_ = head;
      from_a_ = rows_a<T, !kKeys>(p, s_, head);
      from_b_ = rows_b<T, !kKeys>(p, s_, head);
      if constexpr (kKeys) {
        from_lse_ = rows_of(p.lse, p.lse_strides, s_, s_.first_q, head);
        from_d_ = rows_of(p.d, p.d_strides, s_, s_.first_q, head);
      }
    }

    // P and dS of two products, as operands' own halves.
    struct Weights {
      Dwords4 p[kPair], ds[kPair];
    };

    __device__ void tile(const Walk& walk, const Walk& after, const float (&lse)[2], const float (&d)[2]) {
      if constexpr (kApart) return tile_apart(walk, after, lse[0], d[0]);
      if constexpr (kLoadsFirst) load_next(after);
      _Pragma("unroll") for (int first = 0; first < kWalk; first += kPair * kGroup) {
        const int at = walk.at + first;
        const bool seen = sees(at);
        Weights weights;
        Float8 s[kPair], dp[kPair];
        if (seen) {
          scores(first / kGroup, d[first / 32], s, dp);
          weigh_and_round(walk.head, at, lse[first / 32], d[first / 32], s, dp, weights);
        }
        if (!kLoadsFirst && first == 0) load_next(after);
        if (seen) add(first / kGroup, weights);
      }
    }
    __device__ bool sees(int at) const { return seen_.any(at, kPair * kGroup); }

    __device__ void tile_apart(const Walk& walk, const Walk& after, float lse, float d) {
      const bool seen = sees(walk.at), early = wave_ < kWaves / 2;
      Weights weights;
      Float8 s[kPair], dp[kPair];
      store_turned();
      if constexpr (kLoadsFirst) load_next(after);
      if (seen) scores(0, d, s, dp);
      share(seen, s, dp);
      if (seen && early) weigh_and_round(walk.head, walk.at, lse, d, s, dp, weights);
      lds_barrier();
      if constexpr (!kLoadsFirst) {
        load_next(after);
      } else if (after.more()) {
        store_rows();
      }
      if (seen && !early) weigh_and_round(walk.head, walk.at, lse, d, s, dp, weights);
      if (seen) add(0, weights);
    }
    __device__ void weigh_and_round(int head, int at, float lse, float d, Float8 (&s)[kPair],
                                    Float8 (&dp)[kPair], Weights& weights) const {
      weigh(head, at, lse, d, s, dp);
      round(s, dp, weights);
    }
    __device__ void load_next(const Walk& walk) {
      if (walk.more()) return load(walk);
      a_.forget();
      b_.forget();
    }

    // Products of walked rows from 16 * tile on and the wave's own: element i of lane l is that of walked row
    // 8 * (l / 16) + i and own row l % 16. Step by step of 16 dims come two products of a, then two of b,
    // each pair with the same own rows. Operands are read kAhead products before they are multiplied.
    __device__ void scores(int tile, float d, Float8 (&s)[kPair], Float8 (&dp)[kPair]) const {
      constexpr int kProducts = 2 * kPair * kSteps, kAhead = kAheads.scores, kOwnAhead = kAheads.own;
      OperandB own[kOwnAhead + 1];
      OperandA walked[kAhead + 1];
      const AllPlaces places(walk_begin_);
      const typename Own::Places own_places(own_begin_);
      const auto read_own = [&](int i) {  // of products from kPair * i on
        const int step = i / 2;
        own[i % (kOwnAhead + 1)] = (i % 2 == 0 ? own_a_ : own_b_).at(own_places, step);
      };
      const auto read_walked = [&](int i) {
        const int step = i / (2 * kPair);
        walked[i % (kAhead + 1)] = WalkTile::template read_at<OperandA>(
            lds_ + (i / kPair % 2 == 0 ? 0 : 2 * kWalkBytes), places, tile + i % kPair, step);
      };
      _Pragma("unroll") for (int i = 0; i < kOwnAhead; ++i) read_own(i);
      _Pragma("unroll") for (int i = 0; i < kAhead; ++i) read_walked(i);
      begin_scores(d, s, dp);
      __builtin_amdgcn_sched_barrier(0);
      _Pragma("unroll") for (int i = 0; i < kProducts; ++i) {
        if (i + kAhead < kProducts) read_walked(i + kAhead);
        if (i % kPair == 0 && i / kPair + kOwnAhead < kProducts / kPair) read_own(i / kPair + kOwnAhead);
        __builtin_amdgcn_sched_barrier(0);
        Float8& sum = i / kPair % 2 == 0 ? s[i % kPair] : dp[i % kPair];
        sum = multiply16<T>(walked[i % (kAhead + 1)], own[i / kPair % (kOwnAhead + 1)], sum);
        __builtin_amdgcn_sched_barrier(0);
      }
    }
    __device__ void begin_scores(float d, Float8 (&s)[kPair], Float8 (&dp)[kPair]) const {
      const float minus_d = kDInSums ? -(kKeys ? d : own_d_) : 0;
      unrolled<8 * kPair>([&]<int i>() {
        s[i / 8][i % 8] = 0;
        dp[i / 8][i % 8] = kKeys && kDInSums ? row_share<i>(minus_d) : minus_d;
      });
    }

    // Adds up what waves of the same rows have of S and dP, all in the same order.
    __device__ void share(bool seen, Float8 (&s)[kPair], Float8 (&dp)[kPair]) const {
      if constexpr (kParts > 1) {
        lds_barrier();  // a and b have been read
        if (seen) {
          _Pragma("unroll") for (int i = 0; i < 4 * kPair; ++i) {
            const Float8& x = i < 2 * kPair ? s[i / 2] : dp[i / 2 - kPair];
            lds_store(told(wave_, i), i % 2 == 0 ? __builtin_shufflevector(x, x, 0, 1, 2, 3)
                                                 : __builtin_shufflevector(x, x, 4, 5, 6, 7));
          }
        }
        lds_barrier();
        if (!seen) return;
        _Pragma("unroll") for (int i = 0; i < 4 * kPair; ++i) {
          Float8& x = i < 2 * kPair ? s[i / 2] : dp[i / 2 - kPair];
          const auto next = lds_load<Float4>(told(wave_ ^ 1, i)), far = lds_load<Float4>(told(wave_ ^ 2, i)),
                     last = lds_load<Float4>(told(wave_ ^ 3, i));
          _Pragma("unroll") for (int j = 0; j < 4; ++j) x[i % 2 * 4 + j] += next[j];
          _Pragma("unroll") for (int j = 0; j < 4; ++j) x[i % 2 * 4 + j] += far[j] + last[j];
        }
      }
    }
    __device__ LdsByte* told(int wave, int i) const {
      return lds_ + wave / 4 * 2 * kWalkBytes + wave % 4 * kToldBytes + i * 512 + remade(lane_) * 16;
    }

    // In place of S and dP, P and dS; `at` is the first of the walked rows, whose LSE and D the lanes have as
    // lse_ says.
    __device__ void weigh(int head, int at, float lse, float d, Float8 (&s)[kPair],
                          Float8 (&dp)[kPair]) const {
      const int eight = remade(lane_) / 16 * 8;
      const float walked_lse = kKeys ? lse_log2(lse) : 0;
      const BwdScores<T, kFeatures, kKeys> scores(s_, kKeys ? head : head_, lane_, kKeys ? at : first_);
      [[maybe_unused]] uint32_t kept = 0;
      unrolled<8 * kPair>([&]<int n>() {
        constexpr int j = n / 8, i = n % 8;
        if constexpr (kFeatures.dropout && i == 0) {
          kept = scores.kept(at + j * kGroup, eight, wave_first_, row_);
          __builtin_amdgcn_sched_barrier(0);
        }
        float slope = 1;
        const float x = scores.exponent(s[j][i], at + j * kGroup + eight + i, row_, scale_log2e_, slope) -
                        (kKeys ? row_share<n>(walked_lse) : own_lse_);
        s[j][i] = __builtin_amdgcn_exp2f(x);
        float dot = dp[j][i];
        if constexpr (kFeatures.dropout) dot = if_bit(kept, i, dot);
        if constexpr (!kDInSums) dot -= kKeys ? row_share<n>(d) : own_d_;
        dp[j][i] = s[j][i] * dot * slope;
        if constexpr (kFeatures.dropout) s[j][i] = if_bit(kept, i, s[j][i]);
        if constexpr (i == 7) __builtin_amdgcn_sched_barrier(0);
      });
      if (seen_.hides(at, kPair * kGroup)) hide(seen_.shown, at + eight, s, dp);
    }

    __device__ void round(const Float8 (&s)[kPair], const Float8 (&dp)[kPair], Weights& weights) const {
      _Pragma("unroll") for (int j = 0; j < kPair; ++j) {
        _Pragma("unroll") for (int i = 0; i < 4; ++i) {
          if constexpr (kKeys) weights.p[j][i] = rounded_pair<T>(s[j][2 * i], s[j][2 * i + 1], one_);
          weights.ds[j][i] = rounded_pair<T>(dp[j][2 * i], dp[j][2 * i + 1], one_);
        }
      }
    }

    // sums += walked rows^T weights, of rows from 16 * tile on.
    __device__ void add(int tile, const Weights& weights) {
      constexpr int kSums = kKeys ? 2 : 1, kOfPair = kSteps * kSums, kProducts = kPair * kOfPair;
      constexpr int kAhead = kAheads.sums, kTurns = kTakeTurns ? kSums : 1;
      const auto sum_of = [](int i) { return kTakeTurns ? i % kSums : i / kSteps % kSums; };
      OperandA turned[kAhead + 1];
      OperandB b[kTurns];
      const AllPlaces places(turned_begin_);
      const auto read = [&](int i) {
        const int rows = tile + i / kOfPair, t = i / kTurns % kSteps;
        turned[i % (kAhead + 1)] = TurnedTile::template read_at<OperandA>(
            lds_ + (sum_of(i) == 0 ? kWalkBytes : 3 * kWalkBytes), places, t, rows);
      };
      _Pragma("unroll") for (int i = 0; i < kAhead; ++i) read(i);
      _Pragma("unroll") for (int i = 0; i < kProducts; ++i) {
        if (i % (kTurns * kSteps) == 0) {
          _Pragma("unroll") for (int j = 0; j < kTurns; ++j) {
            const Dwords4& own = (sum_of(i) + j == 0 ? weights.ds : weights.p)[i / kOfPair];
            b[j] = operand_of(own, lane_ >= 16);
          }
        }
        if (i + kAhead < kProducts) read(i + kAhead);
        __builtin_amdgcn_sched_barrier(0);
        Float8& sum = (sum_of(i) == 0 ? sums_a_ : sums_b_).x[i / kTurns % kSteps];
        sum = multiply16<T>(turned[i % (kAhead + 1)], b[i % kTurns], sum);
        __builtin_amdgcn_sched_barrier(0);
      }
    }

    // ---- The end.

    __device__ void write_all() const {
      const BwdFp32Params& p = arguments();
      const float factor = p.scale * p.rp_keep;
      if constexpr (kKeys) {
        write(sums_a_, factor, p.dk, p.dk_strides, s_.first_k, p.hdim_q);
        write(sums_b_, p.rp_keep, p.dv, p.dv_strides, s_.first_k, p.hdim_v);
      } else {
        write(sums_a_, factor, p.dq, p.dq_strides, s_.first_q, p.hdim_q);
      }
    }

    __device__ void write(const Sums& sums, float factor, void* gradient, const BwdStrides& strides,
                          int64_t first, int hdim) const {
      const WmmaOwnRows own = {s_, head_, first_, min(own_rows_ - first_, kOwn)};
      write_gradient<T>(sums.x, factor, gradient, strides, first, own, row_ - first_,
                        part_ * kDims + lane_ / 16 * 8, hdim);
    }

    BwdSequence s_;
    LdsByte* lds_;  // a, a turned, b, b turned; own a, own b
    int head_, first_;
    int lane_, wave_, part_, wave_first_, row_;
    int own_rows_, walked_rows_;
    WmmaSeen seen_;
    int own_begin_, walk_begin_, turned_begin_;
    Own own_a_, own_b_;
    TurningMover<kWalk, kHdim, kBlockSize> a_, b_;
    float own_lse_, own_d_;  // of queries
    // Lane l holds LSE and D of the next tile's row 32 * i + 16 * (l % 16 / 8) + 8 * (l / 16) + l % 8: lane n
    // of each sixteen has those of the half's element n of two products (row_share).
    float lse_[kRegisters], d_[kRegisters];
    int from_head_;  // rows of it are loaded
    WmmaRows from_a_, from_b_;
    const float *from_lse_, *from_d_;
    float one_, scale_log2e_;
    Sums sums_a_, sums_b_;
  };
};

// Two waves for 16 rows (hip/bwd/bwd_wmma_roles.h): of plain problems and masks.
template <int kHdim, WmmaFeatures kFeatures>
constexpr bool has_roles() {
#if defined(__GFX10__)
  return false;
#else
  return kHdim == 128 && !kFeatures.shapes() && !kFeatures.dropout && !kFeatures.dbias;
#endif
}
template <typename T, int kHdim, WmmaFeatures kFeatures>
using BwdWmmaOf = std::conditional_t<has_roles<kHdim, kFeatures>(), BwdWmmaRoles<T, kHdim, kFeatures>,
                                     BwdWmma<T, kHdim, kFeatures>>;

}  // namespace fmha

#include "hip/bwd/bwd_wmma_bias.h"

// FMHA_BWD_WMMA_KERNEL(symbol, type, head dim, mask, bias, softcap, dropout, dbias): one kernel and its
// facts.
#define FMHA_BWD_WMMA_KERNEL(entry, type, hdim, ...)                                                        \
  using entry##_instance = fmha::BwdWmmaOf<fmha::type, hdim, fmha::WmmaFeatures{__VA_ARGS__}>;              \
  extern "C" __device__ __attribute__((used, visibility("protected")))                                      \
  const fmha::BwdFp32Facts entry##_facts = {                                                                \
      entry##_instance::kWalk,      entry##_instance::kOwn,        hdim, hdim,                              \
      entry##_instance::kBlockSize, entry##_instance::kBlocksPerCu};                                        \
  extern "C" __global__ __launch_bounds__(entry##_instance::kBlockSize,                                     \
                                          entry##_instance::kBlocksPerCu) void entry(fmha::BwdFp32Params) { \
    entry##_instance::run();                                                                                \
  }
