// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of our kernels over a KV cache (hip/decode/decode.h): what they cannot do, and what they
// are handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/decode_workspace.h"
#include "plan/plan.h"
#include "problem/decode.h"

namespace fmha::hip_decode {

// Tells whether the kernels could do the problem at all; if not, the reason is in `why`.
bool is_within_limits(const DecodeProblem& problem, Refusal& why);

// Adds the launch; the problem is within the limits, and the kernel fits it.
void add_main(const Kernel& kernel, const DecodeProblem& problem, const DecodeWorkspace& workspace,
              int32_t splits, Plan& plan);

}  // namespace fmha::hip_decode
