// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of the forward kernel for WMMA (hip/fwd/fwd_wmma.h): those of our other forward kernel,
// and those of its features.
#pragma once

#include <cstdint>

#include "args/fwd_pingpong.h"

namespace fmha {

// A workgroup does 128 rows of a query head. Grid: as of PingpongParams, with one XCD.
struct FwdWmmaParams {
  PingpongParams plain;
  const void* bias;        // instances with an elementwise bias: of q's dtype
  const float* alibi;      // instances with ALiBi
  uint8_t* randval;        // instances with dropout; nullptr: not stored
  const uint64_t* philox;  // instances with dropout: {seed, offset} on the device; nullptr: the values below
  uint64_t philox_seed;
  uint64_t philox_offset;
  int64_t bias_batch;  // in elements
  int64_t bias_nhead;
  int64_t bias_row;
  int64_t randval_batch;
  int64_t randval_nhead;
  int64_t randval_row;
  int64_t alibi_batch;
  float softcap;         // instances with softcap
  float softmax_scale;   // those again, and with a bias
  float rp_keep;         // dropout: 1 / (1 - p_drop)
  int32_t keep_at_most;  // dropout: random bytes up to this are kept
};

}  // namespace fmha
