// SPDX-License-Identifier: MIT OR Apache-2.0
// The one selector: which kernel does a problem, or why none does. Everything that has to know (supported,
// kernel info, prepare, run) asks here, so that no two can disagree.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "problem/problem.h"

namespace fmha {

struct Grid {
  uint32_t x, y, z;  // workgroups
};

// What the choice depends on besides the problem.
struct Target {
  Arch arch;
  int compute_units;
};

struct Candidates {
  const Kernel* kernel;  // the one that runs: the problem's `kernel`-th, or the best
  int number;            // which candidate it is, from 1
  int count;             // of all that can do the problem
};

// The best kernel, or the n-th best if the problem says so. Fails with UNSUPPORTED, naming the nearest thing
// that works, also if there are fewer than n.
const Kernel* find_kernel(const Problem& problem, const Target& target);

// Like find_kernel, but counts.
Candidates list_candidates(const Problem& problem, const Target& target);

// Workgroups of a kernel that find_kernel returned for this problem. All zero if there is nothing to do.
Grid grid_of(const Kernel& kernel, const Problem& problem);

}  // namespace fmha
