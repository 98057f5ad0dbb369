// SPDX-License-Identifier: MIT OR Apache-2.0
// The waves of a workgroup of hip/fwd/fwd_pingpong.h, and their tiles in LDS; and how O leaves as float32.
#pragma once

#include "common/device.h"
#if defined(__gfx950__)
#include "hip/fwd/fwd_pingpong_gfx950_fp8.h"
#include "hip/fwd/fwd_pingpong_gfx950_fp8_wide.h"
#include "hip/fwd/fwd_pingpong_gfx950_wide.h"
#else
#include "hip/fwd/fwd_pingpong_gfx942_fp8.h"
#include "hip/fwd/fwd_pingpong_gfx942_wide.h"
#endif

namespace fmha {

inline constexpr int kPingpongRows = 32;  // of a wave

// Tiles in LDS. Rows are of 64, 128, 192 or 256 dims, of which two of 8 bits count as one: those behind the
// tile's are zeros that nobody multiplies.
template <typename T, int kDimsQ, int kDimsV, int kTileWaves>
struct PingpongTiles {
  static constexpr int kWaves = kTileWaves;
  // Two waves are in step; of eight one group is at its softmax while the other is at its products.
  static constexpr bool kInStep = kWaves == 2;
  static constexpr bool kFp8 = sizeof(T) == 1;
  static constexpr int kHdimQ = ((kFp8 ? kDimsQ / 2 : kDimsQ) + 63) / 64 * 64;
  static constexpr int kHdimV = (kDimsV + 63) / 64 * 64;  // O's: none of them counts as half
  static constexpr int kKeys = kFp8 ? kFp8Keys<kHdimV> : kInStep ? 32 : kPingpongKeys<kHdimQ, kHdimV>;
  using Keys = KeysInLds<kHdimQ, kKeys>;
  using Values = ValuesOf<T, kHdimV, kKeys>::Type;
  static constexpr bool kWide = kHdimV > 192;  // O and Q take 192 registers of 256
  // Of K, and as many of V
  static constexpr int kBuffers = kWide ? kPingpongWideBuffers : kInStep && !kLoadsWriteLds ? 1 : 2;
  static constexpr int kTilesBytes = kBuffers * (Keys::kBytes + Values::kBytes);
  // A group's rows of O pass through tiles, or through a place of their own where those are too small. Those
  // of head dim 256 pass in halves, for which both groups have a place.
  static constexpr int kHdimO = kWide ? kHdimV / 2 : kHdimV;
  static constexpr int kBytesOfO = kWaves / 2 * WaveRows<kHdimO>::kBytes;
  static constexpr bool kOHasPlace = kBytesOfO > Keys::kBytes;
  static constexpr int kLdsBytes = kTilesBytes + (kWide ? 2 : kOHasPlace ? 1 : 0) * kBytesOfO;
  // Q passes through the end, beside the tiles of K that are loaded meanwhile.
  static constexpr int kPlaceOfQ = kLdsBytes - kWaves * WaveRows<kHdimQ>::kBytes;
  static_assert(!kOHasPlace || kBytesOfO <= 2 * Keys::kBytes);
  static_assert(kPlaceOfQ >= (kBuffers > 2 ? kBuffers - 1 : 1) * Keys::kBytes ||
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
