// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h for head dim 512 on gfx942: 32 keys of K and of V, each with one buffer of
// 32 KB. While four waves multiply by K, they store V to the other buffer and load the next K into the
// registers that become free, and the other way round: so a load has the time of a phase to arrive. Every
// address of a wave's stores is the first one with some bits flipped.
//
//   budget of 512 registers   O 256, Q 128, S 16, P 8, K or V on its way 32, operands read ahead 16
//   a SIMD, of 32 keys        matrix cycles 4096, LDS cycles of the unit 2560
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_gfx942.h"

namespace fmha {

inline constexpr int kKeysInTurn = 32;

// A wave's part of each tile: eight keys of K; of V a lane has four times four keys by four dims.
template <typename Tiles>
class TurnMover {
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  static constexpr int kKeys = Keys::kKeys / Tiles::kWaves, kOctets = Keys::kKeys / 8, kDims = 4;
  // A phase's steps, of which each moves a part.
  static constexpr int kSteps = 16, kStepsOfOctet = kSteps / kOctets, kKeysOfOctet = kKeys / kOctets;
  static_assert(Tiles::kWaves == 4 && Keys::kRowBytes == 64 * kChunk, "a load has a key");
  static_assert(Values::kRowBytes == 64 && Tiles::kHdimV == kDims * 32 * Tiles::kWaves &&
                kDims == kStepsOfOctet);

 public:
  static constexpr bool kMovesBetween = false;
  static constexpr int kAhead = 1;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    k_from = lane * 8 < hdim_q ? wave * kKeys * k_row + lane * kChunk : kNowhere;
    k_step = k_row;
    k_to = Keys::place(wave * kKeys, lane);
    const int half = lane & 1, dim = (wave * 32 + lane / 2) * kDims;
    v_from = dim < hdim_v ? half * 4 * v_row + dim * 2 : kNowhere;
    v_step = v_row;
    v_to = Values::place(dim, 0) + half * 8;
  }

  template <typename Owner>
  __device__ void first(const Owner& tiles) {
    _Pragma("unroll") for (int i = 0; i < kKeys; ++i) load_key(tiles.keys_in_memory(0), i);
    _Pragma("unroll") for (int i = 0; i < kKeys; ++i) store_key(tiles.key_buffer(0), i);
    _Pragma("unroll") for (int i = 0; i < kOctets; ++i) load_values(tiles.values_in_memory(0), i);
    pingpong_barrier();
  }
  // Step i of the products of K[n]: V[n] to LDS, and loads of K[n + 1].
  template <typename Owner>
  __device__ void move_beside_scores(const Owner& tiles, int n, int i) {
    if (i >= kSteps) return;
    if (i % kStepsOfOctet == 0) k_from = remade(k_from), v_to = remade(v_to);
    store_value(tiles.value_buffer(n), i / kStepsOfOctet, i % kStepsOfOctet);
    if (i % kStepsOfOctet != kStepsOfOctet - 1) return;
    _Pragma("unroll") for (int j = 0; j < kKeysOfOctet; ++j) {
      load_key(tiles.keys_in_memory(n + 1), i / kStepsOfOctet * kKeysOfOctet + j);
    }
  }
  // Step i of those of V[n]: K[n + 1] to LDS, and loads of V[n + 1].
  template <typename Owner>
  __device__ void move_beside_values(const Owner& tiles, int n, int i) {
    if (i >= kSteps) return;
    if (i % kStepsOfOctet == 0) v_from = remade(v_from), k_to = remade(k_to);
    if (i % kKeysOfOctet == 0) store_key(tiles.key_buffer(n + 1), i / kKeysOfOctet);
    if (i % kStepsOfOctet == kStepsOfOctet - 1) load_values(tiles.values_in_memory(n + 1), i / kStepsOfOctet);
  }
  __device__ static void wait() {}

 private:
  __device__ void load_key(Resource from, int i) { k[i] = buffer_load<Dwords4>(from, k_from + i * k_step); }
  __device__ void store_key(LdsByte* tile, int i) const {
    // As Keys::place(first key + i, lane) has it.
    lds_store(tile + (k_to ^ ((i & 3) | (i & 4) << 1) * kChunk) + i * Keys::kRowBytes, k[i]);
  }
  __device__ void load_values(Resource from, int octet) {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      v[octet][i] = buffer_load<Dwords2>(from, v_from + (octet * 8 + i) * v_step);
    }
  }
  // A lane's block is turned: each of its dims has four keys. As Values::place(dim + i, octet) has it.
  __device__ void store_value(LdsByte* tile, int octet, int i) const {
    const Dwords2(&x)[4] = v[octet];
    const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
    lds_store(tile + (v_to ^ (octet * kChunk ^ ((i & 1) * 4 * kChunk | (i >> 1) * (128 + kChunk)))),
              Dwords2{__builtin_amdgcn_perm(x[1][i / 2], x[0][i / 2], which),
                      __builtin_amdgcn_perm(x[3][i / 2], x[2][i / 2], which)});
  }

  uint32_t k_from, k_step, v_from, v_step;
  int k_to, v_to;
  Dwords4 k[kKeys];
  Dwords2 v[kOctets][4];
};

}  // namespace fmha
