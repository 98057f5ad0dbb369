// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of CK's forward kernels (kernels/ck/fwd_kernel.h): what they take of a problem, and what
// they are handed. Their limits are those of origins/limits.h, and that of their grid.
#pragma once

#include "catalogue/catalogue.h"
#include "origins/limits.h"
#include "plan/plan.h"
#include "problem/fwd.h"

namespace fmha::ck {

inline bool fwd_is_usable(const Kernel& kernel) {
  return origins::kTileRows % kernel.fwd.tile_m == 0 && origins::kTileRows % kernel.fwd.tile_n == 0;
}

inline bool fwd_within_limits(const FwdProblem& p, Refusal& why) {
  return origins::batch_fits_z("batch", p.batch, why) && origins::fwd_within_limits(p, why);
}

// A mask that hides nothing needs no masked kernel, unless ALiBi counts from its diagonal: an unmasked kernel
// counts from bottom-right.
inline bool fwd_needs_mask(const FwdProblem& p) {
  if (p.seqlen_k == 0) return false;
  return p.mask.hides() || (p.has_alibi && p.mask.top_left && (p.group || p.seqlen_q != p.seqlen_k));
}

// Kernels that do not pad load the bias by vectors, so each of its rows must begin at a whole vector.
bool fwd_bias_is_whole(const FwdProblem& problem);

// One launch. The problem is within the limits, and the kernel fits it.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan);

}  // namespace fmha::ck
