// SPDX-License-Identifier: MIT OR Apache-2.0
// The choice of the kernel that appends to a cache, and the plan that runs it.
#pragma once

#include "catalogue/catalogue.h"
#include "plan/plan.h"
#include "problem/kv_append.h"
#include "select/choose.h"

namespace fmha {

// Fails with the reason if no kernel could do the problem, whichever its dtypes.
void check_kv_append_limits(const KvAppendProblem& problem);

// Chooses the best, or the problem's n-th candidate. Fails with UNSUPPORTED, naming the nearest thing that
// works, also if there are fewer than n.
Chosen choose_kv_append(const KvAppendProblem& problem, const Target& target, bool counted);

// Adds the step of a call.
void plan_kv_append(const Kernel& kernel, const KvAppendProblem& problem, Plan& plan);

}  // namespace fmha
