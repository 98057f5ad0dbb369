// SPDX-License-Identifier: MIT OR Apache-2.0
// The needs of a backward problem, one bit each, and the words for those that no kernel meets.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "problem/bwd.h"
#include "select/bwd.h"

namespace fmha {

// A message tells them in this order.
enum class BwdNeed : uint8_t {
  kHeadDims,
  kMask,
  kLayout,
  kAlibi,
  kBias,
  kDbias,
  kSoftcap,
  kDropout,
  kDeterministic,
  kLimits
};
inline constexpr int kBwdNeedCount = static_cast<int>(BwdNeed::kLimits) + 1;

// The needs of a problem that a kernel of its dtype does not meet; 0: it can do the problem.
uint32_t unmet_needs(const Kernel& kernel, const BwdProblem& problem, const BwdOffers& offers);

// Fails with UNSUPPORTED: says what no kernel does, and what comes nearest.
[[noreturn]] void raise_bwd_unsupported(const BwdProblem& problem, const BwdOffers& offers, Arch arch);

}  // namespace fmha
