// SPDX-License-Identifier: MIT OR Apache-2.0
// The choice of the kernel that makes 8-bit floats, and the plan that runs it.
#pragma once

#include "catalogue/catalogue.h"
#include "plan/plan.h"
#include "problem/quantize.h"
#include "select/choose.h"

namespace fmha {

// Fails with the reason if no kernel could do the problem, whichever its dtypes.
void check_quantize_limits(const QuantizeProblem& problem);

// Chooses the best, or the problem's n-th candidate. Fails with UNSUPPORTED, naming the nearest thing that
// works, also if there are fewer than n.
Chosen choose_quantize(const QuantizeProblem& problem, const Target& target, bool counted);

// Adds the steps of a call.
void plan_quantize(const Kernel& kernel, const QuantizeProblem& problem, const Target& target, Plan& plan);

}  // namespace fmha
