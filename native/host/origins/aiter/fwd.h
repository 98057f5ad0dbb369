// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of AITER's forward kernels (prebuilt/fwd.toml): what they cannot do, and what they are
// handed.
#pragma once

#include "catalogue/catalogue.h"
#include "plan/plan.h"
#include "problem/fwd.h"

namespace fmha::aiter {

// Tells whether AITER's kernels could do the problem at all. Other kernels do what they do, so nobody asks
// why.
bool fwd_within_limits(const FwdProblem& problem);

// One launch. The problem is within the limits, and the kernel fits it.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan);

}  // namespace fmha::aiter
