// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of the kernels that merge partial outputs (hip/decode/merge.h): their limits, and what they
// are handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/plan.h"
#include "problem/merge.h"

namespace fmha::hip_merge {

// Tells whether the kernels could do the problem, whichever its dtypes; if not, why.
bool within_limits(const MergeProblem& problem, Refusal& why);

// Rows that a workgroup does.
int64_t rows_per_block(const Kernel& kernel, const MergeProblem& problem);

// Adds the launch. The problem is within the limits, and not empty.
void add_steps(const Kernel& kernel, const MergeProblem& problem, Plan& plan);

}  // namespace fmha::hip_merge
