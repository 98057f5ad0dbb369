// SPDX-License-Identifier: MIT OR Apache-2.0
// Each origin's answers about its kernels over a KV cache and of its parts: see origins/by_name/fwd.h.
#pragma once

#include "error.h"
#include "origins/hip/decode_pack.h"
#include "plan/plan.h"
#include "problem/decode.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

namespace fmha {

// Tells whether an origin's kernels could do the problem, as far as that does not depend on the kernel; if
// not, why.
inline bool decode_within_limits(Origin origin, const DecodeProblem& problem, Refusal& why) {
  switch (origin) {
    case Origin::kCk:
    case Origin::kAiter:
    case Origin::kWmma:
      return false;  // have none
    case Origin::kHip:
      return hip_decode::is_within_limits(problem, why);
  }
  __builtin_unreachable();
}

// Tells whether a row of the catalogue is one of an origin that this library knows.
inline bool decode_is_usable(const Kernel& kernel) { return kernel.origin == Origin::kHip; }

// Tells whether a row of a family of two types is one of an origin that has any.
inline bool two_types_is_usable(const Kernel& kernel) { return kernel.origin == Origin::kHip; }

// Adds the launch of the kernel, which deals the keys to `splits` workgroups.
inline void decode_add_main(const Kernel& kernel, const DecodeProblem& problem,
                            const DecodeWorkspace& workspace, int32_t splits, Plan& plan) {
  switch (kernel.origin) {
    case Origin::kCk:
    case Origin::kAiter:
    case Origin::kWmma:
      return;
    case Origin::kHip:
      return hip_decode::add_main(kernel, problem, workspace, splits, plan);
  }
}

}  // namespace fmha

#pragma GCC diagnostic pop
