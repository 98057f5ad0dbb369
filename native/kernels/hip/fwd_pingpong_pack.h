// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of our own forward kernels (hip/fwd_pingpong.h): what they cannot do, and what they are
// handed.
#pragma once

#include "args/fwd_pingpong.h"
#include "catalogue/catalogue.h"
#include "problem/fwd.h"
#include "select/plan.h"

namespace fmha::hip_fwd {

inline constexpr int64_t kTileRows = 256;

// Whether these kernels could do the problem at all. Other kernels do what they do, so nobody asks why.
bool fwd_within_limits(const FwdProblem& problem);

// What they are handed.
PingpongParams fwd_params(const FwdProblem& problem);

// One launch. The problem is within the limits, and the kernel fits it.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan);

}  // namespace fmha::hip_fwd
