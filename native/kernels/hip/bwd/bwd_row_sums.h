// SPDX-License-Identifier: MIT OR Apache-2.0
// LSE and D of the rows that a workgroup of hip/bwd/bwd_side.h walks over.
#pragma once

#include "common/device.h"
#include "hip/common/pingpong_parts.h"

namespace fmha {

#if defined(__gfx950__)
// LSE and D of the rows of a block: each wave loads its own to LDS.
class BwdRowSums {
  static constexpr int kBuffers = 4, kVector = 64 * sizeof(float);

 public:
  static constexpr int kBytesOfWave = kBuffers * 2 * kVector;
  // Waves of either group load them so many blocks before their use.
  static constexpr int kLead = 2;
  static constexpr int kMayMiss = 2;

  __device__ void begin(LdsByte* lds, int wave, int lane) {
    lds_ = lds + wave * kBytesOfWave;
    lane_ = lane;
    at_ = ((lane & 32) | place_of_row(lane % 32)) * 4;
  }

  __device__ void load(int n, Resource lse, Resource d) const {
    const int lane = remade(lane_);
    const uint32_t from = lane < 32 ? lane * 4 : kNowhere;  // the other lanes write zeros
    load_to_lds_unseen<4>(lse, buffer(n), from);
    load_to_lds_unseen<4>(d, buffer(n) + kVector, from);
    __builtin_amdgcn_sched_barrier(0);
  }
  __device__ float lse(int n) const { return lds_load<float>(buffer(n) + at_); }
  __device__ float d(int n) const { return lds_load<float>(buffer(n) + at_ + kVector); }

 private:
  __device__ LdsByte* buffer(int n) const { return lds_ + (n % kBuffers) * 2 * kVector; }

  LdsByte* lds_;
  int lane_, at_;
};

#else
// LSE and D of the rows of a block, which a lane loads to registers.
class BwdRowSums {
 public:
  static constexpr int kBytesOfWave = 0;
  // Waves of either group load them one block before their use.
  static constexpr int kLead = 1;
  static constexpr int kMayMiss = 0;

  __device__ void begin(LdsByte*, int, int lane) { at_ = lane < 32 ? place_of_row(lane) * 4 : kNowhere; }

  __device__ void load(int, Resource lse, Resource d) {
    lse_ = __builtin_amdgcn_raw_buffer_load_b32(lse, at_, 0, 0);
    d_ = __builtin_amdgcn_raw_buffer_load_b32(d, at_, 0, 0);
    __builtin_amdgcn_sched_barrier(0);
  }
  __device__ float lse(int) const { return __builtin_bit_cast(float, lse_); }
  __device__ float d(int) const { return __builtin_bit_cast(float, d_); }

 private:
  uint32_t at_, lse_, d_;
};

#endif

}  // namespace fmha
