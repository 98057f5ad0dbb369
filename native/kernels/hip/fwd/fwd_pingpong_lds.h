// SPDX-License-Identifier: MIT OR Apache-2.0
// The waves of a workgroup of hip/fwd/fwd_pingpong.h, and their tiles in LDS; and how O leaves as float32.
//
// Workgroups of two waves, 64 rows, are for windows. Both waves are at the same part of a block of 32 keys.
// Waves of other workgroups hide their latency: up to eight workgroups of a unit at head dim 64. Four times
// two waves are for short problems: they divide the keys (..._shares.h). Four waves are for head dim 512:
// while they multiply by K, they move V, and the other way round (..._turn.h).
//
//   budget, head dim 128      gfx942                gfx950
//   registers: O              64                    64
//     Q                       32                    32
//     S, P                    32, 16                64, 32
//     K and V on their way    16, or 8: K by DMA    none
//     operands read ahead     16                    24
//     addresses, row's state  about 24              about 24
//   LDS: K, V                 2 * 16 KB each        2 * 32 KB each
//   a SIMD, of a block's      64 keys of 256 rows   128 keys of 256 rows
//     matrix cycles           4096                  4096
//     vector cycles           about 2300            2800 or 3800, as exponentials take 8 cycles or 16
//     LDS cycles of the unit  2048                  2560
#pragma once

#include "common/device.h"
#if defined(__gfx950__)
#include "hip/fwd/fwd_pingpong_gfx950_fp8.h"
#include "hip/fwd/fwd_pingpong_gfx950_fp8_wide.h"
#include "hip/fwd/fwd_pingpong_gfx950_turn.h"
#include "hip/fwd/fwd_pingpong_gfx950_wide.h"
#else
#include "hip/fwd/fwd_pingpong_gfx942_fp8.h"
#include "hip/fwd/fwd_pingpong_gfx942_turn.h"
#include "hip/fwd/fwd_pingpong_gfx942_wide.h"
#endif

namespace fmha {

inline constexpr int kPingpongRows = 32;  // of a wave

// Tiles in LDS. Rows are of 64, 128, 192, 256 or 512 dims, of which two of 8 bits count as one: those behind
// the tile's are zeros that nobody multiplies.
template <typename T, int kDimsQ, int kDimsV, int kTileWaves>
struct PingpongTiles {
  static constexpr int kWaves = kTileWaves;
  // Eight waves are two groups, one at its softmax while the other is at its products. Two are in step, and
  // so are four, which have a tile of K and one of V by turns.
  static constexpr bool kInStep = kWaves == 2, kInTurn = kWaves == 4;
  static constexpr bool kFp8 = sizeof(T) == 1;
  static constexpr int kHdimQ = ((kFp8 ? kDimsQ / 2 : kDimsQ) + 63) / 64 * 64;
  static constexpr int kHdimV = (kDimsV + 63) / 64 * 64;  // O's: none of them counts as half
  static constexpr int kKeys = kFp8      ? kFp8Keys<kHdimV>
                               : kInTurn ? kKeysInTurn
                               : kInStep ? 32
                                         : kPingpongKeys<kHdimQ, kHdimV>;
  using Keys = KeysInLds<kHdimQ, kKeys>;
  using Values = ValuesOf<T, kHdimV, kKeys>::Type;
  static constexpr bool kWide = kHdimV > 192;  // O and Q take 192 registers of 256
  // Of K, and as many of V
  static constexpr bool kOneBuffer = kInTurn || (kInStep && !kLoadsWriteLds);
  static constexpr int kBuffers = kOneBuffer ? 1 : kWide ? kPingpongWideBuffers : 2;
  static constexpr int kTilesBytes = kBuffers * (Keys::kBytes + Values::kBytes);
  // A group's rows of O pass through tiles, or through a place of their own where those are too small. Those
  // of head dim 256 pass in halves, for which both groups have a place.
  static constexpr int kHdimO = kWide ? kHdimV / 2 : kHdimV;
  static constexpr int kBytesOfO = kWaves / 2 * WaveRows<kHdimO>::kBytes;
  static constexpr bool kOHasPlace = kBytesOfO > Keys::kBytes;
  static constexpr int kPlacesOfO = kInTurn ? 0 : kWide ? 2 : kOHasPlace ? 1 : 0;
  static constexpr int kLdsBytes = kTilesBytes + kPlacesOfO * kBytesOfO;
  // Q passes through the end, beside the tiles of K that are loaded meanwhile.
  static constexpr int kPlaceOfQ =
      kLdsBytes - kWaves * (kInStep ? RowsInStep<kHdimQ>::kBytes : WaveRows<kHdimQ>::kBytes);
  static_assert(kInTurn || !kOHasPlace || kBytesOfO <= 2 * Keys::kBytes);
  static_assert(kInTurn || kPlaceOfQ >= (kBuffers > 2 ? kBuffers - 1 : 1) * Keys::kBytes ||
                WaveRows<kHdimQ>::kBytes == 0);
};

// Stores O, multiplied by `factor`, as float32: the lane's row, which begins at `row_at`.
template <bool kInOrder, int kTilesO>
__device__ inline void store_as_floats(const Float16 (&o)[kTilesO], float factor, Resource to,
                                       uint32_t row_at, const int& hdim, const int& half) {
  _Pragma("unroll") for (int t = 0; t < kTilesO; ++t) {
    _Pragma("unroll") for (int i = 0; i < 16; i += 4) {
      float x[4];
      _Pragma("unroll") for (int j = 0; j < 4; ++j) x[j] = o[t][i + j] * factor;
      const int dim = kInOrder ? t * 32 + 2 * i + half * 4 : t * 32 + (i & 8) * 2 + (i & 4) + half * 8;
      __builtin_amdgcn_raw_buffer_store_b128(__builtin_bit_cast(Dwords4, x), to,
                                             dim < hdim ? row_at + dim * 4 : kNowhere, 0, 0);
    }
  }
}

}  // namespace fmha
