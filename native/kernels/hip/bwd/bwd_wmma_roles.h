// SPDX-License-Identifier: MIT OR Apache-2.0
// dQ, dK and dV for Radeon at head dim 128, as hip/bwd/bwd_wmma.h makes them, with two waves for 16 rows of a
// workgroup's 64: one makes S and P, its peer dP and dS. So a wave keeps its own rows in registers, and a
// SIMD has four waves in place of two: while one waits, three others multiply.
//
// "a" is the pair Q and K, "b" dO and V. With tile n of 32 walked rows:
//
//   phase       waves of P                          waves of dP
//   barrier                 tile n is in LDS as rows, tile n - 1 turned
//   turned n    a, from registers to LDS            b
//   products    S of n                              dP of n
//               P of n, to the peer by LDS
//   barrier
//   rows n + 1  a, from registers to LDS            b
//                                                   dS of n, of the peer's P
//   products    dV of n - 1                         dK of n - 1
//
// The last products are a tile behind. So they wait neither for P and dS nor for the turned tile: their first
// operands are read in front of the barrier. Turned tiles have two places, which take turns.
//
// Queries have but dQ. Its peers take 16 walked rows each, exchange the other half of S and dP, and at the
// end add up half of the dims each.
//
//   LDS         rows of a, b      16 KiB      what peers tell each other       8 KiB
//               turned, twice     32 KiB      P and dS of 16 bits (gfx11)      8 KiB
//   registers   own rows          64 (gfx12: 32)    sums    64    S or dP    16    on their way    16
#pragma once

#include "common/device.h"
#include "hip/bwd/bwd_wmma_parts.h"
#include "hip/bwd/bwd_wmma_scores.h"
#include "hip/common/wmma_tiles.h"

namespace fmha {

template <typename T, int kHdim, WmmaFeatures kFeatures>
class BwdWmmaRoles {
 public:
  using Type = T;
  static constexpr int kWaves = 8;
  static constexpr int kBlockSize = 32 * kWaves;
  static constexpr int kOwn = 64;
  static constexpr int kWalk = 32;
  static constexpr int kBlocksPerCu = 1;

  __device__ static void run() {
    __shared__ __attribute__((aligned(128))) uint8_t lds[kLdsBytes];
    const BwdFp32Params& p = arguments();
    const int head = blockIdx.y, x = grid_tile(p.turned), after_keys = x - p.key_tiles;
    auto* const memory = (LdsByte*)(lds);  // NOLINT: the only cast that changes address spaces
    const BwdSequence sequence = uniform(sequence_of(p, grid_batch(p.turned)));
    const bool makes_p = __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / 32) < kWaves / 2;
    if (after_keys >= 0) {
      if (after_keys * kOwn >= sequence.seqlen_q) return;
      if (makes_p) {
        Side<false, true>(sequence, head, after_keys * kOwn, memory).work();
      } else {
        Side<false, false>(sequence, head, after_keys * kOwn, memory).work();
      }
    } else if (head * p.nhead_ratio_qk < p.nhead_q && x * kOwn < sequence.seqlen_k) {
      if (makes_p) {
        Side<true, true>(sequence, head, x * kOwn, memory).work();
      } else {
        Side<true, false>(sequence, head, x * kOwn, memory).work();
      }
    }
  }

 private:
  static constexpr int kGroup = 16;  // rows of a wave, and of a product
  static constexpr int kPair = 2;    // products that share an operand of own rows
  static constexpr int kSteps = kHdim / 16;
  // How many products ahead their operands are read: where others wait at a barrier, one wave multiplies.
#if defined(__GFX12__)
  static constexpr int kAhead = 5;
#else
  static constexpr int kAhead = 3;
#endif
  using WalkTile = WmmaTile<kWalk, kHdim>;
  using TurnedTile = WmmaTile<kHdim, kWalk>;
  static constexpr int kWalkBytes = WalkTile::kBytes;
  static constexpr int kToldBytes = 2048;  // of two waves
  // gfx11's operands have each of P and dS twice: LDS gives them so.
  static constexpr bool kWeightsInLds = kWholeB;
  static constexpr int kWeightBytes = kWeightsInLds ? 1024 : 0;  // of a wave
  // LDS: rows of a, of b; a turned, b turned, of this tile or the next; what peers tell; weights.
  static constexpr int kTold = 6 * kWalkBytes, kWeightsAt = kTold + kWaves / 2 * kToldBytes;
  static constexpr int kLdsBytes = kWeightsAt + kWaves * kWeightBytes;
  static_assert(kLdsBytes <= 65536);

  using OwnTile = WmmaTile<kOwn, kHdim>;
  using OwnMover = RowMover<kOwn, kHdim, kBlockSize / 2>;
  using Walk = WmmaWalk<kWalk>;
  using Mover = TurningMover<kWalk, kHdim, kBlockSize / 2>;

  // A wave's part of a workgroup's tile of keys, or of queries: its P, or its dP.
  template <bool kKeys, bool kP>
  class Side {
   public:
    __device__ Side(const BwdSequence& sequence, int head, int first, LdsByte* lds)
        : s_(sequence), lds_(lds), head_(head), first_(first) {}

    __device__ void work() {
      begin();
      Walk walk = Walk::template of<kKeys>(seen_.all, head_);
      if (walk.more()) begin_rows(walk);
      // Products of P and dS are of the tile before.
      bool before = false;
      while (walk.more()) {
        before = tile<0>(walk, before);
        if (!walk.more()) break;
        before = tile<1>(walk, before);
      }
      if (before) add_last();
      if constexpr (!kKeys) add_peers();
      write_all();
    }

   private:
    static constexpr bool kTurns = kKeys || kP;         // the products of dK, dV or dQ ask for its rows
    static constexpr int kWeights = kKeys ? kPair : 1;  // products of 16 walked rows

    __device__ LdsByte* rows() const { return lds_ + (kP ? 0 : kWalkBytes); }
    // Tiles take turns.
    __device__ LdsByte* turned(int turn) const { return lds_ + (2 + 2 * turn + (kP ? 0 : 1)) * kWalkBytes; }
    // The tile that the wave multiplies by P or dS: dO of dV, Q of dK; K of dQ.
    __device__ const LdsByte* multiplied(int turn) const {
      return lds_ + (2 + 2 * turn + (kKeys && kP ? 1 : 0)) * kWalkBytes;
    }
    // A lane's four floats that peers tell each other; its eight weights, and the operand's eight.
    __device__ LdsByte* told(int i) const { return lds_ + told_ + i * 512; }
    __device__ LdsByte* weights(int j) const { return lds_ + to_weights_ + j * 512; }
    __device__ const LdsByte* weights(int j, int eight) const {
      return lds_ + from_weights_ + j * 512 + eight * 256;
    }

    // ---- The beginning.

    __device__ void begin() {
      const BwdFp32Params& p = arguments();
      lane_ = static_cast<int>(threadIdx.x % 32);
      group_ = __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / 32) % (kWaves / 2);
      wave_first_ = first_ + group_ * kGroup;
      row_ = wave_first_ + (lane_ & 15);
      own_rows_ = kKeys ? s_.seqlen_k : s_.seqlen_q;
      walked_rows_ = kKeys ? s_.seqlen_q : s_.seqlen_k;
      seen_.begin<kOwn, kGroup>(window_of<kKeys>(p, s_), first_, wave_first_, row_, own_rows_, walked_rows_);
      walk_places_ = AllPlaces(WalkTile::begin_a(lane_));
      turned_places_ = AllPlaces(TurnedTile::begin_a(lane_));
      told_ = kTold + group_ * kToldBytes + lane_ * 16;
      to_weights_ = kWeightsAt + (group_ + (kP ? 0 : kWaves / 2)) * kWeightBytes + lane_ * 16;
      from_weights_ = to_weights_ - lane_ / 16 * 256;
      const auto walked = kP ? rows_a<T, !kKeys>(p, s_, head_) : rows_b<T, !kKeys>(p, s_, head_);
      mover_.begin(walked.row_bytes, kP ? p.hdim_q : p.hdim_v);
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
      of_rows_ = 0;
      from_head_ = -1;
      _Pragma("unroll") for (Float8& x : sums_) x = Float8{};
    }

    // The wave's own rows, by LDS, where turned tiles will be: there each byte is loaded once, by whole
    // lines.
    __device__ void begin_rows(const Walk& walk) {
      const BwdFp32Params& p = arguments();
      LdsByte* const tile = lds_ + 2 * kWalkBytes + (kP ? 0 : OwnTile::kBytes);
      const auto own = kP ? rows_a<T, kKeys>(p, s_, head_) : rows_b<T, kKeys>(p, s_, head_);
      OwnMover mover;
      mover.begin(own.row_bytes, kP ? p.hdim_q : p.hdim_v);
      mover.load(own.from(first_, kOwn));
      load(walk);
      mover.store(tile);
      mover_.store_rows(rows());
      lds_barrier();
      const int begin = OwnTile::begin_b(group_ * kGroup, lane_);
      _Pragma("unroll") for (int i = 0; i < kSteps; ++i) own_[i] = OwnTile::read_b(tile, begin, 0, i);
    }

    // ---- The walk.

    __device__ void load(const Walk& walk) {
      if (walk.head != from_head_) begin_head(walk.head);
      mover_.load(from_.from(walk.at, kWalk));
      if constexpr (kKeys) {
        const Resource of_rows = floats(from_rows_ + walk.at, min(walked_rows_ - walk.at, kWalk));
        const int own = held_row(remade(lane_)) * 4;
        of_rows_ = load_float(of_rows, own);
      }
    }
    // Its rows, of which the tiles to come are loaded: to find them anew takes 200 scalar instructions.
    __device__ void begin_head(int head) {
      const BwdFp32Params& p = arguments();
      from_head_ = head;
      from_ = kP ? rows_a<T, !kKeys>(p, s_, head) : rows_b<T, !kKeys>(p, s_, head);
      if constexpr (kKeys) {
        from_rows_ = kP ? rows_of(p.lse, p.lse_strides, s_, s_.first_q, head)
                        : rows_of(p.d, p.d_strides, s_, s_.first_q, head);
      }
    }
    __device__ void load_next(const Walk& walk) {
      if (walk.more()) return load(walk);
      mover_.forget();
    }

    // Says whether the wave sees any of the tile; `before`: of the one before.
    template <int kTurn>
    __device__ bool tile(Walk& walk, bool before) {
      const Walk after = walk.next();
      const bool seen = seen_.any(walk.at, kWalk), hides = seen_.hides(walk.at, kWalk);
      const int shown = walk.at + remade(lane_) / 16 * 8;
      const float of_rows = of_rows_;
      Float8 x[kPair];
      OperandB b[kWeights];
      OperandA ring[kAhead + 1];
      lds_barrier();
      if constexpr (kTurns) mover_.store_turned(turned(kTurn));
      load_next(after);
      if (seen) scores(of_rows, x, ring);
      if ((!kKeys || kP) && before) begin_add(1 - kTurn, b, ring);
      if (seen) {
        if constexpr (!kKeys) {
          tell_half(x[kP ? 1 : 0]);
          if constexpr (kP) x[0] = query_p(x[0]);
        } else if constexpr (kP) {
          make_p(of_rows, x);
          if (hides) hide(seen_.shown, shown, x);
          _Pragma("unroll") for (int i = 0; i < 4; ++i) lds_store(told(i), quarter(x[i / 2], i % 2));
          round(x);
        }
      }
      lds_barrier();
      if (after.more()) mover_.store_rows(rows());
      if constexpr (kKeys && !kP) {
        if (seen) {
          Float4 p[4];
          _Pragma("unroll") for (int i = 0; i < 4; ++i) p[i] = lds_load<Float4>(told(i));
          __builtin_amdgcn_sched_barrier(0);
          _Pragma("unroll") for (int i = 0; i < 4; ++i) {
            _Pragma("unroll") for (int j = 0; j < 4; ++j) x[i / 2][i % 2 * 4 + j] *= p[i][j];
          }
          if (hides) hide(seen_.shown, shown, x);
        }
        __builtin_amdgcn_sched_barrier(0);
        if (before) begin_add(1 - kTurn, b, ring);
        if (seen) round(x);
      }
      Float8 peers;
      if constexpr (!kKeys) {
        if (seen) peers = ask_half();
        __builtin_amdgcn_sched_barrier(0);
      }
      if (before) add(1 - kTurn, b, ring);
      if constexpr (!kKeys) {
        if (seen) {
          Float8 ds[1] = {kP ? x[0] * peers : query_p(peers) * x[1]};
          if (hides) hide(seen_.shown, shown + (kP ? 0 : kGroup), ds);
          round(ds);
        }
      }
      turn_ = kTurn;
      walk = after;
      return seen;
    }
    __device__ void add_last() {
      OperandB b[kWeights];
      OperandA ring[kAhead + 1];
      if (turn_ == 0) {
        begin_add(0, b, ring);
        add(0, b, ring);
      } else {
        begin_add(1, b, ring);
        add(1, b, ring);
      }
    }

    __device__ static Float4 quarter(Float8 x, int i) {
      return i == 0 ? __builtin_shufflevector(x, x, 0, 1, 2, 3) : __builtin_shufflevector(x, x, 4, 5, 6, 7);
    }

    // Products of walked rows and the wave's own: element i of lane l is that of walked row 8 * (l / 16) + i
    // and own row l % 16.
    __device__ void scores(float of_rows, Float8 (&x)[kPair], OperandA (&ring)[kAhead + 1]) const {
      constexpr int kProducts = kPair * kSteps;
      const auto read = [&](int i) {
        ring[i % (kAhead + 1)] =
            WalkTile::template read_at<OperandA>(rows(), walk_places_, i % kPair, i / kPair);
      };
      _Pragma("unroll") for (int i = 0; i < kAhead; ++i) read(i);
      const float minus_d = kKeys ? -of_rows : -own_d_;
      unrolled<8 * kPair>([&]<int i>() {
        x[i / 8][i % 8] = kP ? 0 : kKeys ? row_share<i>(minus_d) : minus_d;
      });
      __builtin_amdgcn_sched_barrier(0);
      _Pragma("unroll") for (int i = 0; i < kProducts; ++i) {
        fall_behind<kProducts>(i);
        if (i + kAhead < kProducts) read(i + kAhead);
        __builtin_amdgcn_sched_barrier(0);
        x[i % kPair] = multiply16<T>(ring[i % (kAhead + 1)], own_[i / kPair], x[i % kPair]);
        __builtin_amdgcn_sched_barrier(0);
      }
    }

    // The further a wave is, the later it goes: so that none is left alone with its latencies.
    template <int kProducts>
    __device__ static void fall_behind(int i) {
      if (i == 0) __builtin_amdgcn_s_setprio(3);
      if (i == kProducts / 4) __builtin_amdgcn_s_setprio(2);
      if (i == kProducts / 2) __builtin_amdgcn_s_setprio(1);
      if (i == kProducts / 4 * 3) __builtin_amdgcn_s_setprio(0);
    }

    // In place of S, P of keys.
    __device__ void make_p(float of_rows, Float8 (&x)[kPair]) const {
      const float lse = lse_log2(of_rows);
      unrolled<8 * kPair>([&]<int n>() {
        x[n / 8][n % 8] = __builtin_amdgcn_exp2f(x[n / 8][n % 8] * scale_log2e_ - row_share<n>(lse));
      });
    }

    // Queries: to the peer its half, dS of the peer's and the wave's own (of P, or of dP), and P.
    __device__ void tell_half(const Float8& x) const {
      _Pragma("unroll") for (int i = 0; i < 2; ++i) lds_store(told(kP ? i : i + 2), quarter(x, i));
    }
    __device__ Float8 ask_half() const {
      Float8 peers;
      _Pragma("unroll") for (int i = 0; i < 2; ++i) {
        const auto x = lds_load<Float4>(told(kP ? i + 2 : i));
        _Pragma("unroll") for (int j = 0; j < 4; ++j) peers[i * 4 + j] = x[j];
      }
      return peers;
    }
    __device__ Float8 query_p(Float8 s) const {
      _Pragma("unroll") for (int i = 0; i < 8; ++i) {
        s[i] = __builtin_amdgcn_exp2f(s[i] * scale_log2e_ - own_lse_);
      }
      return s;
    }

    // P, or dS, as an operand's own half.
    __device__ void round(const Float8 (&x)[kWeights]) {
      _Pragma("unroll") for (int j = 0; j < kWeights; ++j) {
        Dwords4 own;
        _Pragma("unroll") for (int i = 0; i < 4; ++i) {
          own[i] = rounded_pair<T>(x[j][2 * i], x[j][2 * i + 1], one_);
        }
        if constexpr (kWeightsInLds) {
          lds_store(weights(j), own);
        } else {
          weights_[j] = own;
        }
      }
    }
    __device__ OperandB operand(int j) const {
      if constexpr (kWeightsInLds) {
        return operand_by<OperandB>([&](int i) { return lds_load<Dwords4>(weights(j, i)); });
      } else {
        return operand_of(weights_[j], lane_ >= 16);
      }
    }

    // sums += walked rows^T P, or dS. begin_add reads the first operands.
    __device__ void read_turned(int turn, int i, OperandA (&ring)[kAhead + 1]) const {
      ring[i % (kAhead + 1)] = TurnedTile::template read_at<OperandA>(
          multiplied(turn), turned_places_, i % kSteps, (kKeys || kP ? 0 : 1) + i / kSteps);
    }
    __device__ void begin_add(int turn, OperandB (&b)[kWeights], OperandA (&ring)[kAhead + 1]) const {
      _Pragma("unroll") for (int j = 0; j < kWeights; ++j) b[j] = operand(j);
      _Pragma("unroll") for (int i = 0; i < kAhead; ++i) read_turned(turn, i, ring);
      __builtin_amdgcn_sched_barrier(0);
    }
    __device__ void add(int turn, const OperandB (&b)[kWeights], OperandA (&ring)[kAhead + 1]) {
      constexpr int kProducts = kWeights * kSteps;
      _Pragma("unroll") for (int i = 0; i < kProducts; ++i) {
        fall_behind<kProducts>(i);
        if (i + kAhead < kProducts) read_turned(turn, i + kAhead, ring);
        __builtin_amdgcn_sched_barrier(0);
        sums_[i % kSteps] = multiply16<T>(ring[i % (kAhead + 1)], b[i / kSteps], sums_[i % kSteps]);
        __builtin_amdgcn_sched_barrier(0);
      }
    }

    // ---- The end.

    // dQ of both peers: each adds up half of the dims.
    static constexpr int kHalf = kSteps / 2;
    __device__ void add_peers() {
      const auto place = [&](bool p, int i) {
        return lds_ + (group_ * 2 + (p ? 0 : 1)) * (kHalf * 1024) + i * 512 + remade(lane_) * 16;
      };
      lds_barrier();
      _Pragma("unroll") for (int i = 0; i < 2 * kHalf; ++i) {
        lds_store(place(kP, i), quarter(sums_[(kP ? kHalf : 0) + i / 2], i % 2));
      }
      lds_barrier();
      _Pragma("unroll") for (int i = 0; i < 2 * kHalf; ++i) {
        const auto more = lds_load<Float4>(place(!kP, i));
        Float8& sum = sums_[(kP ? 0 : kHalf) + i / 2];
        _Pragma("unroll") for (int j = 0; j < 4; ++j) sum[i % 2 * 4 + j] += more[j];
      }
    }

    __device__ void write_all() const {
      const BwdFp32Params& p = arguments();
      const float factor = p.scale * p.rp_keep;
      if constexpr (!kKeys) {
        write(factor, p.dq, p.dq_strides, s_.first_q, p.hdim_q);
      } else if constexpr (kP) {
        write(p.rp_keep, p.dv, p.dv_strides, s_.first_k, p.hdim_v);
      } else {
        write(factor, p.dk, p.dk_strides, s_.first_k, p.hdim_q);
      }
    }

    __device__ void write(float factor, void* gradient, const BwdStrides& strides, int64_t first,
                          int hdim) const {
      const WmmaOwnRows own = {s_, head_, first_, min(own_rows_ - first_, kOwn)};
      const int dim = lane_ / 16 * 8;
      if constexpr (kKeys) {
        write_gradient<T>(sums_, factor, gradient, strides, first, own, row_ - first_, dim, hdim);
      } else {
        constexpr int kFirst = kP ? 0 : kHalf;
        Float8 half[kHalf];
        _Pragma("unroll") for (int i = 0; i < kHalf; ++i) half[i] = sums_[kFirst + i];
        write_gradient<T>(half, factor, gradient, strides, first, own, row_ - first_, dim + kFirst * 16,
                          hdim);
      }
    }

    BwdSequence s_;
    LdsByte* lds_;  // a, a turned, b, b turned; what peers tell each other
    int head_, first_;
    int lane_, group_, wave_first_, row_;
    int own_rows_, walked_rows_;
    WmmaSeen seen_;
    AllPlaces walk_places_, turned_places_;
    int told_, to_weights_, from_weights_;
    OperandB own_[kSteps];
    Mover mover_;
    float own_lse_, own_d_;  // of queries
    // LSE, or D. Lane l holds that of the next tile's row 16 * (l % 16 / 8) + 8 * (l / 16) + l % 8: lane n of
    // each sixteen has those of the half's element n of two products (row_share).
    float of_rows_;
    int from_head_;  // rows of it are loaded
    WmmaRows from_;
    const float* from_rows_;
    int turn_;                                       // of the tile before
    Dwords4 weights_[kWeightsInLds ? 1 : kWeights];  // of it
    float one_, scale_log2e_;
    Float8 sums_[kSteps];  // element i of tile t is of its dim 16 * t + 8 * (lane / 16) + i
  };
};

}  // namespace fmha
