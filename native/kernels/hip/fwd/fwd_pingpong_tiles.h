// SPDX-License-Identifier: MIT OR Apache-2.0
// Rows in LDS of hip/fwd/fwd_pingpong.h, whose chunks of 16 bytes are exchanged within a row (see
// hip/common/pingpong_parts.h).
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

// A chunk is exchanged with one of the same 256 bytes, or of 128 bytes in rows of an odd number of those.
template <int kChunks>
inline constexpr int kExchanged = kChunks % 16 == 0 ? 16 : 8;

// The place of the chunk that lies `chunks` behind one of a row's first two, whose place is `at`.
template <int kChunks, typename Byte>
__device__ inline Byte* chunk_behind(Byte* at, int chunks) {
  constexpr int n = kExchanged<kChunks>;
  return flipped(at, chunks % n * kChunk) + chunks / n * n * kChunk;
}

// K: a row is a key. A matrix instruction's lanes read the keys of place_of_row: of eight in turn bits 0, 1
// and 3 say which, of sixteen bits 0 to 3.
template <int kHdim, int kTileKeys>
struct KeysInLds {
  static constexpr int kRowBytes = 2 * kHdim;
  static constexpr int kChunks = kRowBytes / kChunk;
  static constexpr int kKeys = kTileKeys;
  static constexpr int kBytes = kKeys * kRowBytes;

  // The chunk that lies in the place of `chunk`, and the other way round.
  __device__ static int exchange(int key, int chunk) {
    const int bit2 = kExchanged<kChunks> == 16 ? (key & 4) << 1 : (key & 4) >> 2;
    return chunk ^ (key & 3) ^ (key & 8) >> 1 ^ bit2;
  }
  __device__ static int place(int key, int chunk) { return key * kRowBytes + exchange(key, chunk) * kChunk; }
};

// Loads from where a resource begins, at an offset in bytes.
template <typename V>
__device__ inline V buffer_load(Resource from, uint32_t at) {
  if constexpr (sizeof(V) == 4) {
    return V(__builtin_amdgcn_raw_buffer_load_b32(from, at, 0, 0));
  } else if constexpr (sizeof(V) == 8) {
    return __builtin_amdgcn_raw_buffer_load_b64(from, at, 0, 0);
  } else {
    static_assert(sizeof(V) == 16);
    return __builtin_amdgcn_raw_buffer_load_b128(from, at, 0, 0);
  }
}

}  // namespace fmha
