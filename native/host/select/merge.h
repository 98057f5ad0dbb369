// SPDX-License-Identifier: MIT OR Apache-2.0
// The choice of the kernel that merges partial outputs, and the plan that runs it.
#pragma once

#include "catalogue/catalogue.h"
#include "plan/plan.h"
#include "problem/merge.h"
#include "select/choose.h"

namespace fmha {

// Fails with the reason if no kernel could do the problem, whichever its dtypes.
void check_merge_limits(const MergeProblem& problem);

// Chooses the best, or the problem's n-th candidate. Fails with UNSUPPORTED, naming the nearest thing that
// works, also if there are fewer than n.
Chosen choose_merge(const MergeProblem& problem, const Target& target, bool counted);

// Tells whether this build has a kernel that makes O of this type from parts in float32.
bool can_merge(DType o_dtype, const Target& target);

// Adds the step of a call.
void plan_merge(const Kernel& kernel, const MergeProblem& problem, Plan& plan);

}  // namespace fmha
