// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of the forward kernels for WMMA (hip/fwd_wmma.h): what they cannot do, and what they are
// handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "problem/fwd.h"
#include "select/plan.h"

namespace fmha::wmma {

inline constexpr int64_t kTileRows = 128;

// Whether these kernels could do the problem at all; if not, why.
bool fwd_within_limits(const FwdProblem& problem, Refusal& why);

// One launch. The problem is within the limits, and the kernel fits it.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan);

}  // namespace fmha::wmma
