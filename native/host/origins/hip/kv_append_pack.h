// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of the kernels that append to a cache (hip/decode/kv_append.h): their limits, and what they
// are handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/plan.h"
#include "problem/kv_append.h"

namespace fmha::hip_kv_append {

// Tells whether the kernels could do the problem, whichever its dtypes; if not, why.
bool within_limits(const KvAppendProblem& problem, Refusal& why);

// Rows, each a head of a token, that a workgroup does.
int64_t rows_per_block(const Kernel& kernel, const KvAppendProblem& problem);

// Adds the launch. The problem is within the limits, and not empty.
void add_steps(const Kernel& kernel, const KvAppendProblem& problem, Plan& plan);

}  // namespace fmha::hip_kv_append
