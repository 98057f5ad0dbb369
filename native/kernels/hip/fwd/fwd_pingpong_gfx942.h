// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h on gfx942: what was loaded waits in registers, from where K is stored to
// LDS as it is, and V turned. In some kernels loads of K write LDS themselves, 4 bytes a lane.
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_rows.h"
#include "hip/fwd/fwd_pingpong_tiles.h"

namespace fmha {

inline constexpr bool kLoadsWriteLds = false;

// Keys of a tile.
template <int kHdimQ, int kHdimV>
inline constexpr int kPingpongKeys = kHdimQ <= 128 ? 8192 / kHdimQ : 32;
inline constexpr int kPingpongWideBuffers = 2;  // of head dim 256

// V: a row is a dim. Lanes that read have dims like K's keys, and lanes that write dims that differ in bits
// 2, 3 and 4, or 1, 2 and 3.
template <int kHdim, int kKeys>
struct ValueTile {
  static constexpr int kRowBytes = 2 * kKeys;
  static constexpr int kBytes = kHdim * kRowBytes;
  static constexpr bool kInOrder = false;  // a lane's numbers of O are of the dims of place_of_row
  static constexpr int kFirst = 0;         // the first of O's tiles that is multiplied

  __device__ static int place(int dim, int chunk) {
    if constexpr (kRowBytes == 64) {  // two rows share all banks
      const int swizzle = ((dim >> 1 ^ dim >> 4) & 1) | (dim >> 3 & 1) << 1 | (dim & 4);
      return dim / 2 * 128 + (((dim & 1) << 2 | chunk) ^ swizzle) * kChunk;
    }
    const int swizzle = ((dim ^ dim >> 2) & 1) | ((dim >> 1 ^ dim >> 4) & 1) << 1 | (dim & 8) >> 1;
    const int bit2 = kRowBytes / kChunk == 16 ? (dim & 4) << 1 : 0;
    return dim * kRowBytes + (chunk ^ swizzle ^ bit2) * kChunk;
  }

  // Where a lane begins to read.
  __device__ static int begin(int lane) { return place(place_of_row(lane % 32), lane / 32); }

  // Reads 32 dims, tile t of them, of eight keys of 16, step `step` of them.
  __device__ static Dwords4 read(const LdsByte* tile, int from, int step, int t) {
    return lds_load<Dwords4>(tile + (from ^ step * 2 * kChunk) + t * 32 * kRowBytes);
  }
};

// A wave's part of each tile of K, an eighth: it waits in registers between its load and its store.
template <typename Keys, int kWaves>
class KeysByRegister {
  static constexpr int kBytes = Keys::kBytes / (64 * kWaves);  // of a lane
  static constexpr int kUnit = kBytes % 16 == 0 ? 16 : 8, kUnits = kBytes / kUnit;
  static constexpr int kUnitsOfRow = Keys::kRowBytes / kUnit;
  using Unit = __attribute__((ext_vector_type(kUnit / 4))) uint32_t;

 public:
  __device__ void begin(int wave, int lane, uint32_t row_bytes, int hdim) {
    _Pragma("unroll") for (int i = 0; i < kUnits; ++i) {
      const int unit = i * 64 + lane, at = unit % kUnitsOfRow * kUnit;
      const int key = wave * (Keys::kKeys / kWaves) + unit / kUnitsOfRow;
      from[i] = at < 2 * hdim ? key * row_bytes + at : kNowhere;
      to[i] = Keys::place(key, at / kChunk) + at % kChunk;
    }
  }

  template <typename Tiles>
  __device__ void first(const Tiles& tiles) {
    load_tile(tiles.keys_in_memory(0));
    store_tile(tiles.key_buffer(0));
    load_tile(tiles.keys_in_memory(1));
  }
  // K[n + 1] to LDS: the round before has loaded it.
  template <typename Tiles>
  __device__ void store(const Tiles& tiles, int n) const {
    store_tile(tiles.key_buffer(n + 1));
  }
  // K[n + 2], whose registers are free again.
  template <typename Tiles>
  __device__ void load(const Tiles& tiles, int n) {
    load_tile(tiles.keys_in_memory(n + 2));
  }
  __device__ static void wait() {}

 private:
  __device__ void load_tile(Resource memory) {
    _Pragma("unroll") for (int i = 0; i < kUnits; ++i) k[i] = buffer_load<Unit>(memory, from[i]);
  }
  __device__ void store_tile(LdsByte* tile) const {
    _Pragma("unroll") for (int i = 0; i < kUnits; ++i) lds_store(tile + to[i], k[i]);
  }

  uint32_t from[kUnits];
  int to[kUnits];
  Unit k[kUnits];
};

// The same by DMA: loads write LDS. The 64 lanes of a load fill 256 bytes in their order, so that a lane
// exchanges chunks by its address in memory. The clock of the software device finds it no faster
// (docs/kernels/fwd_pingpong.md).
template <typename Keys, int kWaves>
class KeysByDma {
  static constexpr int kLaneBytes = 4, kLanesOfChunk = kChunk / kLaneBytes, kLoadBytes = 64 * kLaneBytes;
  static constexpr int kLoads = Keys::kBytes / (kWaves * kLoadBytes),
                       kKeysAtOnce = kLoadBytes / Keys::kRowBytes;

 public:
  __device__ void begin(int wave, int lane, uint32_t row_bytes, int hdim) {
    const int first_key = wave * (Keys::kKeys / kWaves), place = lane / kLanesOfChunk % Keys::kChunks;
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int key = first_key + i * kKeysAtOnce + lane / (kLanesOfChunk * Keys::kChunks);
      const int chunk = Keys::exchange(key, place);
      const int in_chunk = lane % kLanesOfChunk * kLaneBytes;
      from[i] = chunk * 8 < hdim ? key * row_bytes + chunk * kChunk + in_chunk : kNowhere;
    }
    to = first_key * Keys::kRowBytes;
  }

  template <typename Tiles>
  __device__ void first(const Tiles& tiles) const {
    load_tile(tiles, 0);
    load_tile(tiles, 1);
  }
  template <typename Tiles>
  __device__ static void store(const Tiles&, int) {}
  // K[n + 1], unless first() has loaded it.
  template <typename Tiles>
  __device__ void load(const Tiles& tiles, int n) const {
    if (n > 0) load_tile(tiles, n + 1);
  }
  // Until K is in LDS; the four loads of V behind it go on.
  __device__ static void wait() { wait_for_loads<4>(); }

 private:
  template <typename Tiles>
  __device__ void load_tile(const Tiles& tiles, int n) const {
    const Resource memory = tiles.keys_in_memory(n);
    LdsByte* tile = tiles.key_buffer(n) + to;
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      load_to_lds(memory, tile + i * kLoadBytes, kLaneBytes, from[i], 0, 0, 0);
    }
    __builtin_amdgcn_sched_barrier(0);
  }

  uint32_t from[kLoads];
  int to;
};

// A wave's part of each tile of K and V: an eighth. V waits in registers.
template <typename Tiles, template <typename, int> class KeyMover = KeysByRegister>
class Mover {
  static constexpr int kWaves = Tiles::kWaves, kWavesOfGroup = kWaves / 2;
  using Keys = KeyMover<typename Tiles::Keys, kWaves>;
  using Values = Tiles::Values;
  // A lane has four keys by so many dims; pairs of lanes have eight keys. Each group has half of the keys,
  // and perhaps waves without any.
  static constexpr int kNumbers = Tiles::kKeys * Tiles::kHdimV / (64 * kWaves);  // of a lane
  static constexpr int kDims = kNumbers >= 32 ? 8 : kNumbers >= 12 ? 4 : 2;
  static constexpr int kPairsOfRow = Tiles::kHdimV / kDims;
  static constexpr int kPairs = kPairsOfRow * Tiles::kKeys / 16,
                       kWavesWithValues = kPairs / 32;  // of a group
  static_assert(kPairs % 32 == 0 && kWavesWithValues <= kWavesOfGroup);
  using Some = __attribute__((ext_vector_type(kDims / 2))) uint32_t;

 public:
  // All at once, in front of the softmax; loads have had a round to arrive. Not so those of the beginning,
  // which are stored behind it.
  static constexpr bool kMovesBetween = false;
  // Pairs of operands that are read ahead: four MFMA take 128 cycles, as long as LDS.
  static constexpr int kAhead = 1;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    keys.begin(wave, lane, k_row, hdim_q);
    const int half = lane & 1, pair = wave / kWavesOfGroup * kPairs + wave % kWavesOfGroup * 32 + lane / 2;
    const int dim = pair % kPairsOfRow * kDims, octet = pair / kPairsOfRow;
    has_values = kWavesWithValues == kWavesOfGroup || wave % kWavesOfGroup < kWavesWithValues;
    v_from = dim < hdim_v ? (octet * 8 + half * 4) * v_row + dim * 2 : kNowhere;
    v_step = v_row;
    _Pragma("unroll") for (int i = 0; i < kDims; ++i) v_to[i] = Values::place(dim + i, octet) + half * 8;
  }

  template <typename Owner>
  __device__ void first(const Owner& tiles) {
    keys.first(tiles);
    load_values(tiles.values_in_memory(0));
    wait();
  }
  // K[n + 1] and V[n] to LDS.
  template <typename Owner>
  __device__ void move(const Owner& tiles, int n) {
    keys.store(tiles, n);
    store_values(tiles.value_buffer(n));
    keys.load(tiles, n);
    load_values(tiles.values_in_memory(n + 1));
  }
  // The loop of waves in step: one buffer each, which is free again behind the barrier. A block's loads have
  // the time of the block before it.
  template <typename Owner, typename BeginQ, typename EndQ, typename DoBlock>
  __device__ void walk_in_step(const Owner& tiles, int blocks, BeginQ begin_q, EndQ end_q, DoBlock do_block) {
    begin_q();
    load_block(tiles, 0);
    end_q();
    for (int n = 0; n < blocks; ++n) {
      pingpong_barrier();
      keys.store(tiles, n - 1);
      store_values(tiles.value_buffer(n));
      if (n + 1 < blocks) load_block(tiles, n + 1);
      pingpong_barrier();
      do_block(n);
    }
  }
  // Until what loads write to LDS is there.
  __device__ static void wait() { Keys::wait(); }

 private:
  template <typename Owner>
  __device__ void load_block(const Owner& tiles, int n) {
    keys.load(tiles, n - 2);
    load_values(tiles.values_in_memory(n));
  }
  __device__ void load_values(Resource from) {
    if (!has_values) return;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) v[i] = buffer_load<Some>(from, v_from + i * v_step);
  }
  // A lane's block is turned: each of its dims has four keys.
  __device__ void store_values(LdsByte* tile) const {
    if (!has_values) return;
    _Pragma("unroll") for (int i = 0; i < kDims; ++i) {
      const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
      lds_store(tile + v_to[i], Dwords2{__builtin_amdgcn_perm(v[1][i / 2], v[0][i / 2], which),
                                        __builtin_amdgcn_perm(v[3][i / 2], v[2][i / 2], which)});
    }
  }

  Keys keys;
  bool has_values;
  uint32_t v_from, v_step;
  int v_to[kDims];
  Some v[4];
};

template <typename Tiles>
using DmaMover = Mover<Tiles, KeysByDma>;

// A wave's 32 rows of Q and O, from and to memory: in LDS there is no room for those of eight waves.
template <int kHdim>
class WaveRows {
 public:
  using Chunks = Dwords4[kHdim / 16];
  static constexpr int kBytes = 0;

  __device__ WaveRows(int wave, int lane, LdsByte*) : row(wave * 32 + lane % 32), half(lane / 32) {}

  // Chunk 2 * i + lane / 32 of row lane % 32, each.
  __device__ void begin_load(Resource from, uint32_t row_bytes, int hdim, Chunks& x) const {
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      x[i] = __builtin_amdgcn_raw_buffer_load_b128(from, place(i, row_bytes, hdim), 0, 0);
    }
  }
  __device__ static void end_load(Chunks&) {}

  __device__ void store(Resource to, uint32_t row_bytes, int hdim, const Chunks& x) const {
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      __builtin_amdgcn_raw_buffer_store_b128(x[i], to, place(i, row_bytes, hdim), 0, 0);
    }
  }

 private:
  __device__ uint32_t place(int i, uint32_t row_bytes, int hdim) const {
    const int chunk = 2 * i + half;
    return chunk * 8 < hdim ? row * row_bytes + chunk * kChunk : kNowhere;
  }

  int row, half;
};

// Those of waves in step: head dim 64 has more to do for the vector port than for L1.
template <int kHdim, bool kByLds = (kHdim > 64)>
struct RowsInStepOf {
  using Type = WaveRows<kHdim>;
};
template <int kHdim>
struct RowsInStepOf<kHdim, true> {
  using Type = RowsByLds<kHdim, 1>;
};
template <int kHdim>
using RowsInStep = RowsInStepOf<kHdim>::Type;

}  // namespace fmha
