// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of CK's forward kernels (ck/fwd_kernel.h): what they cannot do, and what they are handed.
#pragma once

#include <algorithm>

#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/plan.h"
#include "problem/fwd.h"

namespace fmha::ck {

// Rows a kernel may address beyond a tensor's end are those that fill its last tile. The height of every tile
// divides this.
inline constexpr int64_t kTileRows = 256;
static_assert((kTileRows & (kTileRows - 1)) == 0, "lengths are rounded up to it by its bits");

inline bool fwd_is_usable(const Kernel& kernel) {
  return kTileRows % kernel.fwd.tile_m == 0 && kTileRows % kernel.fwd.tile_n == 0;
}

// Whether CK's kernels could do the problem at all; if not, the reason is in `why`.
bool fwd_within_limits(const FwdProblem& problem, Refusal& why);

// Whether the mask needs a masked kernel. One that hides nothing needs none, unless ALiBi counts from its
// diagonal: an unmasked kernel counts from bottom-right.
inline bool fwd_needs_mask(const FwdProblem& p) {
  if (p.seqlen_k == 0) return false;
  return p.mask.hides() || (p.has_alibi && p.mask.top_left && (p.group || p.seqlen_q != p.seqlen_k));
}

// Whether each row of the bias begins at a whole vector: kernels that do not pad load it by vectors.
bool fwd_bias_is_whole(const FwdProblem& problem);

// The stride that a kernel is handed of a dimension: the caller's, or for a dimension of size one a
// stride that is aligned and small, and steps over the row, so that rows past the end lie past the end.
inline int64_t kernel_stride(const View& v, Dimension i) {
  return v.size[i] > 1 ? v.stride[i] : std::min<int64_t>(v.row, INT32_MAX / kTileRows);
}

// One launch. The problem is within the limits, and the kernel fits it.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan);

}  // namespace fmha::ck
