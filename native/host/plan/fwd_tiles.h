// SPDX-License-Identifier: MIT OR Apache-2.0
// How many workgroups a forward kernel takes.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "divide.h"
#include "problem/fwd.h"

namespace fmha {

// Workgroups a (batch, head).
inline int64_t fwd_tiles(const Kernel& kernel, const FwdProblem& problem) {
  // All kernels but those of very wide heads have one tile of V's columns.
  const int64_t columns =
      problem.hdim_v <= kernel.fwd.tile_nv ? 1 : ceil_div(problem.hdim_v, kernel.fwd.tile_nv);
  return ceil_div(problem.seqlen_q, kernel.fwd.tile_m) * columns;
}

}  // namespace fmha
