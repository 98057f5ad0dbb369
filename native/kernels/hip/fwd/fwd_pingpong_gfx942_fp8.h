// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h with 8-bit floats on gfx942: those of half as many dims of 16 bits, except
// that V is turned byte by byte.
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_gfx942.h"

namespace fmha {

// Keys of a tile, of which K and V fill 64 KB with two each.
template <int kHdim>
inline constexpr int kFp8Keys = kHdim > 128 ? 64 : 128;
inline constexpr int kFp8WideBuffers = 2;  // of head dim 256

template <typename T, int kHdim, int kKeys>
struct ValuesOf {
  using Type = ValueTile<kHdim, kKeys>;
};
// A lane reads 16 keys of 32, those that it has in P: eight, and eight that lie 16 further on. So these lie
// in one chunk.
template <int kHdim, int kKeys>
struct ValuesOf<Fp8, kHdim, kKeys> {
  using Type = ValueTile<kHdim, kKeys / 2>;
};

// A wave's part of each tile of K and V: K as in kernels of 16 bits. A lane has eight keys by four dims of V;
// two lanes have the 16 keys of a chunk. Each group has half of the keys, and perhaps waves without any.
template <typename Tiles>
class Fp8Mover {
  static constexpr int kWaves = Tiles::kWaves, kWavesOfGroup = kWaves / 2;
  using Keys = KeysByRegister<typename Tiles::Keys, kWaves>;
  using Values = Tiles::Values;
  static constexpr int kDims = 4, kOctet = 8, kBlocksOfRow = Tiles::kHdimV / kDims;
  static constexpr int kChunksOfGroup = Tiles::kKeys / kChunk / 2;
  static constexpr int kWavesWithValues = kBlocksOfRow * kChunksOfGroup / 32;  // of a group
  static_assert(kBlocksOfRow * kChunksOfGroup % 32 == 0 && kWavesWithValues <= kWavesOfGroup);

 public:
  static constexpr bool kMovesBetween = false;
  static constexpr int kAhead = 1;

  // Head dims in pairs.
  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    keys.begin(wave, lane, k_row, hdim_q);
    const int block = wave % kWavesOfGroup * 32 + lane / 2, upper = lane & 1;
    const int dim = block % kBlocksOfRow * kDims;
    const int chunk = wave / kWavesOfGroup * kChunksOfGroup + block / kBlocksOfRow;
    has_values = kWavesWithValues == kWavesOfGroup || wave % kWavesOfGroup < kWavesWithValues;
    const int key = chunk / 2 * 32 + chunk % 2 * 8 + upper * 16;
    v_from = dim < 2 * hdim_v ? key * v_row + dim : kNowhere;
    v_step = v_row;
    v_to = Values::place(dim, chunk) + upper * kOctet;
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
  __device__ static void wait() { Keys::wait(); }

 private:
  __device__ void load_values(Resource from) {
    if (!has_values) return;
    _Pragma("unroll") for (int i = 0; i < kOctet; ++i) v[i] =
        buffer_load<uint32_t>(from, v_from + i * v_step);
  }
  // A lane's block is turned: each of its dims has eight keys.
  __device__ void store_values(LdsByte* tile) const {
    if (!has_values) return;
    const Dwords4 low = turned(0), high = turned(4);
    // The places of further dims differ in bits of the first one's.
    _Pragma("unroll") for (int i = 0; i < kDims; ++i) {
      lds_store(flipped(tile + v_to, Values::place(i, 0)), Dwords2{low[i], high[i]});
    }
  }
  // Turns four keys by four dims, from key `first` on: to each dim its keys.
  __device__ Dwords4 turned(int first) const {
    constexpr uint32_t kEven = 0x05010400, kOdd = 0x07030602, kLow = 0x05040100, kHigh = 0x07060302;
    const uint32_t a = __builtin_amdgcn_perm(v[first + 1], v[first], kEven);
    const uint32_t b = __builtin_amdgcn_perm(v[first + 3], v[first + 2], kEven);
    const uint32_t c = __builtin_amdgcn_perm(v[first + 1], v[first], kOdd);
    const uint32_t d = __builtin_amdgcn_perm(v[first + 3], v[first + 2], kOdd);
    return {__builtin_amdgcn_perm(b, a, kLow), __builtin_amdgcn_perm(b, a, kHigh),
            __builtin_amdgcn_perm(d, c, kLow), __builtin_amdgcn_perm(d, c, kHigh)};
  }

  Keys keys;
  bool has_values;
  uint32_t v_from, v_step;
  int v_to;
  uint32_t v[kOctet];
};

template <typename Tiles>
using Fp8WideMover = Fp8Mover<Tiles>;

// O needs no exchange: a lane has eight dims that lie together.
__device__ inline Dwords4 gathered(Dwords4 x) { return x; }

}  // namespace fmha
