// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h with 8-bit floats for head dim 256 on gfx950. O and Q take 160 of 256
// registers, S and P of 64 keys 40. Their products take 1024 cycles, and a load may take longer: as with 16
// bits (hip/fwd/fwd_pingpong_gfx950_wide.h) K and V have three buffers each, of 16 KB.
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_gfx950_fp8.h"

namespace fmha {

// A wave's part of each tile: of K a quarter of its group's half of the keys, of V a quarter of the keys with
// its group's half of the dims, in two loads each.
template <typename Tiles>
class Fp8WideMover {
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  static constexpr int kLoadBytes = 64 * kChunk, kLoads = 2;
  static_assert(Tiles::kBuffers == 3 && Keys::kBytes == 8 * kLoads * kLoadBytes);
  static_assert(Keys::kBytes == Values::kBytes && Values::kParts == 2);

 public:
  static constexpr bool kMovesBetween = true;
  static constexpr int kAhead = 2;

  // Head dims in pairs.
  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    first_place = wave / 4 * (Keys::kBytes / 2) + wave % 4 * kLoadBytes;
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int at = place(i) / kChunk + lane, k_key = at / Keys::kChunks;
      k_from[i] = from(k_key, Keys::exchange(k_key, at % Keys::kChunks), k_row, hdim_q);
      const int v_key = at / Values::kChunks % Tiles::kKeys;
      const int chunk = Values::exchange(v_key, at % Values::kChunks) + wave / 4 * Values::kChunks;
      v_from[i] = from(v_key, chunk, v_row, hdim_v);
    }
  }

  template <typename Owner>
  __device__ void first(const Owner& tiles) const {
    _Pragma("unroll") for (int i = 0; i < 2 * kLoads; ++i) load_key(tiles, i / kLoads, i % kLoads);
  }
  // K[n + 2] and V[n + 1]; first of all V[0], whose place was that of Q.
  template <typename Owner>
  __device__ void move(const Owner& tiles, int n) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      if (n == 0) load_value(tiles, 0, i);
    }
    _Pragma("unroll") for (int i = 0; i < 2 * kLoads; ++i) move_some(tiles, n, i);
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
  __device__ int place(int i) const { return first_place + i * 4 * kLoadBytes; }
  __device__ static uint32_t from(int key, int chunk, uint32_t row_bytes, int hdim) {
    return chunk * 8 < hdim ? key * row_bytes + chunk * kChunk : kNowhere;
  }

  template <typename Owner>
  __device__ void load_key(const Owner& tiles, int n, int i) const {
    load_to_lds_unseen<kChunk>(tiles.keys_in_memory(n), tiles.key_buffer(n) + place(i), k_from[i]);
  }
  template <typename Owner>
  __device__ void load_value(const Owner& tiles, int n, int i) const {
    load_to_lds_unseen<kChunk>(tiles.values_in_memory(n), tiles.value_buffer(n) + place(i), v_from[i]);
  }

  int first_place;
  uint32_t k_from[kLoads], v_from[kLoads];
};

}  // namespace fmha
