// SPDX-License-Identifier: MIT OR Apache-2.0
// The keys of hip/latent/latent.h on their way from the cache to LDS: each wave moves eight of a block's 32.
// On gfx950 loads of 16 bits write LDS, where two blocks have room; all others wait in registers.
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"
#include "hip/decode/decode_work.h"
#include "hip/fwd/fwd_pingpong_softmax.h"

namespace fmha {

inline constexpr int kLatentWaves = 4;

// A block in LDS: each key's first 512 dims, and behind those of all keys the rest of their dims. Chunks of
// rows that follow one another lie in different banks: by the pitch, and those of the rest by an exchange.
struct LatentBlock {
  static constexpr int kOwnKeys = 8, kKeys = kLatentWaves * kOwnKeys;  // of a wave, and of all
  static constexpr int kDims = 512, kRest = 64, kRestChunks = kRest / 8;
  static constexpr int kPitch = kDims * 2 + kChunk;
  static constexpr int kRests = kKeys * kPitch, kBytes = kRests + kKeys * kRest * 2;

  // Where chunk `chunk` of the rest of a key is.
  __device__ static int rest(int key, int chunk) {
    return kRests + key * kRest * 2 + (chunk ^ (key & (kRestChunks - 1))) * kChunk;
  }
};

// T of q, C of the cache. Keys of 8 bits are widened to T between products of values: on gfx950 they go on to
// the other block of LDS, elsewhere to registers.
template <typename T, typename C>
class LatentKeys {
  using Block = LatentBlock;
  static constexpr int kOwnKeys = Block::kOwnKeys, kLanes = 64 / kOwnKeys;  // of a key's rest
  static constexpr int kLoads = kOwnKeys + 1;                               // the last is of the rests
  static constexpr bool kWidens = sizeof(C) == 1;
  using Loaded = __attribute__((ext_vector_type(2 * sizeof(C)))) uint32_t;  // eight dims

 public:
#if defined(__gfx950__)
  static constexpr int kBuffers = 2;
#else
  static constexpr int kBuffers = 1;
#endif
  static constexpr int kLdsBytes = kBuffers * Block::kBytes;

  __device__ void begin(const DecodeWork& work, LdsByte* lds) {
    tiles = lds;
    wave = decode_wave();
    k = static_cast<const C*>(work.p.k) + blockIdx.y * work.p.k_strides.nhead;
  }

  // Calls do_block with each block's number, and where it is in LDS. For the next block, it calls `load` with
  // each part, and `widen`.
  template <typename DoBlock>
  __device__ void walk(const DecodeWork& work, DoBlock do_block) {
    int block = work.first_block;
    if (block >= work.last_block) return;
    ask(work, block);
    load(work, block);
    widen(block, 0, 1);
    for (; block < work.last_block; ++block) {
      if constexpr (kLoadsWriteLds) {
        wait_for_loads<0>();
        pingpong_barrier();  // and the block before was read
      } else if constexpr (kBuffers == 2) {
        wait_for_lds();
        pingpong_barrier();
      } else {
        pingpong_barrier();  // the block before was read
        store();
        pingpong_barrier();
      }
      do_block(block, tile(block));
    }
    if constexpr (kLoadsWriteLds) wait_for_loads<0>();  // they go on behind the last block
  }

  // The way of a block's keys to registers or LDS, whose page was asked for; the last part asks for that of
  // the block behind it. Dims that the cache does not have are others: of q they are 0.
  static constexpr int kLoadParts = 4 + kLoads;
  __device__ void load(const DecodeWork& work, int block, int part) {
    const DecodeParams& p = work.p;
    if (part == 0) slot = work.place.slot_of(own_key(work.place, block));
    if (part == 1) at = int64_t{work.place.listed(page)} * p.k_strides.page;
    const int i = part - 3, lane = lane_anew();
    if (part == 2) {
      at += slot * p.k_strides.token;
      dim = lane * 8 < p.hdim_q ? lane * 8 : 0;
    }
    if (i >= 0 && i < kOwnKeys) {
      const int64_t key = static_cast<uint32_t>(__builtin_amdgcn_readlane(static_cast<int>(at), i * kLanes)) |
                          int64_t{__builtin_amdgcn_readlane(static_cast<int>(at >> 32), i * kLanes)} << 32;
      move(i, tile(block) + (wave * kOwnKeys + i) * Block::kPitch, k + key + dim);
    }
    if (i == kOwnKeys) {
      // A load writes LDS in the order of its lanes, which exchange chunks by their addresses.
      const int chunk = kLoadsWriteLds ? lane % kLanes ^ lane / kLanes : lane % kLanes;
      const int last = Block::kDims + chunk * 8;
      move(i, tile(block) + Block::kRests + wave * 64 * kChunk, k + at + (last < p.hdim_q ? last : 0));
    }
    if (i == kOwnKeys + 1) ask(work, block + 1);
  }
  __device__ void load(const DecodeWork& work, int block) {
    _Pragma("unroll") for (int part = 0; part < kLoadParts; ++part) load(work, block, part);
  }

  // Part `part` of so many of the work on the keys of `block`, which were loaded. If they are many, the last
  // ones have a pair of each lane, or on gfx950 two.
  __device__ void widen(int block, int part, int parts) {
    if constexpr (kWidens) {
      constexpr int kPairs = kBuffers == 2 ? 2 : 1, kPieces = 4 * kLoads / kPairs;
      _Pragma("unroll") for (int i = 0; i < kPieces; ++i) {
        if (part != (parts == 1 ? 0 : parts - kPieces + i)) continue;
        _Pragma("unroll") for (int n = i * kPairs; n < (i + 1) * kPairs; ++n) {
          stored[n / 4][n % 4] = pair_of(loaded[n / 4][n % 4 / 2], n % 2);
          if constexpr (kBuffers == 2) {
            if (n % 4 == 3) store_one(n / 4, tile(block), lane_anew(), stored[n / 4]);
          }
        }
        if (parts > 1) __builtin_amdgcn_sched_barrier(0);
      }
    }
  }

 private:
  static constexpr bool kLoadsWriteLds = kBuffers == 2 && !kWidens;

  __device__ LdsByte* tile(int block) const { return tiles + block % kBuffers * Block::kBytes; }

  // In which page the wave's keys of a block are: eight lanes have a key. Behind the last block they are the
  // last key.
  __device__ void ask(const DecodeWork& work, int block) {
    const DecodePlace& place = work.place;
    page = static_cast<int>(place.page);
    if (place.table != nullptr) {
      page = global_load<int>(place.table + (own_key(place, block) >> place.page_shift));
    }
  }
  __device__ int own_key(const DecodePlace& place, int block) const {
    return place.within(block * Block::kKeys + wave * kOwnKeys + lane_anew() / kLanes);
  }

  // Eight dims of each lane to registers, or to LDS, where the first lane's go to `to`.
  __device__ void move(int i, [[maybe_unused]] LdsByte* to, const C* from) {
    if constexpr (kLoadsWriteLds) {
#if defined(__gfx950__)
      const auto place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to));
      asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %1, off" ::"s"(place), "v"(from)
                   : "memory");
#endif
    } else if constexpr (kWidens) {
      loaded[i] = global_load<Loaded>(from);
    } else {
      stored[i] = global_load<Dwords4>(from);
    }
  }

  // The first pair of four, or the second. While a product is on its way, one number after the other: a
  // conversion of two waits for the matrix unit, by the clock. Those of gfx950 do not.
  __device__ static uint32_t pair_of(uint32_t four, [[maybe_unused]] int second) {
#if defined(__gfx950__)
    return pair_of_fp8<T>(four, second);
#elif defined(FMHA_HAS_FP8)
    return exact_pair<T>(one_of_fp8(four, 2 * second), one_of_fp8(four, 2 * second + 1));
#else
    return four;
#endif
  }

  __device__ void store() const {
    const int lane = lane_anew();
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) store_one(i, tiles, lane, stored[i]);
  }
  __device__ void store_one(int i, LdsByte* to, int lane, Dwords4 x) const {
    const int first = wave * kOwnKeys;
    const int rest = Block::rest(first + lane / kLanes, lane % kLanes);
    lds_store(to + (i < kOwnKeys ? (first + i) * Block::kPitch + lane * kChunk : rest), x);
  }

  LdsByte* tiles;
  const C* k;  // of this workgroup's head
  int wave;
  int page, slot;  // of the lane's key of the block that is loaded next
  int64_t at;      // where that is
  int dim;         // of the lane's chunk of each key
  Loaded loaded[kLoads];
  Dwords4 stored[kLoads];
};

}  // namespace fmha
