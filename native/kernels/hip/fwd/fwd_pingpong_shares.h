// SPDX-License-Identifier: MIT OR Apache-2.0
// Waves of a workgroup of hip/fwd/fwd_pingpong.h that have the same rows and different keys: how their parts
// of O become one.
//
// Each wave leaves its lanes' references and sums in LDS, so that all know the row's. Then each scales its O
// to the row's and leaves it there too, as many chunks of 16 dims at a time as there are shares; a wave adds
// up one chunk of all shares, and stores it.
#pragma once

#include "common/device.h"
#include "hip/common/memory.h"
#include "hip/common/pingpong_parts.h"
#include "hip/fwd/fwd_pingpong_rows.h"

namespace fmha {

template <int kShares, int kWavesOfShare>
class Shares {
  static constexpr int kWaves = kShares * kWavesOfShare;
  static constexpr int kVectorBytes = 64 * sizeof(Float4);  // of a wave

 public:
  static constexpr int kLdsBytes = kShares * kWaves * 2 * kVectorBytes;

  // `wave` of its share.
  __device__ Shares(LdsByte* lds, int share_, int wave_, int lane_)
      : area(lds), share(share_), wave(wave_), lane(lane_) {}

  // Makes the lane's reference and sum those of all shares; returns the factor on what the share has of O.
  template <typename Rows>
  __device__ float join(Rows& rows) const {
    const Float2 own = rows.state();
    meet();
    lds_store(state_of(share), own);
    meet();
    Float2 states[kShares];
    _Pragma("unroll") for (int i = 0; i < kShares; ++i) states[i] = lds_load<Float2>(state_of(i));
    meet();
    return rows.join(states);
  }

  // Calls store_chunk(i, x) for each chunk i of 16 dims that the wave adds up: x are the lane's eight.
  template <int kTilesO, typename StoreChunk>
  __device__ void add_up(const Float16 (&o)[kTilesO], float factor, StoreChunk store_chunk) const {
    static_assert(kTilesO * 2 % kShares == 0);
    _Pragma("unroll") for (int first = 0; first < kTilesO * 2; first += kShares) {
      if (first > 0) meet();
      Float4 x[2];
      _Pragma("unroll") for (int i = 0; i < kShares; ++i) {
        const Float16& of = o[(first + i) / 2];
        const int at = (first + i) % 2 * 8;
        _Pragma("unroll") for (int j = 0; j < 2; ++j) {
          const Float4 scaled = {of[at + 4 * j] * factor, of[at + 4 * j + 1] * factor,
                                 of[at + 4 * j + 2] * factor, of[at + 4 * j + 3] * factor};
          if (i == share) {
            x[j] = scaled;
          } else {
            lds_store(vector_of(i, share, j), scaled);
          }
        }
      }
      meet();
      _Pragma("unroll") for (int i = 1; i < kShares; ++i) {
        _Pragma("unroll") for (int j = 0; j < 2; ++j) {
          x[j] += lds_load<Float4>(vector_of(share, (share + i) % kShares, j));
        }
      }
      store_chunk(first + share, x);
    }
  }

 private:
  __device__ LdsByte* state_of(int i) const {
    return area + ((i * kWavesOfShare + wave) * 64 + lane) * sizeof(Float2);
  }
  // Vector j of chunk `chunk` of a round, by share i.
  __device__ LdsByte* vector_of(int chunk, int i, int j) const {
    return area + ((chunk * kShares + i) * kWavesOfShare + wave) * 2 * kVectorBytes + j * kVectorBytes +
           lane * sizeof(Float4);
  }

  LdsByte* area;
  int share, wave, lane;
};

}  // namespace fmha
