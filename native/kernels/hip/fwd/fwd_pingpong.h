// SPDX-License-Identifier: MIT OR Apache-2.0
// Forward attention whose matrix cores hardly ever wait: eight waves in two groups of four, of which one is
// at its products while the other is at its softmax.
//
// A workgroup does 256 rows of a query head, a wave 32 of them, all keys in blocks of 32 to 128, by what
// LDS and registers hold (kPingpongKeys). Each SIMD has a wave of either group. A phase is between barriers:
//
//   phase    group 0                             group 1
//   2n       O += P[n-1] V[n-1]; S[n] = Q K[n]   softmax of S[n-1]; moves K[n+1], V[n]
//   2n + 1   softmax of S[n]; moves K[n+1], V[n] O += P[n-1] V[n-1]; S[n] = Q K[n]
//
// Each wave moves an eighth of K and V to LDS. A tile is complete one phase before it is read, and its
// buffer, of two for K and two for V, was read for the last time one phase before it is overwritten. On
// gfx942 a wave stores what it loaded into registers a round before (hip/fwd/fwd_pingpong_gfx942.h); on
// gfx950, and in some kernels of gfx942 for K, loads write LDS, and have the phase to arrive
// (hip/fwd/fwd_pingpong_gfx950.h). Head dim 256 has phases of 32 keys, and loads of its own (..._wide.h).
//
// S^T = K Q^T and O^T = V^T P^T, by 32x32x8, on gfx950 by 32x32x16, in half the time: what a lane has of S^T,
// four keys by four of one row, is what the next product takes of P^T, so that P stays where it is. V is
// turned: on gfx942 on its way, where a lane loads four keys by four dims, turns them by eight v_perm_b32,
// and stores them as V^T, on gfx950 as it is read. Chunks of LDS rows are exchanged so that neither reads nor
// stores have bank conflicts (hip/common/pingpong_parts.h).
//
// The reference of a row's exponentials may lag behind its maximum (hip/fwd/fwd_pingpong_softmax.h).
//
// 8-bit floats have MFMA of twice as many columns, and P has 8 bits too (hip/fwd/fwd_pingpong_fp8.h).
#pragma once

#include "args/fwd_pingpong.h"
#include "common/device.h"
#include "hip/common/pingpong_parts.h"
#include "hip/fwd/fwd_pingpong_lds.h"
#include "hip/fwd/fwd_pingpong_products.h"
#include "hip/fwd/fwd_pingpong_scores.h"
#include "hip/fwd/fwd_pingpong_shares.h"
#include "hip/fwd/fwd_pingpong_softmax.h"
#include "hip/fwd/fwd_work.h"

namespace fmha {

template <typename T, typename O, int kDimsQ, int kDimsV, bool kMask, template <typename> class MoverOf,
          PingpongScore kScore, int kWaves, int kShares>
class Pingpong
    : public PingpongProducts<Pingpong<T, O, kDimsQ, kDimsV, kMask, MoverOf, kScore, kWaves, kShares>, T,
                              PingpongTiles<T, kDimsQ, kDimsV, kWaves>,
                              MoverOf<PingpongTiles<T, kDimsQ, kDimsV, kWaves>>::kAhead, kDimsQ, kDimsV> {
  using Tiles = PingpongTiles<T, kDimsQ, kDimsV, kWaves>;
  using Mover = MoverOf<Tiles>;
  using Products = PingpongProducts<Pingpong, T, Tiles, Mover::kAhead, kDimsQ, kDimsV>;
  using Products::products, Products::scores_only, Products::values_only, Products::kNothing;
  friend Products;
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  static constexpr int kHdimQ = Tiles::kHdimQ, kHdimV = Tiles::kHdimV, kHdimO = Tiles::kHdimO;
  static constexpr bool kFp8 = sizeof(T) == 1;
  static constexpr int kTilesS = Keys::kKeys / 32, kTilesO = kDimsV / 32;
  static constexpr bool kFewRegisters = Tiles::kWide;  // the loop computes lanes' addresses anew each time
  static constexpr bool kBfloatsInStep = Tiles::kInStep && !kLoadsWriteLds && __is_same(O, Bf16);

 public:
  static constexpr int kTileM = kWaves * kPingpongRows;
  static constexpr bool kWhole = kShares == 1;  // a wave has all keys of its rows
  static constexpr int kWavesOfSimd = Tiles::kInTurn ? 1 : kWhole && Tiles::kInStep && kHdimQ <= 64 ? 4 : 2;
  static constexpr int kAllWaves = kWaves * kShares;
  static constexpr int kWorkgroups = 4 * kWavesOfSimd / kAllWaves;  // of a compute unit
  static constexpr int kLdsBytes =
      kWhole ? Tiles::kLdsBytes : max(kShares * Tiles::kLdsBytes, Shares<kShares, kWaves>::kLdsBytes);
  static constexpr int kTileN = Keys::kKeys;
  using Params = PingpongParamsOf<T, kScore>::Type;

  __device__ static void run() {
    __shared__ __attribute__((aligned(256))) uint8_t lds[kLdsBytes];
    Pingpong d(*reinterpret_cast<const Params*>(__builtin_amdgcn_kernarg_segment_ptr()),
               (LdsByte*)(lds));  // NOLINT: the only cast that changes address spaces
    if constexpr (Tiles::kInStep) fetch(d.p);
    if (!d.work.find(d.p, kTileN, kMask)) return;
    const int blocks = d.work.blocks;
    d.begin();
    if (blocks > 0) {
      if constexpr (Tiles::kInTurn) d.walk_in_turn();
      if constexpr (Tiles::kInStep && kWhole) d.walk_in_step();
      if constexpr (!kWhole) d.walk_shares((blocks + kShares - 1) / kShares);
      if constexpr (kWaves == 8) d.walk();
    }
    d.end();
  }

 private:
  // Loads these arguments at once: a wave would otherwise wait for one after the other.
  __device__ static void fetch(const PingpongParams& p) {
    asm volatile("" ::"s"(p.heads_first), "s"(p.parts.count), "s"(p.parts.first_tile), "s"(p.nhead_q),
                 "s"(p.cu_q), "s"(p.seqlen_q), "s"(p.seqlen_k), "s"(p.top_left), "s"(p.window_left),
                 "s"(p.window_right), "s"(p.nhead_ratio), "s"(p.hdim_q), "s"(p.hdim_v));
  }

  __device__ Pingpong(const Params& params, LdsByte* lds)
      : all(params), p(plain_of(params)), keys(lds), values(lds + Tiles::kBuffers * Keys::kBytes) {}

  // ---- The beginning.

  __device__ void begin() {
    wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64);
    if constexpr (!kWhole) take_share();
    group = wave / (kWaves / 2);
    find_lane(threadIdx.x % 64);
    const int kv_head = work.head / p.nhead_ratio;
    k = static_cast<const uint8_t*>(p.k) + work.batch * p.k_strides.batch + kv_head * p.k_strides.nhead +
        work.first_k * p.k_strides.row;
    v = static_cast<const uint8_t*>(p.v) + work.batch * p.v_strides.batch + kv_head * p.v_strides.nhead +
        work.first_k * p.v_strides.row;
    mover.begin(wave, lane, p.k_strides.row, p.v_strides.row, pairs_of(p.hdim_q), pairs_of(p.hdim_v));
    k_read = Keys::place(place_of_row(lane % 32), half);
    v_read = Values::begin(lane);
    find_edges();
    if constexpr (kScore == PingpongScore::kAlibi) alibi.begin(all, work.batch, work.head);
    rows.begin();
    _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) o[t] = Float16{};
  }

  // The keys are divided among shares of waves.
  __device__ void take_share() {
    const auto number = static_cast<uint32_t>(wave);  // unsigned: it divides by a shift
    share = number / kWaves;
    wave = number % kWaves;
    work.divide_blocks(share, kShares);
    keys += share * Tiles::kLdsBytes;
    values += share * Tiles::kLdsBytes;
  }

  __device__ void find_lane(int lane_) {
    lane = lane_;
    half = lane / 32;
    row = work.tile * kTileM + wave * kPingpongRows + lane % 32;
  }

  // Blocks before `whole_first`, and behind `whole_blocks` from there, hide a key from a row of the wave.
  __device__ void find_edges() {
    const int first_row = work.tile * kTileM + wave * kPingpongRows;
    int whole_end = work.seqlen_k / kTileN;
    if constexpr (!kWhole) whole_end = min(whole_end, work.first_block + work.blocks);
    whole_first = 0;
    if constexpr (kMask) {
      const int hidden = work.window(p).last(first_row) + 1;  // keys from here on are, from the first row
      const int first = work.window(p).first(first_row + kPingpongRows - 1);
      const int end_block = hidden > 0 ? hidden / kTileN : 0;
      whole_end = end_block < whole_end ? end_block : whole_end;
      whole_first = first > 0 ? (first + kTileN - 1) / kTileN : 0;
    }
    whole_blocks = whole_end > whole_first ? whole_end - whole_first : 0;
    const int end = (work.first_block + work.blocks) * kTileN;
    end_of_keys = end < work.seqlen_k ? end : work.seqlen_k;
  }

  template <typename Rows>
  __device__ void begin_q(const Rows& of_wave) {
    const uint8_t* base = static_cast<const uint8_t*>(p.q) + work.batch * p.q_strides.batch +
                          work.head * p.q_strides.nhead +
                          (work.first_q + work.tile * kTileM) * p.q_strides.row;
    of_wave.begin_load(resource(base, rows_left(kTileM) * p.q_strides.row), p.q_strides.row,
                       pairs_of(p.hdim_q), q);
  }

  __device__ static int pairs_of(int hdim) { return kFp8 ? hdim / 2 : hdim; }  // of a row's bytes

  __device__ int rows_left(int most) const {
    const int left = work.seqlen_q - work.tile * kTileM;
    return left < most ? left : most;
  }

  // ---- The main loop.

  // The rows of block `i` of the workgroup's; past the last one there are no rows.
  __device__ Resource block_of(const uint8_t* base, uint32_t row_bytes, int i) const {
    const int first = (work.first_block + i) * kTileN, left = end_of_keys - first;
    const int rows = left < kTileN ? left : kTileN;
    return resource(base + static_cast<uint64_t>(static_cast<uint32_t>(first)) * row_bytes,
                    left > 0 ? rows * row_bytes : 0);
  }

 public:  // to Mover
  __device__ Resource keys_in_memory(int i) const { return block_of(k, p.k_strides.row, i); }
  __device__ Resource values_in_memory(int i) const { return block_of(v, p.v_strides.row, i); }
  // Key `key` of block i: a row that ends with its last dim.
  __device__ Resource key_in_memory(int i, int key) const {
    const int at = (work.first_block + i) * kTileN + key;
    return resource(k + static_cast<uint64_t>(static_cast<uint32_t>(at)) * p.k_strides.row,
                    at < end_of_keys ? p.hdim_q * 2 : 0);
  }
  // Value `key` of block i, the same way.
  __device__ Resource value_in_memory(int i, int key) const {
    const int at = (work.first_block + i) * kTileN + key;
    return resource(v + static_cast<uint64_t>(static_cast<uint32_t>(at)) * p.v_strides.row,
                    at < end_of_keys ? p.hdim_v * 2 : 0);
  }

  __device__ LdsByte* key_buffer(int i) const { return keys + buffer(i) * Keys::kBytes; }
  __device__ LdsByte* value_buffer(int i) const { return values + buffer(i) * Values::kBytes; }

 private:
  __device__ static uint32_t buffer(uint32_t i) { return i % Tiles::kBuffers; }

  __device__ void walk() {
    const WaveRows<kHdimQ> of_wave(wave, lane, keys + Tiles::kPlaceOfQ + wave * WaveRows<kHdimQ>::kBytes);
    begin_q(of_wave);
    mover.first(*this);
    of_wave.end_load(q);
    pingpong_barrier();
    if (group != 0) {
      mover.move(*this, 0);
      mover.wait();
      pingpong_barrier();
    }
    scores_only(0, kNothing);
    pingpong_barrier();
    // The tiles that a softmax moves of group 1 lie one block further on.
    if constexpr (Mover::kMovesBetween) mover.move(*this, group);
    first_softmax();
    if constexpr (!Mover::kMovesBetween) mover.move(*this, group);
    mover.wait();
    for (int n = 1; n < work.blocks; ++n) {
      if constexpr (kFewRegisters) v_read = remade(v_read), k_read = remade(k_read);
      this->template read_first<0>(n);
      pingpong_barrier();
      products(n);
      pingpong_barrier();
      softmax(n, n + group);
      mover.wait();
    }
    // Group 1 is one phase behind: its last barrier is that of group 0's last softmax.
    if (group == 0) pingpong_barrier();
    values_only(work.blocks, kNothing);
  }

  __device__ void walk_in_step() {
    const RowsInStep<kHdimQ> of_wave(wave, lane, keys + Tiles::kPlaceOfQ + wave * RowsInStep<kHdimQ>::kBytes);
    mover.walk_in_step(
        *this, work.blocks, [&] { begin_q(of_wave); }, [&] { of_wave.end_load(q); },
        [&](int n) { do_block(n); });
  }

  // The phases of walk(), but each share has tiles of its own. Only its own waves read them, so that they are
  // free during its softmax. Its last block may be one of another share, whose keys it hides.
  __device__ void walk_shares(int rounds) {
    const RowsByLds<kHdimQ, kShares> of_wave(wave, lane, all_lds() + wave * Tiles::kLdsBytes + Keys::kBytes,
                                             share);
    begin_q(of_wave);
    mover.first(*this);
    of_wave.end_load(q);
    const bool second = share >= kShares / 2;
    if (second) pingpong_barrier();
    scores_only(0, kNothing);
    pingpong_barrier();
    mover.move(*this, 0);
    first_softmax();
    for (int n = 1; n < rounds; ++n) {
      meet();  // explicitly: the compiler takes the loop's stores for complete if O was not rescaled
      this->template read_first<0>(n);
      products(n);
      pingpong_barrier();
      softmax(n, n);
    }
    meet();
    values_only(rounds, kNothing);
    if (!second) pingpong_barrier();
  }

  __device__ LdsByte* all_lds() const { return keys - share * Tiles::kLdsBytes; }

  // K and V in turn: while a wave multiplies by one, it moves the next tile of the other.
  __device__ void walk_in_turn() {
    const WaveRows<kHdimQ> of_wave(wave, lane, keys + wave * WaveRows<kHdimQ>::kBytes);
    begin_q(of_wave);
    of_wave.end_load(q);
    mover.first(*this);
    for (int n = 0; n < work.blocks; ++n) {
      v_read = remade(v_read), k_read = remade(k_read);
      scores_only(n, [&](int i) { mover.move_beside_scores(*this, n, i); });
      weigh(n, kNothing);
      mover.wait();
      pingpong_barrier();
      values_only(n + 1, [&](int i) { mover.move_beside_values(*this, n, i); });
      mover.wait();
      pingpong_barrier();
    }
  }

  __device__ void do_block(int n) {
    if (is_hidden(work.first_block + n)) return;
    scores_only(n, kNothing);
    weigh(n, kNothing);
    values_only(n + 1, kNothing);
  }

  // True: no row of the wave sees a key of the block.
  __device__ bool is_hidden(int block) const {
    if constexpr (!kMask) return false;
    const int first_row = work.tile * kTileM + wave * kPingpongRows;
    return work.window(p).last(first_row + kPingpongRows - 1) < block * kTileN ||
           work.window(p).first(first_row) >= (block + 1) * kTileN;
  }

  // ---- The phase of the softmax.

  // The softmax of block n; tiles of `next` are moved.
  __device__ void softmax(int n, int next) {
    if constexpr (!Mover::kMovesBetween) mover.move(*this, next);
    weigh(n, [&](int i) {
      if constexpr (Mover::kMovesBetween) mover.move_some(*this, next, i);
    });
  }
  __device__ void weigh(int n, auto meanwhile) {
    const auto scores = shape(work.first_block + n);
    hide(work.first_block + n);
    rows.run(s, scores, probabilities, o, meanwhile);
  }
  __device__ void first_softmax() {
    const auto scores = shape(work.first_block);
    hide(work.first_block);
    rows.run_first(s, scores, probabilities);
  }

  // Tells what the products of a block are as scores, some of which are changed.
  __device__ auto shape(int block) {
    if constexpr (kScore == PingpongScore::kAlibi) {
      const int first = block * kTileN, own = work.diagonal + work.tile * kTileM + wave * kPingpongRows;
      return alibi.shape(s, p.scale, first, own, row + work.diagonal - first - half * 8);
    } else if constexpr (kScore == PingpongScore::kSoftcap) {
      return cap_scores(s, all.cap);
    } else {
      return PlainScores{p.scale};
    }
  }

  // Hides keys that the lane's row does not see.
  __device__ void hide(int block) {
    if (static_cast<uint32_t>(block - whole_first) < whole_blocks) return;
    const int base = block * kTileN + half * 8;
    // Blocks in front of the whole ones end before the first row's last key.
    if (!Tiles::kInStep || whole_blocks == 0 || block >= whole_first) {
      int last = (kWhole ? work.seqlen_k : end_of_keys) - 1;
      if constexpr (kMask) last = min(last, work.window(p).last(row));
      hide_if([last = last - base](int key) { return key > last; });
    }
    if constexpr (kMask) {
      if (block < whole_first) {
        hide_if([first = work.window(p).first(row) - base](int key) { return key < first; });
      }
    }
  }

  template <typename Hidden>
  __device__ void hide_if(Hidden hidden) {
    _Pragma("unroll") for (int t = 0; t < kTilesS; ++t) {
      _Pragma("unroll") for (int i = 0; i < 16; ++i) {
        s[t][i] = hidden(key_of_element(t, i)) ? -__builtin_inff() : s[t][i];
      }
    }
  }

  // ---- The end.

  __device__ void end() {
    if constexpr (kFewRegisters) find_lane(lane_anew());
    if constexpr (!kWhole) return end_shares();
    auto [factor, lse] = rows.result(work.part > 0 ? nullptr : p.sinks, work.head);  // one part counts it
    if constexpr (kFp8) {  // one by one: their product may be no normal number
      _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) o[t] *= factor;
      factor = all.v_descale;
    }
    const bool stores_lse = half == 0 && row < work.seqlen_q;
    if (work.part >= 0) {
      store_part(factor, lse, stores_lse);
      return;
    }
    if constexpr (Tiles::kInStep && !kLoadsWriteLds && RowsInStep<kHdimO>::kBytes > 0) {
      meet();  // O has the place of tiles
    }
    store_o(kFewRegisters ? remade(factor) : factor);  // O is multiplied there, and not before
    if (p.lse != nullptr && stores_lse) {
      p.lse[work.batch * p.lse_batch + work.head * p.lse_nhead + work.first_q + row] = lse;
    }
  }

  __device__ void end_shares() {
    const Shares<kShares, kWaves> shares(all_lds(), share, wave, lane);
    const float own = shares.join(rows);
    const auto [factor, lse] = rows.result(p.sinks, work.head);
    uint8_t* base = o_base();
    const Resource to = resource(base, rows_left(kTileM) * p.o_strides.row);
    const uint32_t row_at = (wave * kPingpongRows + lane % 32) * p.o_strides.row;
    shares.add_up(o, own * factor, [&](int i, const Float4(&x)[2]) {
      Dwords4 chunk;
      _Pragma("unroll") for (int j = 0; j < 4; ++j) {
        chunk[j] = rounded_to_even<O>(x[j / 2][j % 2 * 2], x[j / 2][j % 2 * 2 + 1]);
      }
      if constexpr (Values::kInOrder) chunk = gathered(chunk);
      const int dim = (2 * i + half) * 8;
      __builtin_amdgcn_raw_buffer_store_b128(chunk, to, dim < p.hdim_v ? row_at + dim * 2 : kNowhere, 0, 0);
    });
    if (p.lse != nullptr && share == 0 && half == 0 && row < work.seqlen_q) {
      p.lse[work.batch * p.lse_batch + work.head * p.lse_nhead + work.first_q + row] = lse;
    }
  }

  __device__ uint8_t* o_base() const {
    return static_cast<uint8_t*>(p.o) + work.batch * p.o_strides.batch + work.head * p.o_strides.nhead +
           (work.first_q + work.tile * kTileM) * p.o_strides.row;
  }

  // Stores O of a part of the keys: as float32, for the kernel that merges parts (hip/decode/merge.h).
  __device__ void store_part(float factor, float lse, bool stores_lse) {
    const int first = (work.tile - p.parts.first_tile) * kTileM;
    const int64_t at = (work.part * p.parts.heads + work.head_of_batch) * p.parts.rows + first;
    const uint32_t row_bytes = p.hdim_v * sizeof(float);
    const Resource to = resource(p.parts.o + at * p.hdim_v, rows_left(kTileM) * row_bytes);
    store_floats(to, row_bytes, factor);
    if (stores_lse) p.parts.lse[at + wave * kPingpongRows + lane % 32] = lse;
  }

  __device__ void store_floats(Resource to, uint32_t row_bytes, float factor) {
    const uint32_t row_at = (wave * kPingpongRows + lane % 32) * row_bytes;
    store_as_floats<Values::kInOrder>(o, factor, to, row_at, p.hdim_v, half);
  }

  __device__ void store_o(float factor) {
    uint8_t* base = o_base();
    if constexpr (__is_same(O, Fp32)) {
      store_floats(resource(base, rows_left(kTileM) * p.o_strides.row), p.o_strides.row, factor);
    } else {
      store_dims<0>(base, factor);
      if constexpr (kHdimO < kHdimV) store_dims<kHdimO>(base, factor);
    }
  }

  // Stores kHdimO dims, from the first on.
  template <int kFirst>
  __device__ void store_dims(uint8_t* base, float factor) {
    constexpr int kChunks = kHdimO < kDimsV ? kHdimO / 16 : kDimsV / 16;
    Dwords4 chunks[kHdimO / 16] = {};
    if constexpr (kBfloatsInStep) {
      round_in_place(o, factor, chunks);
    } else {
      _Pragma("unroll") for (int i = 0; i < kChunks; ++i) {
        constexpr int kBefore = kFirst / 16;
        _Pragma("unroll") for (int j = 0; j < 4; ++j) {
          const float low = o[(kBefore + i) / 2][i % 2 * 8 + j * 2] * factor,
                      high = o[(kBefore + i) / 2][i % 2 * 8 + j * 2 + 1] * factor;
          chunks[i][j] = rounded_to_even<O>(low, high);
        }
        if constexpr (Values::kInOrder) chunks[i] = gathered(chunks[i]);
        if constexpr (kFewRegisters) chunks[i] = remade(chunks[i]);  // rounded now: O's registers are needed
      }
    }
    const Resource to = resource(base + kFirst * 2, rows_left(kTileM) * p.o_strides.row);
    if constexpr (Tiles::kInStep) {
      RowsInStep<kHdimO>(wave, kLoadsWriteLds ? lane : lane_anew(), place_of_o())
          .store(to, p.o_strides.row, p.hdim_v - kFirst, chunks);
    } else {
      WaveRows<kHdimO>(wave, kFewRegisters ? remade(lane) : lane, place_of_o())
          .store(to, p.o_strides.row, p.hdim_v - kFirst, chunks);
    }
  }

  // A wave's, in LDS: where nobody reads any more, and nobody writes zeros for the keys behind the last
  // block, as group 1 still does while group 0 stores O.
  __device__ LdsByte* place_of_o() const {
    if constexpr (Tiles::kInStep && !kLoadsWriteLds) return keys + wave * RowsInStep<kHdimV>::kBytes;
    constexpr int kBehind = Tiles::kInTurn ? 0 : Tiles::kTilesBytes;
    if constexpr (Tiles::kWide) return keys + kBehind + wave * WaveRows<kHdimO>::kBytes;
    const int of_group = wave % (kWaves / 2);
    if constexpr (Tiles::kOHasPlace) {
      constexpr int kBytes = WaveRows<kHdimV>::kBytes;
      if (group == 0) return keys + Tiles::kTilesBytes + of_group * kBytes;
      if (of_group < 2) return key_buffer(work.blocks) + of_group * kBytes;
      return of_group == 2 ? key_buffer(work.blocks + 1) : value_buffer(work.blocks);
    }
    LdsByte* first = key_buffer(work.blocks + group);
    if (group != 0 && of_group >= 2) first = value_buffer(work.blocks);
    return first + (group != 0 ? of_group % 2 : of_group) * WaveRows<kHdimV>::kBytes;
  }

  const Params& all;
  const PingpongParams& p;
  LdsByte *keys, *values;
  FwdWork<kTileM, true> work;
  const uint8_t *k, *v;  // of this workgroup's head and sequence
  int share, wave, group, lane, half, row;
  int k_read, v_read;
  int whole_first, end_of_keys;
  uint32_t whole_blocks;
  Alibi alibi;
  Softmax<T, kTilesS, kTilesO> rows;
  Mover mover;
  Dwords4 q[kHdimQ / 16];
  Float16 s[kTilesS], o[kTilesO];
  Dwords4 probabilities[Keys::kKeys * sizeof(T) / 32];
  Pair ring[Mover::kAhead + 1];
};

}  // namespace fmha
