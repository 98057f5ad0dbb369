// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of CK's backward kernels (kernels/ck/bwd_kernel.h): what they are handed. Their limits are
// those of origins/limits.h, and that of their grid.
#pragma once

#include "catalogue/catalogue.h"
#include "origins/limits.h"
#include "plan/bwd_workspace.h"
#include "plan/plan.h"
#include "problem/bwd.h"

namespace fmha::ck {

inline bool bwd_is_usable(const Kernel& kernel) {
  return origins::kTileRows % kernel.bwd.tile_m == 0 && origins::kTileRows % kernel.bwd.tile_n == 0;
}

inline bool bwd_within_limits(const BwdProblem& p, Refusal& why) {
  return origins::batch_fits_z("fwd->batch", p.fwd.batch, why) && origins::bwd_within_limits(p, why);
}

// Adds the launch that makes dK and dV and adds to dq_acc. The problem is within the limits, has queries and
// keys, and the kernel fits it.
void bwd_add_main(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace, Plan& plan);

}  // namespace fmha::ck
