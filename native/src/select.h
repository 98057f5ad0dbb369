// SPDX-License-Identifier: MIT OR Apache-2.0
// The one selector: which kernel does a problem, or why none does. Everything that has to know (supported,
// kernel info, prepare, run) asks here, so that no two can disagree.
#pragma once

#include <cstdint>

#include "catalogue.h"
#include "problem.h"

namespace fmha {

struct Grid {
  uint32_t x, y, z;  // workgroups
};

// Fails with UNSUPPORTED, naming the nearest thing that works.
const Kernel& select_kernel(const Problem& problem, Arch arch);

// Workgroups of a kernel that select_kernel returned for this problem. All zero if there is nothing to do.
Grid grid_of(const Kernel& kernel, const Problem& problem);

}  // namespace fmha
