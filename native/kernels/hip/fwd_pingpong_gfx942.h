// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd_pingpong.h on gfx942: loads wait in registers, from where K is stored to LDS as it is, and
// V turned.
#pragma once

#include <hip/hip_runtime.h>

#include "hip/fwd_pingpong_parts.h"

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

  // Of 32 dims, tile t of them, eight keys of 16, step `step` of them.
  __device__ static Dwords4 read(const LdsByte* tile, int from, int step, int t) {
    return lds_load<Dwords4>(tile + (from ^ step * 2 * kChunk) + t * 32 * kRowBytes);
  }
};

// Between phases: what was stored is in LDS.
__device__ inline void pingpong_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  __builtin_amdgcn_sched_barrier(0);
}

// What a wave moves of each tile of K and V: an eighth. It waits in registers between its load and its store.
template <int kHdim>
class Mover {
  using Keys = KeyTile<kHdim>;
  using Values = ValueTile<kHdim>;
  static constexpr int kTileKeys = Keys::kKeys;
  static constexpr int kLanesOfKey = Keys::kChunks;
  static constexpr int kQuads = kHdim / 4;

 public:
  // All at once, in front of the softmax; loads have had a round to arrive. Not so those of the beginning,
  // which are stored behind it.
  static constexpr bool kMovesBetween = false;
  // Pairs of operands that are read ahead: four MFMA take 128 cycles, as long as LDS.
  static constexpr int kAhead = 1;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    const int chunk = lane % kLanesOfKey, key = wave * (kTileKeys / 8) + lane / kLanesOfKey;
    constexpr int kKeysAtOnce = 64 / kLanesOfKey;
    _Pragma("unroll") for (int i = 0; i < 2; ++i) {
      k_from[i] = chunk * 8 < hdim_q ? (key + i * kKeysAtOnce) * k_row + chunk * kChunk : kNowhere;
      k_to[i] = Keys::place(key + i * kKeysAtOnce, chunk);
    }
    // Four keys by four dims.
    const int half = lane & 1, quad = (lane >> 1) % kQuads, octet = (lane >> 1) / kQuads;
    const int octets = wave * (kTileKeys / 64) + octet;
    v_from = quad * 4 < hdim_v ? (octets * 8 + half * 4) * v_row + quad * 8 : kNowhere;
    v_step = v_row;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) v_to[i] = Values::place(quad * 4 + i, octets) + half * 8;
  }

  template <typename Tiles>
  __device__ void first(const Tiles& tiles) {
    load_keys(tiles.keys_in_memory(0));
    store_keys(tiles.key_buffer(0));
    load_keys(tiles.keys_in_memory(1));
    load_values(tiles.values_in_memory(0));
  }
  // K[n + 1] and V[n] to LDS.
  template <typename Tiles>
  __device__ void move(const Tiles& tiles, int n) {
    store_keys(tiles.key_buffer(n + 1));
    store_values(tiles.value_buffer(n));
    load_keys(tiles.keys_in_memory(n + 2));
    load_values(tiles.values_in_memory(n + 1));
  }
  __device__ static void wait() {}

 private:
  __device__ void load_keys(Resource from) {
    _Pragma("unroll") for (int i = 0; i < 2; ++i) {
      k[i] = __builtin_amdgcn_raw_buffer_load_b128(from, k_from[i], 0, 0);
    }
  }
  __device__ void load_values(Resource from) {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      v[i] = __builtin_amdgcn_raw_buffer_load_b64(from, v_from + i * v_step, 0, 0);
    }
  }
  __device__ void store_keys(LdsByte* tile) const {
    _Pragma("unroll") for (int i = 0; i < 2; ++i) lds_store(tile + k_to[i], k[i]);
  }
  // A lane's block is turned: its four dims have four keys each.
  __device__ void store_values(LdsByte* tile) const {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
      lds_store(tile + v_to[i], Dwords2{__builtin_amdgcn_perm(v[1][i / 2], v[0][i / 2], which),
                                        __builtin_amdgcn_perm(v[3][i / 2], v[2][i / 2], which)});
    }
  }

  uint32_t k_from[2], v_from, v_step;
  int k_to[2], v_to[4];
  Dwords4 k[2];
  Dwords2 v[4];
};

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
