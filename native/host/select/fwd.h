// SPDX-License-Identifier: MIT OR Apache-2.0
// Forward attention's choice: which kernel does a problem, or why none does, and the plan that runs it.
#pragma once

#include <array>
#include <cstdint>

#include "catalogue/catalogue.h"
#include "origins/hip/fwd_pingpong_pack.h"
#include "plan/fwd_tiles.h"
#include "plan/plan.h"
#include "problem/fwd.h"
#include "select/choose.h"

namespace fmha {

// The answers of the origins of kernels about a problem, before any kernel is looked at.
struct FwdOffers {
  struct Offer {
    bool possible;    // within the origin's limits
    bool needs_mask;  // takes a kernel that was compiled with a mask
    bool whole_bias;  // unpadded kernels can load the bias
    bool takes_sinks;
  };

  const Offer& of(Origin origin) const { return offers[static_cast<size_t>(origin)]; }

  std::array<Offer, kOriginCount> offers;
};

// Fails with the first origin's reason if none could do the problem.
void ask_fwd_origins(const FwdProblem& problem, FwdOffers& offers);

// Chooses the kernel: the best, or the problem's n-th candidate. Fails with UNSUPPORTED, naming the nearest
// thing that works, also if there are fewer than n.
Chosen choose_fwd(const FwdProblem& problem, const FwdOffers& offers, const Target& target, bool counted);

// Returns the rows of a problem that share their keys among workgroups of the chosen kernel; none without a
// workspace.
hip_fwd::Division divide_fwd(const Kernel& kernel, const FwdProblem& problem, const Target& target);

// Adds the steps of a call with that kernel, so divided, or as divide_fwd says.
void plan_fwd(const Kernel& kernel, const FwdProblem& problem, const hip_fwd::Division& division,
              const Target& target, Plan& plan);
inline void plan_fwd(const Kernel& kernel, const FwdProblem& problem, const Target& target, Plan& plan) {
  plan_fwd(kernel, problem, divide_fwd(kernel, problem, target), target, plan);
}

}  // namespace fmha
