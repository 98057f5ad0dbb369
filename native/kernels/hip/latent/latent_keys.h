// SPDX-License-Identifier: MIT OR Apache-2.0
// The keys of hip/latent/latent.h on their way from the cache to LDS: each wave moves eight of a block's 32.
// On gfx950 loads write LDS, where two blocks have room; elsewhere what was loaded waits in registers.
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
    return kRests + key * kRest * 2 + (chunk ^ key % kRestChunks) * kChunk;
  }
};

// T of the cache.
template <typename T>
class LatentKeys {
  using Block = LatentBlock;
  static constexpr int kOwnKeys = Block::kOwnKeys, kLanes = 64 / kOwnKeys;  // of a key's rest

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
    k = static_cast<const T*>(work.p.k) + blockIdx.y * work.p.k_strides.nhead;
  }

  // Calls do_block with each block's number, and where it is in LDS.
  template <typename DoBlock>
  __device__ void walk(const DecodeWork& work, DoBlock do_block) {
    int block = work.first_block;
    if (block >= work.last_block) return;
    ask(work, block);
    load(work, block);
    ask(work, block + 1);
    for (; block < work.last_block; ++block) {
      if constexpr (kBuffers == 2) {
        wait_for_loads<0>();
        pingpong_barrier();  // and the block before was read
        if (block + 1 < work.last_block) load(work, block + 1);
      } else {
        pingpong_barrier();  // the block before was read
        store();
        load(work, block + 1);
        pingpong_barrier();
      }
      ask(work, block + 2);
      do_block(block, tile(block));
    }
  }

 private:
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

  // Dims that the cache does not have are others: of q they are 0.
  __device__ void load(const DecodeWork& work, int block) {
    const DecodeParams& p = work.p;
    const int slot = work.place.slot_of(own_key(work.place, block));
    const int64_t at = int64_t{work.place.listed(page)} * p.k_strides.page + slot * p.k_strides.token;
    const int lane = lane_anew(), dim = lane * 8 < p.hdim_q ? lane * 8 : 0;
    LdsByte* first = tile(block) + wave * kOwnKeys * Block::kPitch;
    _Pragma("unroll") for (int i = 0; i < kOwnKeys; ++i) {
      const int64_t key = static_cast<uint32_t>(__builtin_amdgcn_readlane(static_cast<int>(at), i * kLanes)) |
                          int64_t{__builtin_amdgcn_readlane(static_cast<int>(at >> 32), i * kLanes)} << 32;
      move(own[i], first + i * Block::kPitch, k + key + dim);
    }
    // A load writes LDS in the order of its lanes, which exchange chunks by their addresses.
    const int chunk = kBuffers == 2 ? lane % kLanes ^ lane / kLanes : lane % kLanes;
    const int last = Block::kDims + chunk * 8;
    move(rest, tile(block) + Block::kRests + wave * 64 * kChunk, k + at + (last < p.hdim_q ? last : 0));
  }

  // Sixteen bytes of each lane to registers, or to LDS, where the first lane's go to `to`.
  __device__ static void move([[maybe_unused]] Dwords4& loaded, [[maybe_unused]] LdsByte* to, const T* from) {
#if defined(__gfx950__)
    const auto place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to));
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %1, off" ::"s"(place), "v"(from)
                 : "memory");
#else
    loaded = global_load<Dwords4>(from);
#endif
  }

  __device__ void store() const {
    const int lane = lane_anew(), first = wave * kOwnKeys;
    _Pragma("unroll") for (int i = 0; i < kOwnKeys; ++i) {
      lds_store(tiles + (first + i) * Block::kPitch + lane * kChunk, own[i]);
    }
    lds_store(tiles + Block::rest(first + lane / kLanes, lane % kLanes), rest);
  }

  LdsByte* tiles;
  const T* k;  // of this workgroup's head
  int wave;
  int page;  // of the lane's key of the block that is loaded next
  Dwords4 own[kOwnKeys], rest;
};

}  // namespace fmha
