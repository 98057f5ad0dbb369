// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of our own forward kernels (hip/fwd/fwd_pingpong.h): what they cannot do, and what they are
// handed.
#pragma once

#include "args/fwd_pingpong.h"
#include "catalogue/catalogue.h"
#include "error.h"
#include "plan/plan.h"
#include "problem/fwd.h"

namespace fmha::hip_fwd {

inline constexpr int64_t kTileRows = 256, kTurnTileRows = 128, kShortTileRows = 64;
inline constexpr int64_t kShortThreads = 128;  // of a workgroup of 64 rows, unless its waves divide the keys
inline constexpr int64_t kMostRows = int64_t{1} << 28;  // sums of four lengths and sides are int32

// Returns in how many parts so many heads of all batches are dealt out: one for each XCD of an MI300X, if
// these divide the heads. Any other number of XCDs costs some of the L2's use.
int64_t xcd_parts(int64_t heads);

// Tells whether these kernels could do the problem at all. If not, the reason is in `why`, unless it is a
// feature: the catalogue tells of those.
bool fwd_within_limits(const FwdProblem& problem, Refusal& why);

// Returns their arguments.
PingpongParams fwd_params(const FwdProblem& problem);

// How many workgroups share a row tile, and divide its keys: `parts`, but of the first `whole_tiles` tiles of
// a head none do.
struct Division {
  int32_t whole_tiles, parts;
};

// One launch. The problem is within the limits, and the kernel fits it.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan);

// The same, but parts of the keys leave O and LSE in these arrays (args/fwd_pingpong.h), for others to merge.
void add_divided_steps(const Kernel& kernel, const FwdProblem& problem, const Division& division, float* o,
                       float* lse, Plan& plan);

}  // namespace fmha::hip_fwd
