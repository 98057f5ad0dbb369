// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of hip/bwd/bwd_one_pass.h, which adds up dQ in memory. Grid: as that of args/bwd_pingpong.h,
// without workgroups of queries.
#pragma once

#include <cstdint>

#include "args/bwd_pingpong.h"

namespace fmha {

struct BwdOnePassParams {
  BwdPingpongParams both;  // dq means nothing
  float* dq_sums;          // zeroed; (batch, query head, block of 32 rows, 32 * head dim), see BwdSumParams
  uint8_t* turned_k;       // kTurnedBytes a workgroup
  int32_t row_blocks;      // of a head
  int32_t reserved;

  static constexpr int32_t kTurnedBytes = 65536;
};

}  // namespace fmha
