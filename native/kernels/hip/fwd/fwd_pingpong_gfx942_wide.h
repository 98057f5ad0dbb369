// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h for head dim 256 on gfx942: loads of K write LDS, and only V waits in
// registers. A tile has 32 keys: K's rows are of 512 bytes, V's of 64. Every address of a wave's loads and
// stores is the first one with some bits flipped, so that each kind takes one register.
//
//   budget of 256 registers   products of V   of K   softmax
//   O, Q                      192             192    192
//   S, P                      8               16     24
//   V on its way              8               8      8
//   operands read ahead       16              16
//   exponentials on their way                        12
//   addresses, row's state    about 12
//   LDS: K, V                 2 * 16 KB each, all there is
//   a phase's matrix cycles   2048
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_gfx942.h"

namespace fmha {

// A wave's part of each tile of K and V: four keys of K; of V a lane has four keys by four dims.
template <typename Tiles>
class WideMover {
  using Keys = Tiles::Keys;
  using Values = Tiles::Values;
  static constexpr int kKeys = Keys::kKeys / 8, kLaneBytes = 4, kLoadBytes = 64 * kLaneBytes;
  static constexpr int kLoadsOfKey = Keys::kRowBytes / kLoadBytes;
  static constexpr int kDims = 4, kBlocksOfRow = Tiles::kHdimV / kDims;
  static_assert(kKeys == 4 && Keys::kChunks % 16 == 0, "a key's exchange flips bits 0 to 3 of its chunks");
  static_assert(Values::kRowBytes == 64 && kBlocksOfRow == 64);

 public:
  static constexpr bool kMovesBetween = false;
  static constexpr int kAhead = 1;

  __device__ void begin(int wave, int lane, uint32_t, uint32_t v_row, int, int hdim_v) {
    first_key = wave * kKeys;
    constexpr int kLanesOfChunk = kChunk / kLaneBytes;
    k_from = Keys::exchange(first_key, lane / kLanesOfChunk) * kChunk + lane % kLanesOfChunk * kLaneBytes;
    const int half = lane & 1, block = wave % 4 * 32 + lane / 2;
    const int dim = block % kBlocksOfRow * kDims, octet = wave / 4 * 2 + block / kBlocksOfRow;
    v_from = dim < hdim_v ? (octet * 8 + half * 4) * v_row + dim * 2 : kNowhere;
    v_step = v_row;
    v_to = Values::place(dim, octet) + half * 8;
  }

  template <typename Owner>
  __device__ void first(const Owner& tiles) {
    load_keys(tiles, 0);
    load_keys(tiles, 1);
    load_values(tiles.values_in_memory(0));
    wait();
  }
  // K[n + 1], unless first() has loaded it, and V[n] to LDS.
  template <typename Owner>
  __device__ void move(const Owner& tiles, int n) {
    store_values(tiles.value_buffer(n));
    if (n > 0) load_keys(tiles, n + 1);
    load_values(tiles.values_in_memory(n + 1));
  }
  // Until K is in LDS; the four loads of V behind it go on.
  __device__ static void wait() { wait_for_loads<4>(); }

 private:
  // Each key has a resource of its own, which ends with the key.
  template <typename Owner>
  __device__ void load_keys(const Owner& tiles, int n) const {
    LdsByte* tile = tiles.key_buffer(n) + first_key * Keys::kRowBytes;
    _Pragma("unroll") for (int key = 0; key < kKeys; ++key) {
      const Resource memory = tiles.key_in_memory(n, first_key + key);
      _Pragma("unroll") for (int i = 0; i < kLoadsOfKey; ++i) {
        load_to_lds(memory, tile + key * Keys::kRowBytes, kLaneBytes, k_from ^ key * kChunk, 0,
                    i * kLoadBytes, 0);
      }
    }
    __builtin_amdgcn_sched_barrier(0);
  }
  __device__ void load_values(Resource from) {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) v[i] = buffer_load<Dwords2>(from, v_from + i * v_step);
  }
  // A lane's block is turned: each of its dims has four keys.
  __device__ void store_values(LdsByte* tile) {
    v_to = remade(v_to);
    _Pragma("unroll") for (int i = 0; i < kDims; ++i) {
      const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
      // As Values::place(dim + i, octet) has it.
      lds_store(tile + (v_to ^ ((i & 1) * 4 * kChunk | (i >> 1) * (128 + kChunk))),
                Dwords2{__builtin_amdgcn_perm(v[1][i / 2], v[0][i / 2], which),
                        __builtin_amdgcn_perm(v[3][i / 2], v[2][i / 2], which)});
    }
  }

  int first_key;
  uint32_t k_from, v_from, v_step;
  int v_to;
  Dwords2 v[4];
};

}  // namespace fmha
