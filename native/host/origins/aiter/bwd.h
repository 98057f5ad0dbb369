// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of AITER's backward kernels (prebuilt/bwd.toml): what they cannot do, and what they are
// handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/bwd_workspace.h"
#include "plan/plan.h"
#include "problem/bwd.h"

namespace fmha::aiter {

// Tells whether the kernels could do the problem at all; if not, the reason is in `why`.
bool bwd_within_limits(const BwdProblem& problem, Refusal& why);

// Adds the launch that makes dK and dV and adds to dq_acc. The problem is within the limits, has queries and
// keys, and the kernel fits it.
void bwd_add_main(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace, Plan& plan);

}  // namespace fmha::aiter
