// SPDX-License-Identifier: MIT OR Apache-2.0
// A lane's place in its wave, and where the tokens of a workgroup's sequence are.
#pragma once

#include <hip/hip_runtime.h>

#include "args/decode.h"
#include "hip/rdna.h"

namespace fmha {

#if defined(FMHA_RDNA)
inline constexpr int kDecodeLanes = 32;  // of a wave
#else
inline constexpr int kDecodeLanes = 64;
#endif
inline constexpr int kDecodeTileRows = 16;  // of queries, and of keys: what a matrix instruction takes

// Keys that lie together of which a lane has the scores, of a tile of 16 and of one row.
inline constexpr int kDecodeRun = kDecodeTileRows * 16 / kDecodeLanes;

__device__ inline int decode_lane() { return threadIdx.x % kDecodeLanes; }
__device__ inline int decode_part() { return decode_lane() / 16; }  // of a wave: sixteen lanes

__device__ inline int decode_wave() { return __builtin_amdgcn_readfirstlane(threadIdx.x / kDecodeLanes); }

// Where the tokens of a workgroup's sequence are, and which of them any of its rows sees.
struct DecodePlace {
  const int32_t* table;  // of pages; nullptr: there are none
  int page;              // without pages: the batch element
  int last_page;         // of the cache
  int page_shift;
  int from, to;  // both included

  // A page that the cache does not have is read as its last one.
  __device__ int listed(int entry) const {
    return static_cast<int>(min(static_cast<uint32_t>(entry), static_cast<uint32_t>(last_page)));
  }
  __device__ int64_t page_of(int at) const { return table ? listed(table[at >> page_shift]) : page; }
  __device__ int slot_of(int at) const { return at & static_cast<int>((1U << page_shift) - 1); }

  // Tokens that no row sees are read as one that some row does: what lies there, if it is memory at all, may
  // be NaN, and NaN times 0 is NaN.
  __device__ int within(int at) const { return min(max(at, from), to); }

  // 16 tokens, of which the first is a multiple of 16, lie in one page: its number is then one scalar load.
  __device__ bool is_whole() const { return page_shift >= 4; }

  // Where a token of a tile is, of a head whose data begins at `data`: the cache has rows of head dims.
  template <typename C>
  __device__ const C* token(const void* data, const CacheStrides& s, int at, int tile) const {
    const auto offset = [&](int token) { return page_of(token) * s.page + slot_of(token) * s.token; };
    if (!is_whole()) return static_cast<const C*>(data) + offset(at);
    const int first = __builtin_amdgcn_readfirstlane(within(tile));
    return static_cast<const C*>(data) + offset(first) + (at - first) * s.token;
  }
};

}  // namespace fmha
