// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h on gfx942: what was loaded waits in registers, from where K is stored to
// LDS as it is, and V turned. In some kernels loads of K write LDS themselves, 4 bytes a lane.
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// V: a row is a dim. Lanes that read have dims like K's keys, and lanes that write dims that differ in bits
// 2, 3 and 4.
template <int kHdim>
struct ValueTile {
  static constexpr int kKeys = KeyTile<kHdim>::kKeys;
  static constexpr int kRowBytes = 2 * kKeys;

  __device__ static int place(int dim, int chunk) {
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
template <int kHdim>
class KeysByRegister {
  using Keys = KeyTile<kHdim>;
  static constexpr int kKeysAtOnce = 64 / Keys::kChunks;

 public:
  __device__ void begin(int wave, int lane, uint32_t row_bytes, int hdim) {
    const int chunk = lane % Keys::kChunks, key = wave * (Keys::kKeys / 8) + lane / Keys::kChunks;
    _Pragma("unroll") for (int i = 0; i < 2; ++i) {
      from[i] = chunk * 8 < hdim ? (key + i * kKeysAtOnce) * row_bytes + chunk * kChunk : kNowhere;
      to[i] = Keys::place(key + i * kKeysAtOnce, chunk);
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
    _Pragma("unroll") for (int i = 0; i < 2; ++i) {
      k[i] = __builtin_amdgcn_raw_buffer_load_b128(memory, from[i], 0, 0);
    }
  }
  __device__ void store_tile(LdsByte* tile) const {
    _Pragma("unroll") for (int i = 0; i < 2; ++i) lds_store(tile + to[i], k[i]);
  }

  uint32_t from[2];
  int to[2];
  Dwords4 k[2];
};

// The same by DMA: loads write LDS. The 64 lanes of a load fill 256 bytes in their order, so that a lane
// exchanges chunks by its address in memory. The clock of the software device finds it no faster
// (docs/kernels/fwd_pingpong.md).
template <int kHdim>
class KeysByDma {
  using Keys = KeyTile<kHdim>;
  static constexpr int kLaneBytes = 4, kLanesOfChunk = kChunk / kLaneBytes, kLoadBytes = 64 * kLaneBytes;
  static constexpr int kLoads = Keys::kBytes / (8 * kLoadBytes), kKeysAtOnce = kLoadBytes / Keys::kRowBytes;

 public:
  __device__ void begin(int wave, int lane, uint32_t row_bytes, int hdim) {
    const int first_key = wave * (Keys::kKeys / 8), place = lane / kLanesOfChunk % Keys::kChunks;
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
template <int kHdim, template <int> class KeyMover = KeysByRegister>
class Mover {
  using Values = ValueTile<kHdim>;
  static constexpr int kTileKeys = KeyTile<kHdim>::kKeys;
  static constexpr int kQuads = kHdim / 4;

 public:
  // All at once, in front of the softmax; loads have had a round to arrive. Not so those of the beginning,
  // which are stored behind it.
  static constexpr bool kMovesBetween = false;
  // Pairs of operands that are read ahead: four MFMA take 128 cycles, as long as LDS.
  static constexpr int kAhead = 1;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    keys.begin(wave, lane, k_row, hdim_q);
    // Four keys by four dims.
    const int half = lane & 1, quad = (lane >> 1) % kQuads, octet = (lane >> 1) / kQuads;
    const int octets = wave * (kTileKeys / 64) + octet;
    v_from = quad * 4 < hdim_v ? (octets * 8 + half * 4) * v_row + quad * 8 : kNowhere;
    v_step = v_row;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) v_to[i] = Values::place(quad * 4 + i, octets) + half * 8;
  }

  template <typename Tiles>
  __device__ void first(const Tiles& tiles) {
    keys.first(tiles);
    load_values(tiles.values_in_memory(0));
    wait();
  }
  // K[n + 1] and V[n] to LDS.
  template <typename Tiles>
  __device__ void move(const Tiles& tiles, int n) {
    keys.store(tiles, n);
    store_values(tiles.value_buffer(n));
    keys.load(tiles, n);
    load_values(tiles.values_in_memory(n + 1));
  }
  // Until what loads write to LDS is there.
  __device__ static void wait() { KeyMover<kHdim>::wait(); }

 private:
  __device__ void load_values(Resource from) {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      v[i] = __builtin_amdgcn_raw_buffer_load_b64(from, v_from + i * v_step, 0, 0);
    }
  }
  // A lane's block is turned: its four dims have four keys each.
  __device__ void store_values(LdsByte* tile) const {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
      lds_store(tile + v_to[i], Dwords2{__builtin_amdgcn_perm(v[1][i / 2], v[0][i / 2], which),
                                        __builtin_amdgcn_perm(v[3][i / 2], v[2][i / 2], which)});
    }
  }

  KeyMover<kHdim> keys;
  uint32_t v_from, v_step;
  int v_to[4];
  Dwords2 v[4];
};

template <int kHdim>
using DmaMover = Mover<kHdim, KeysByDma>;

// A wave's 32 rows of Q and O, from and to memory: in LDS there is no room for them.
template <int kHdim>
class WaveRows {
 public:
  static constexpr int kBytes = 0;

  __device__ WaveRows(int wave, int lane, LdsByte*) : row(wave * 32 + lane % 32), half(lane / 32) {}

  // Chunk 2 * i + lane / 32 of row lane % 32, each.
  __device__ void begin_load(Resource from, uint32_t row_bytes, int hdim, Dwords4 (&x)[kHdim / 16]) const {
    _Pragma("unroll") for (int i = 0; i < kHdim / 16; ++i) {
      x[i] = __builtin_amdgcn_raw_buffer_load_b128(from, place(i, row_bytes, hdim), 0, 0);
    }
  }
  __device__ static void end_load(Dwords4 (&)[kHdim / 16]) {}

  __device__ void store(Resource to, uint32_t row_bytes, int hdim, const Dwords4 (&x)[kHdim / 16]) const {
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

}  // namespace fmha
