// SPDX-License-Identifier: MIT OR Apache-2.0
// The parts of hip/fwd_pingpong.h: matrix instructions, tiles of K and V in LDS, and the way there.
#pragma once

#include <hip/hip_runtime.h>

#include "hip/decode_numbers.h"
#include "hip/memory.h"

namespace fmha {

using Float16 = __attribute__((ext_vector_type(16))) float;

// a (32 x 8) times b (8 x 32), added to c. Of a, a lane has row lane % 32 and columns lane / 32 * 4 on; of b
// the same with rows and columns exchanged; of c column lane % 32, and in element 4 * i + j row
// 8 * i + lane / 32 * 4 + j.
template <typename T>
__device__ inline Float16 multiply32(Dwords2 a, Dwords2 b, Float16 c) {
  if constexpr (__is_same(T, Fp16)) {
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(Half4, a), __builtin_bit_cast(Half4, b), c,
                                                0, 0, 0);
  } else {
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(Short4, a),
                                                    __builtin_bit_cast(Short4, b), c, 0, 0, 0);
  }
}

#if defined(__gfx950__)
// a (32 x 16) times b (16 x 32): a lane has columns lane / 32 * 8 on.
template <typename T>
__device__ inline Float16 multiply32(Dwords4 a, Dwords4 b, Float16 c) {
  if constexpr (__is_same(T, Fp16)) {
    using Half8 = __attribute__((ext_vector_type(8))) _Float16;
    return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(Half8, a), __builtin_bit_cast(Half8, b),
                                                  c, 0, 0, 0);
  } else {
    using Bfloat8 = __attribute__((ext_vector_type(8))) __bf16;
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(Bfloat8, a),
                                                   __builtin_bit_cast(Bfloat8, b), c, 0, 0, 0);
  }
}
#endif

__device__ inline Dwords2 low_half(Dwords4 x) { return {x[0], x[1]}; }
__device__ inline Dwords2 high_half(Dwords4 x) { return {x[2], x[3]}; }

struct Pair {
  Dwords4 x[2];
};

// Both of a (32 x 16) times b (16 x 32), added to c and d. Which of the 16 columns is which does not matter,
// as long as a and b agree: two products of eight take four of each half of the lanes.
template <typename T>
__device__ inline void multiply_pair(const Pair& a, Dwords4 b, Float16& c, Float16& d) {
#if defined(__gfx950__)
  c = multiply32<T>(a.x[0], b, c);
  d = multiply32<T>(a.x[1], b, d);
#else
  c = multiply32<T>(low_half(a.x[0]), low_half(b), c);
  d = multiply32<T>(low_half(a.x[1]), low_half(b), d);
  c = multiply32<T>(high_half(a.x[0]), high_half(b), c);
  d = multiply32<T>(high_half(a.x[1]), high_half(b), d);
#endif
}

// Which of 32 keys, or dims, is row r of a: so that a lane, which has eight columns of b's product in two
// times four elements, has eight that lie together, and reads them in 16 bytes.
__device__ constexpr int place_of_row(int r) { return (r & 16) | (r & 4) << 1 | (r & 8) >> 1 | (r & 3); }

// 64 KB of LDS: tiles of 16 KB, rows of 16-byte chunks. Chunks are exchanged within a row, so that lanes
// that access a column of chunks find them in different banks.
inline constexpr int kPingpongTileBytes = 16384;

// LDS gives a wave 16 bytes a lane to eight lanes at a time, from 32 banks, or on gfx950 to sixteen, from 64
// (native/emulator/model/profile_lds.h). Rows of 256 bytes fill 64 banks, and two of 128 bytes do.

// K: a row is a key. A matrix instruction's lanes read the keys of place_of_row: of eight in turn bits 0, 1
// and 3 say which, of sixteen bits 0 to 3.
template <int kHdim>
struct KeyTile {
  static constexpr int kRowBytes = 2 * kHdim;
  static constexpr int kChunks = kRowBytes / kChunk;
  static constexpr int kKeys = kPingpongTileBytes / kRowBytes;

  __device__ static int place(int key, int chunk) {
    const int bit2 = kChunks == 16 ? (key & 4) << 1 : (key & 4) >> 2;
    return key * kRowBytes + (chunk ^ (key & 3) ^ (key & 8) >> 1 ^ bit2) * kChunk;
  }
};

// V: a row is a dim. Lanes that read have dims like K's keys, and lanes that write dims that differ in bits
// 2, 3 and 4.
template <int kHdim>
struct ValueTile {
  static constexpr int kKeys = KeyTile<kHdim>::kKeys;
  static constexpr int kRowBytes = 2 * kKeys;

  __device__ static int place(int dim, int chunk) {
    const int swizzle = ((dim ^ dim >> 2) & 1) | ((dim >> 1 ^ dim >> 4) & 1) << 1 | (dim & 8) >> 1;
    const int bit2 = kRowBytes / kChunk == 16 ? (dim & 4) << 1 : 0;
    return dim * kRowBytes + (chunk ^ swizzle ^ bit2) * kChunk;
  }
};

// What a wave moves of each tile of K and V: an eighth. It waits in registers between its load and its store.
template <int kHdim>
class Mover {
  using Keys = KeyTile<kHdim>;
  using Values = ValueTile<kHdim>;
  static constexpr int kTileKeys = Keys::kKeys;
  static constexpr int kLanesOfKey = Keys::kChunks;
  static constexpr int kQuads = kHdim / 4;

 public:
  __device__ void begin(int wave, int lane, uint32_t k_row, uint32_t v_row, int hdim_q, int hdim_v) {
    const int chunk = lane % kLanesOfKey, key = wave * (kTileKeys / 8) + lane / kLanesOfKey;
    constexpr int kKeysAtOnce = 64 / kLanesOfKey;
    _Pragma("unroll") for (int i = 0; i < 2; ++i) {
      k_from[i] = chunk * 8 < hdim_q ? (key + i * kKeysAtOnce) * k_row + chunk * kChunk : kNowhere;
      k_to[i] = Keys::place(key + i * kKeysAtOnce, chunk);
    }
    // Four keys by four dims.
    const int half = lane & 1, quad = (lane >> 1) % kQuads, octet = (lane >> 1) / kQuads;
    const int octets = wave * (kTileKeys / 64) + octet;
    v_from = quad * 4 < hdim_v ? (octets * 8 + half * 4) * v_row + quad * 8 : kNowhere;
    v_step = v_row;
    _Pragma("unroll") for (int i = 0; i < 4; ++i) v_to[i] = Values::place(quad * 4 + i, octets) + half * 8;
  }

  __device__ void load_keys(Resource from) {
    _Pragma("unroll") for (int i = 0; i < 2; ++i) {
      k[i] = __builtin_amdgcn_raw_buffer_load_b128(from, k_from[i], 0, 0);
    }
  }
  __device__ void load_values(Resource from) {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      v[i] = __builtin_amdgcn_raw_buffer_load_b64(from, v_from + i * v_step, 0, 0);
    }
  }
  __device__ void store_keys(LdsByte* tile) const {
    _Pragma("unroll") for (int i = 0; i < 2; ++i) lds_store(tile + k_to[i], k[i]);
  }
  // A lane's block is turned: its four dims have four keys each.
  __device__ void store_values(LdsByte* tile) const {
    _Pragma("unroll") for (int i = 0; i < 4; ++i) {
      const uint32_t which = i % 2 == 0 ? 0x05040100 : 0x07060302;
      lds_store(tile + v_to[i], Dwords2{__builtin_amdgcn_perm(v[1][i / 2], v[0][i / 2], which),
                                        __builtin_amdgcn_perm(v[3][i / 2], v[2][i / 2], which)});
    }
  }

 private:
  uint32_t k_from[2], v_from, v_step;
  int k_to[2], v_to[4];
  Dwords4 k[2];
  Dwords2 v[4];
};

}  // namespace fmha
