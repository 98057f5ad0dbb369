// SPDX-License-Identifier: MIT OR Apache-2.0
// What a problem asks of a kernel, one bit each, and the words for it.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "problem/problem.h"
#include "text.h"

namespace fmha {

// In the order in which a message tells them.
enum class Need : uint8_t { kODType, kHeadDims, kGroup, kMask, kLength, kBias, kSoftcap, kDropout };
inline constexpr int kNeeds = 8;

// The needs of a problem that a kernel of its dtype does not meet; 0: it can do the problem.
uint32_t unmet_needs(const Kernel& kernel, const Problem& problem);

// What a launch of this kernel for this problem may not exceed.
bool fits_grid(const Kernel& kernel, const Problem& problem);

// Fails with UNSUPPORTED: says what no kernel does, and what comes nearest.
[[noreturn]] void fail_unsupported(const Problem& problem, Arch arch);

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Workgroups a (batch, head).
inline int64_t tiles_of(const Kernel& kernel, const Problem& problem) {
  // Of V's columns there is one tile, in all kernels but those of very wide heads.
  const int64_t columns =
      problem.args.hdim_v <= kernel.fwd.tile_nv ? 1 : ceil_div(problem.args.hdim_v, kernel.fwd.tile_nv);
  return ceil_div(problem.args.seqlen_q, kernel.fwd.tile_m) * columns;
}

}  // namespace fmha
