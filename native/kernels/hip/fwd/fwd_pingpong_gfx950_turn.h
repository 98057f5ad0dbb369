// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h for head dim 512 on gfx950: 64 keys of K and of V, each with one buffer of
// 64 KB. While four waves multiply by K, loads of the next V write the other buffer, and the other way round.
//
//   budget of 512 registers   O 256, Q 128, S 32, P 16, operands read ahead 24
//   a SIMD, of 64 keys        matrix cycles 4096, LDS cycles of the unit 2560
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_gfx950.h"

namespace fmha {

inline constexpr int kKeysInTurn = 64;

// A wave's part of each tile: sixteen keys, a load each, which has a resource of its own that ends with the
// key.
template <typename Tiles>
class TurnMover {
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  static constexpr int kKeys = Keys::kKeys / Tiles::kWaves;
  static_assert(kKeys == 16 && Keys::kRowBytes == 64 * kChunk && Values::kRowBytes == Keys::kRowBytes);

 public:
  static constexpr bool kMovesBetween = false;
  static constexpr int kAhead = 2;

  __device__ void begin(int wave, int lane_, uint32_t, uint32_t, int, int) {
    first_key = wave * kKeys;
    lane = lane_;
  }

  // Q has passed through the place of both tiles.
  template <typename Owner>
  __device__ void first(const Owner& tiles) const {
    pingpong_barrier();
    _Pragma("unroll") for (int i = 0; i < kKeys; ++i) load_key(tiles, 0, i);
    wait();
    pingpong_barrier();
  }
  // Step i of the products of K[n]: loads of V[n].
  template <typename Owner>
  __device__ void move_beside_scores(const Owner& tiles, int n, int i) {
    if (i == 0) lane = remade(lane);  // the compiler would keep a register for each key's address
    if (i < kKeys) load_value(tiles, n, i);
  }
  // Step i of those of V[n]: loads of K[n + 1].
  template <typename Owner>
  __device__ void move_beside_values(const Owner& tiles, int n, int i) {
    if (i == 0) lane = remade(lane);
    if (i < kKeys) load_key(tiles, n + 1, i);
  }
  // Until what was loaded is in LDS.
  __device__ static void wait() { wait_for_loads<0>(); }

 private:
  template <typename Owner>
  __device__ void load_key(const Owner& tiles, int n, int i) const {
    load_to_lds_unseen<kChunk>(tiles.key_in_memory(n, first_key + i),
                               tiles.key_buffer(n) + (first_key + i) * Keys::kRowBytes,
                               Keys::exchange(i, lane) * kChunk);
  }
  template <typename Owner>
  __device__ void load_value(const Owner& tiles, int n, int i) const {
    load_to_lds_unseen<kChunk>(tiles.value_in_memory(n, first_key + i),
                               tiles.value_buffer(n) + (first_key + i) * Values::kRowBytes,
                               Values::exchange(i, lane) * kChunk);
  }

  int first_key, lane;
};

}  // namespace fmha
