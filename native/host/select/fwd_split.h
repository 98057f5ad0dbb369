// SPDX-License-Identifier: MIT OR Apache-2.0
// Decides whether workgroups of our own forward kernel (hip/fwd/fwd_pingpong.h) share the keys of some row
// tiles, so that their last round leaves no compute unit idle. Also plans the workspace for the parts.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "origins/hip/fwd_pingpong_pack.h"
#include "plan/plan.h"
#include "problem/fwd.h"

namespace fmha {

// The cost of a workgroup, in the units of the selector's estimate (select/fwd.cc), on a full device.
struct FwdWorkCost {
  int64_t key;    // of its rows
  int64_t start;  // its beginning and end
};

struct FwdSplit {
  hip_fwd::Division division;
  int64_t percent;  // of the time without it, by the estimate
};

// The time of a round of so many workgroups, at most one a unit, in percent of a full one's.
int64_t fwd_share_of_units(int64_t workgroups, int64_t units);

// The best division of the keys, if one is worth it.
FwdSplit fwd_split(const Kernel& kernel, const FwdProblem& problem, const Target& target, FwdWorkCost cost);

// Adds the launch of the kernel and that of the merge.
void plan_split_fwd(const Kernel& kernel, const FwdProblem& problem, const hip_fwd::Division& division,
                    const Target& target, Plan& plan);

}  // namespace fmha
