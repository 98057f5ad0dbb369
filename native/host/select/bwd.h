// SPDX-License-Identifier: MIT OR Apache-2.0
// The backward pass's choice: which kernel does a problem, or why none does, and the plan that runs it.
#pragma once

#include <array>

#include "catalogue/catalogue.h"
#include "plan/plan.h"
#include "problem/bwd.h"
#include "select/choose.h"

namespace fmha {

// The origins that could do a problem, before any kernel is looked at.
struct BwdOffers {
  bool of(Origin origin) const { return possible[static_cast<size_t>(origin)]; }

  std::array<bool, kOriginCount> possible;
};

// Fails if none could do the problem, with the reason of the first one that has kernels of its dtype.
void ask_bwd_origins(const BwdProblem& problem, BwdOffers& offers);

// The kernels of a call: `chosen`, of dQ, dK and dV, is the one that callers are told of and can choose.
struct BwdKernels {
  Chosen chosen;
  const Kernel* dot;
  const Kernel* sum;
  const Kernel* bias;  // nullptr: takes no part
};

// Chooses the best, or the problem's n-th candidate. Fails with UNSUPPORTED, naming the nearest thing that
// works, also if there are fewer than n.
BwdKernels choose_bwd(const BwdProblem& problem, const BwdOffers& offers, const Target& target, bool counted);

// Adds the steps of a call. Fails with UNSUPPORTED if there are more rows than one launch does.
void plan_bwd(const BwdKernels& kernels, const BwdProblem& problem, const Target& target, Plan& plan);

}  // namespace fmha
