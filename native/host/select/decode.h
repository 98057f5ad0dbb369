// SPDX-License-Identifier: MIT OR Apache-2.0
// The choice of a kernel for attention over a KV cache, and the plan that runs it.
#pragma once

#include "catalogue/catalogue.h"
#include "plan/plan.h"
#include "problem/decode.h"
#include "select/choose.h"

namespace fmha {

// Chooses the best, or the problem's n-th candidate. Fails with UNSUPPORTED, naming the nearest thing that
// works, also if there are fewer than n.
Chosen choose_decode(const DecodeProblem& problem, const Target& target, bool counted);

// Adds the steps of a call. Fails with UNSUPPORTED if there is more to do than one launch does.
void plan_decode(const Kernel& kernel, const DecodeProblem& problem, const Target& target, Plan& plan);

}  // namespace fmha
