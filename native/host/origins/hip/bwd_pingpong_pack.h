// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of our own backward kernels for Instinct (kernels/hip/bwd/bwd_pingpong.h): what they cannot
// do, and what they are handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/bwd_workspace.h"
#include "plan/plan.h"
#include "problem/bwd.h"

namespace fmha::bwd_pingpong {

// Tells whether these kernels could do the problem at all. If not, the reason is in `why`.
bool is_within_limits(const BwdProblem& problem, Refusal& why);

// Adds the launch that makes dQ, dK and dV. The problem is within the limits, has queries and keys, and the
// kernel fits it.
void add_main(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace, Plan& plan);

}  // namespace fmha::bwd_pingpong
