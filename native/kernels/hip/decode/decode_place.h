// SPDX-License-Identifier: MIT OR Apache-2.0
// A lane's place in its wave, and where the tokens of a workgroup's sequence are.
#pragma once

#include "args/decode.h"
#include "common/device.h"
#include "hip/common/rdna.h"

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
  uint32_t page;         // without pages: the batch element
  uint32_t last_page;    // of the cache
  int page_shift;
  int from, to;  // both included

  // A page that the cache does not have is read as its last one.
  __device__ uint32_t listed(int entry) const { return min(static_cast<uint32_t>(entry), last_page); }
  __device__ int64_t page_of(int at) const { return table ? listed(table[at >> page_shift]) : page; }
  __device__ int slot_of(int at) const { return at & static_cast<int>((1U << page_shift) - 1); }

  // Tokens that no row sees are read as one that some row does: what lies there, if it is memory at all, may
  // be NaN, and NaN times 0 is NaN.
  __device__ int within(int at) const { return min(max(at, from), to); }

  // 16 tokens, of which the first is a multiple of 16, lie in one page: its number is then one scalar load.
  __device__ bool is_whole() const { return page_shift >= 4; }

  // Where the tokens of a tile are, of a head whose data begins at `data`: the cache has rows of head dims.
  template <typename C>
  struct Tokens {
    const DecodePlace& place;
    const C* data;
    const CacheStrides& strides;
    int first = 0;  // is_whole(): a token of the tile, whose address this is

    __device__ Tokens(const DecodePlace& of, const void* head, const CacheStrides& s, int tile)
        : place(of), data(static_cast<const C*>(head)), strides(s) {
      if (!place.is_whole()) return;
      first = __builtin_amdgcn_readfirstlane(place.within(tile));
      data += offset(first);
    }

    __device__ const C* at(int token) const {
      return data + (place.is_whole() ? (token - first) * strides.token : offset(token));
    }

   private:
    __device__ int64_t offset(int token) const {
      return place.page_of(token) * strides.page + place.slot_of(token) * strides.token;
    }
  };
};

}  // namespace fmha
