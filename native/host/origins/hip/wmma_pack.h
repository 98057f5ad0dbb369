// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of our kernels for Radeon (hip/fwd/fwd_wmma.h, hip/bwd/bwd_wmma.h): what they cannot do,
// and what they are handed.
#pragma once

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/bwd_workspace.h"
#include "plan/plan.h"
#include "problem/bwd.h"
#include "problem/fwd.h"

namespace fmha::wmma {

inline constexpr int64_t kFwdMostTileRows = 128;

// Tells whether these kernels could do the problem at all; if not, the reason is in `why`.
bool fwd_within_limits(const FwdProblem& problem, Refusal& why);
bool bwd_within_limits(const BwdProblem& problem, Refusal& why);

// A mask that hides nothing needs no masked kernel.
inline bool fwd_needs_mask(const FwdProblem& p) { return p.seqlen_k != 0 && p.mask.hides(); }

// One launch. The problem is within the limits, and the kernel fits it.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan);

// Adds the launch that makes dQ, dK and dV. The problem is within the limits, has queries and keys, and the
// kernel fits it.
void bwd_add_main(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace, Plan& plan);

}  // namespace fmha::wmma
