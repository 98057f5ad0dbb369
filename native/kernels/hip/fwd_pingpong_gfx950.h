// SPDX-License-Identifier: MIT OR Apache-2.0
// Tiles of hip/fwd_pingpong.h on gfx950: loads write LDS themselves, 16 bytes a lane, and reads turn V.
//
// A load's 64 lanes fill 1 KB of LDS in their order. So chunks are exchanged within a row by what each lane
// loads: where a chunk lies in LDS is the lane's choice of its address in memory. Both tensors lie as they
// do in memory, a row for a key.
#pragma once

#include <hip/hip_runtime.h>

#include "hip/fwd_pingpong_parts.h"

namespace fmha {

// What clang 20 has no builtin for. `to` is the first lane's, the same in all lanes.
__device__ void load_to_lds(Resource from, LdsByte* to, int bytes, int at, int at_scalar, int offset,
                            int aux) __asm("llvm.amdgcn.raw.ptr.buffer.load.lds");

// ds_read_b64_tr_b16: sixteen lanes read four keys by sixteen dims, a lane four dims of a key, and get four
// keys of a dim each. Of 32 lanes that are served at a time four keys lie in different banks.
template <int kHdim>
struct ValueTile {
  using Shape = KeyTile<kHdim>;

  __device__ static int exchange(int key, int chunk) {
    return chunk ^ (Shape::kChunks == 16 ? (key & 3) << 2 : (key & 2) << 1);
  }

  // Where a lane begins to read.
  __device__ static int begin(int lane) {
    const int key = lane / 32 * 8 + lane % 16 / 4, dim = place_of_row((lane & 16) + lane % 4 * 4);
    return key * Shape::kRowBytes + exchange(key, dim / 8) * kChunk + dim % 8 * 2;
  }

  // Of 32 dims eight keys of 16: tile t of dims, and step `step` of keys.
  __device__ static Dwords4 read(const LdsByte* tile, int from, int step, int t) {
    using Short4InLds = __attribute__((address_space(3))) Short4;
    const LdsByte* at = flipped(tile + from, t * 4 * kChunk) + step * 16 * Shape::kRowBytes;
    const auto four = [at](int i) {
      return __builtin_bit_cast(Dwords2, __builtin_amdgcn_ds_read_tr16_b64_v4i16(
                                             (Short4InLds*)(at + i * 4 * Shape::kRowBytes)));  // NOLINT
    };
    const Dwords2 low = four(0), high = four(1);
    return {low[0], low[1], high[0], high[1]};
  }
};

// Between phases. Only loads write LDS, and wait() waits for those: the fences are the compiler's, and reads
// that go on across the barrier are not waited for.
__device__ inline void pingpong_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "singlethread");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "singlethread");
  __builtin_amdgcn_sched_barrier(0);
}

// What a wave moves of each tile of K and V: a quarter of the half that its group does, in kLoads parts.
template <int kHdim>
class Mover {
  using Shape = KeyTile<kHdim>;
  static constexpr int kLoadBytes = 64 * kChunk;
  static constexpr int kLoads = Shape::kBytes / (8 * kLoadBytes);
  static constexpr int kKeysAtOnce = kLoadBytes / Shape::kRowBytes;
  static constexpr int kKeysOfPart = 4 * kKeysAtOnce;

 public:
  // One by one, between parts of the softmax: L1 takes 16 cycles for each, and four waves ask at a time. They
  // have the rest of the phase to arrive.
  static constexpr bool kMovesBetween = true;
  // Pairs of operands that are read ahead: two MFMA take 64 cycles, LDS twice as long.
  static constexpr int kAhead = 2;

  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    const int place = lane % Shape::kChunks;
    const int first = wave / 4 * (Shape::kKeys / 2) + wave % 4 * kKeysAtOnce,
              key = first + lane / Shape::kChunks;
    const int k_chunk = Shape::exchange(key, place), v_chunk = ValueTile<kHdim>::exchange(key, place);
    static_assert(kKeysOfPart % 16 == 0, "chunks are exchanged by the key's last four bits");
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) {
      const int of_part = key + i * kKeysOfPart;
      k_from[i] = k_chunk * 8 < hdim_q ? of_part * k_row + k_chunk * kChunk : kNowhere;
      v_from[i] = v_chunk * 8 < hdim_v ? of_part * v_row + v_chunk * kChunk : kNowhere;
    }
    to = first * Shape::kRowBytes;
  }

  template <typename Tiles>
  __device__ void first(const Tiles& tiles) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_keys(tiles, 0, i);
    wait();
  }
  // K[n + 1] and V[n].
  template <typename Tiles>
  __device__ void move(const Tiles& tiles, int n) const {
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_keys(tiles, n + 1, i);
    _Pragma("unroll") for (int i = 0; i < kLoads; ++i) load_values(tiles, n, i);
  }
  // The i-th load of that, if there is one.
  template <typename Tiles>
  __device__ void move_some(const Tiles& tiles, int n, int i) const {
    if (i >= 2 * kLoads) return;
    if (i < kLoads) {
      load_keys(tiles, n + 1, i);
    } else {
      load_values(tiles, n, i - kLoads);
    }
  }
  // Until what was loaded is in LDS.
  __device__ static void wait() {
    constexpr int kNoLoads = 0x0f70;
    __builtin_amdgcn_s_waitcnt(kNoLoads);
    __builtin_amdgcn_sched_barrier(0);
  }

 private:
  template <typename Tiles>
  __device__ void load_keys(const Tiles& tiles, int n, int i) const {
    load(tiles.keys_in_memory(n), k_from[i], tiles.key_buffer(n), i);
  }
  template <typename Tiles>
  __device__ void load_values(const Tiles& tiles, int n, int i) const {
    load(tiles.values_in_memory(n), v_from[i], tiles.value_buffer(n), i);
  }
  __device__ void load(Resource from, uint32_t at, LdsByte* tile, int i) const {
    load_to_lds(from, tile + to + i * kKeysOfPart * Shape::kRowBytes, kChunk, at, 0, 0, 0);
  }

  uint32_t k_from[kLoads], v_from[kLoads];
  int to;
};

}  // namespace fmha
