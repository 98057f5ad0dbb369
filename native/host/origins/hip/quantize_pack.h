// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of the kernels that make 8-bit floats (hip/quantize/quantize.h): their limits, and what
// they are handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/plan.h"
#include "problem/quantize.h"

namespace fmha::hip_quantize {

// Tells whether the kernels could do the problem, whichever its dtypes; if not, why.
bool within_limits(const QuantizeProblem& problem, Refusal& why);

// Rows that a workgroup does at a time.
int64_t rows_at_once(const Kernel& kernel, const QuantizeProblem& problem);

// Adds the launch, and a memset in front of it if workgroups tell each other a maximum. The problem is within
// the limits, and not empty.
void add_steps(const Kernel& kernel, const QuantizeProblem& problem, const Target& target, Plan& plan);

}  // namespace fmha::hip_quantize
