// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd/fwd_pingpong.h with 8-bit floats on gfx950: those of half as many dims of 16 bits, except
// that V is turned byte by byte as it is read, and O's dims lie in another order.
#pragma once

#include "common/device.h"
#include "hip/fwd/fwd_pingpong_gfx950.h"

namespace fmha {

template <int kHdim>
inline constexpr int kFp8Keys = kHdim > 128 ? 64 : 128;

// ds_read_b64_tr_b8: sixteen lanes read eight keys by sixteen dims, a lane eight dims of a key, and get eight
// keys of a dim each. For 32 lanes that are served at a time eight keys, two chunks each, lie in different
// banks, since a row fills half of these.
//
// More dims lie 128 by 128. One product takes all keys of a tile of head dim 256, so there each group loads
// half of the dims, and the first tiles that are multiplied are group 1's, which are complete earlier.
template <int kHdim, int kKeys>
struct Fp8ValueTile {
  static constexpr int kRowBytes = 128, kParts = (kHdim + 127) / 128, kPartBytes = kKeys * kRowBytes;
  static constexpr int kBytes = kParts * kPartBytes, kChunks = kRowBytes / kChunk;
  // Eight dims of a read lie together, so that the lane's rows of O are in the order of the product's.
  static constexpr bool kInOrder = true;
  static constexpr int kFirst = kParts > 1 ? 4 : 0;

  __device__ static int exchange(int key, int chunk) { return chunk ^ (key & 6); }

  // Where a lane begins to read.
  __device__ static int begin(int lane) {
    const int key = lane / 32 * 8 + lane % 16 / 2, chunk = lane / 16 % 2;
    return key * kRowBytes + exchange(key, chunk) * kChunk + lane % 2 * 8;
  }

  // Reads 32 dims of sixteen keys of 32, those that the lane has in P: tile t of dims, and step `step` of
  // keys.
  __device__ static Dwords4 read(const LdsByte* tile, int from, int step, int t) {
    using Int2 = __attribute__((ext_vector_type(2))) int;
    using Int2InLds = __attribute__((address_space(3))) Int2;
    const LdsByte* at =
        chunk_behind<kChunks>(tile + from, t % 4 * 2) + t / 4 * kPartBytes + step * 32 * kRowBytes;
    const auto eight = [at](int key) {
      return __builtin_bit_cast(
          Dwords2, __builtin_amdgcn_ds_read_tr8_b64_v2i32((Int2InLds*)(at + key * kRowBytes)));  // NOLINT
    };
    const Dwords2 low = eight(0), high = eight(16);
    return {low[0], low[1], high[0], high[1]};
  }
};

template <typename T, int kHdim, int kKeys>
struct ValuesOf {
  using Type = ValueTile<kHdim, kKeys>;
};
template <int kHdim, int kKeys>
struct ValuesOf<Fp8fn, kHdim, kKeys> {
  using Type = Fp8ValueTile<kHdim, kKeys>;
};

template <typename Tiles>
using Fp8Mover = Mover<Tiles>;

// A lane has four numbers of O of each eight dims, the lane behind 32 more the other four: both get eight
// that lie together, of the sixteen.
__device__ inline Dwords4 gathered(Dwords4 x) {
  const auto low = __builtin_amdgcn_permlane32_swap(x[0], x[2], false, false);
  const auto high = __builtin_amdgcn_permlane32_swap(x[1], x[3], false, false);
  const uint32_t x0 = low[0], x2 = low[1], x1 = high[0], x3 = high[1];
  return {x0, x1, x2, x3};
}

}  // namespace fmha
