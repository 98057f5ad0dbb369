// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of backward kernels that make dQ in one kind of workgroup and dK and dV in another, without
// atomics (kernels/hip/bwd/bwd_fp32_kernel.h, bwd_wmma.h): what they are handed, and what those of float32
// cannot do.
#pragma once

#include "args/bwd_fp32.h"
#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/bwd_workspace.h"
#include "plan/plan.h"
#include "problem/bwd.h"

namespace fmha::two_sided {

// Tells whether the kernel could do the problem at all; if not, the reason is in `why`.
bool is_within_limits(const BwdProblem& problem, Refusal& why);

// Sets the fields of a problem but for those of the bias's gradient and the numbers of tiles.
void set_problem(const BwdProblem& problem, const BwdWorkspace& workspace, BwdFp32Params& args);

// Adds the launch that makes dQ, dK and dV. Fails with UNSUPPORTED if there are more tiles than one launch
// does. The problem is within the limits, has queries and keys, and the kernel fits it.
void add_main(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace, Plan& plan);

// Adds the launch that makes the gradient of the bias 0, of a problem that has no queries or no keys. Fails
// like add_main.
void add_bias_zeros(const Kernel& kernel, const BwdProblem& problem, Plan& plan);

}  // namespace fmha::two_sided
