// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h for head dim 256 on gfx950. Beside O and Q, which take 192 of 256
// registers, there is room for S and P of 32 keys. Their products take 1024 cycles, and a load may take
// longer. So K and V have three buffers each, of 16 KB, and a load has two more phases to arrive. Each wave's
// O passes through 8 KB of its own, one half after the other, so that LDS is full: 160 KB.
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_gfx950.h"

namespace fmha {

// A wave's part of each tile of K and V: a quarter of the half that its group does, in two loads.
template <typename Tiles>
class WideMover {
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  static constexpr int kLoadBytes = 64 * kChunk, kLoads = Keys::kBytes / (8 * kLoadBytes);
  static constexpr int kRowChunks = Keys::kChunks, kKeysOfLoad = 64 / kRowChunks;
  static_assert(Tiles::kBuffers == 3 && Keys::kBytes == Values::kBytes && kLoads == 2);

 public:
  static constexpr bool kMovesBetween = true;
  static constexpr int kAhead = 2;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    first_key = wave / 4 * (Keys::kKeys / 2) + wave % 4 * kKeysOfLoad;
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int key = key_of(i) + lane / kRowChunks, place = lane % kRowChunks;
      k_from[i] = from(key, Keys::exchange(key, place), k_row, hdim_q);
      v_from[i] = from(key, Values::exchange(key, place), v_row, hdim_v);
    }
  }

  template <typename Owner>
  __device__ void first(const Owner& tiles) const {
    load_keys(tiles, 0);
    load_keys(tiles, 1);
  }
  // K[n + 2] and V[n + 1]; first of all V[0], whose place was that of Q.
  template <typename Owner>
  __device__ void move(const Owner& tiles, int n) const {
    if (n == 0) load_values(tiles, 0);
    load_keys(tiles, n + 2);
    load_values(tiles, n + 1);
  }
  // The i-th load of that, if there is one.
  template <typename Owner>
  __device__ void move_some(const Owner& tiles, int n, int i) const {
    if (i < kLoads) {
      load_key(tiles, n + 2, i);
    } else if (i < 2 * kLoads) {
      load_value(tiles, n + 1, i - kLoads);
    }
  }
  // Until what the round before has loaded is in LDS.
  __device__ static void wait() { wait_for_loads<2 * kLoads>(); }

 private:
  __device__ int key_of(int i) const { return first_key + i * 4 * kKeysOfLoad; }
  __device__ static uint32_t from(int key, int chunk, uint32_t row_bytes, int hdim) {
    return chunk * 8 < hdim ? key * row_bytes + chunk * kChunk : kNowhere;
  }

  template <typename Owner>
  __device__ void load_keys(const Owner& tiles, int n) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_key(tiles, n, i);
  }
  template <typename Owner>
  __device__ void load_values(const Owner& tiles, int n) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_value(tiles, n, i);
  }
  template <typename Owner>
  __device__ void load_key(const Owner& tiles, int n, int i) const {
    load_to_lds_unseen<kChunk>(tiles.keys_in_memory(n), tiles.key_buffer(n) + key_of(i) * Keys::kRowBytes,
                               k_from[i]);
  }
  template <typename Owner>
  __device__ void load_value(const Owner& tiles, int n, int i) const {
    load_to_lds_unseen<kChunk>(tiles.values_in_memory(n), tiles.value_buffer(n) + key_of(i) * Keys::kRowBytes,
                               v_from[i]);
  }

  int first_key;
  uint32_t k_from[kLoads], v_from[kLoads];
};

}  // namespace fmha
