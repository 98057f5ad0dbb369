// SPDX-License-Identifier: MIT OR Apache-2.0
// Each origin's answers about its forward kernels: its limits, what it asks of a problem, how a launch is
// made. Only this room names origins. A new one adds a case to each switch; a forgotten one does not compile
// (-Werror=switch).
#pragma once

#include "error.h"
#include "origins/aiter/fwd.h"
#include "origins/ck/fwd.h"
#include "origins/hip/fwd_pingpong_pack.h"
#include "origins/hip/wmma_pack.h"
#include "plan/plan.h"
#include "problem/fwd.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

namespace fmha {

// Tells whether an origin's kernels could do the problem, as far as that does not depend on the kernel; if
// not, why.
inline bool fwd_within_limits(Origin origin, const FwdProblem& problem, Refusal& why) {
  switch (origin) {
    case Origin::kCk:
      return ck::fwd_within_limits(problem, why);
    case Origin::kAiter:
      return aiter::fwd_within_limits(problem);
    case Origin::kHip:
      return hip_fwd::fwd_within_limits(problem, why);
    case Origin::kWmma:
      return wmma::fwd_within_limits(problem, why);
  }
  __builtin_unreachable();
}

// Tells whether the problem takes a kernel that was compiled with a mask.
inline bool fwd_needs_mask(Origin origin, const FwdProblem& problem) {
  switch (origin) {
    case Origin::kCk:
      return ck::fwd_needs_mask(problem);
    case Origin::kAiter:
      return problem.mask.hides();
    case Origin::kHip:
      return problem.seqlen_k != 0 && problem.mask.hides();
    case Origin::kWmma:
      return wmma::fwd_needs_mask(problem);
  }
  __builtin_unreachable();
}

// Tells whether the kernels count sinks in the softmax.
inline bool fwd_takes_sinks(Origin origin) {
  switch (origin) {
    case Origin::kCk:
    case Origin::kAiter:
      return false;
    case Origin::kHip:
    case Origin::kWmma:
      return true;
  }
  __builtin_unreachable();
}

// Tells whether an unpadded kernel can load the problem's bias.
inline bool fwd_bias_is_whole(Origin origin, const FwdProblem& problem) {
  switch (origin) {
    case Origin::kCk:
      return ck::fwd_bias_is_whole(problem);
    case Origin::kAiter:
    case Origin::kHip:
    case Origin::kWmma:
      return false;
  }
  __builtin_unreachable();
}

// Tells whether a workgroup's waves divide the keys of its rows.
inline bool fwd_waves_share_keys(const Kernel& kernel) {
  return kernel.origin == Origin::kHip && kernel.fwd.tile_m == hip_fwd::kShortTileRows &&
         kernel.block_size > hip_fwd::kShortThreads;
}

// The cost of a key for a wave of a kernel, in percent of Composable Kernel's tile of 128 rows by four waves,
// by native/archs.toml; 0: what the size of its tile lets expect (select/fwd.cc).
inline int fwd_pace(const Kernel& kernel) {
  const FwdPaces& paces = arch_info(kernel.arch).fwd_paces;
  switch (kernel.origin) {
    case Origin::kCk:
    case Origin::kWmma:
      return 0;
    case Origin::kAiter:
      return paces.aiter;
    case Origin::kHip:
      if (kernel.fwd.tile_m == hip_fwd::kTurnTileRows) return 0;
      if (kernel.fwd.tile_m == hip_fwd::kShortTileRows) {
        if (fwd_waves_share_keys(kernel)) {
          return kernel.fwd.hdim_q <= 64 ? paces.shares64 : paces.shares128;
        }
        return kernel.fwd.hdim_q <= 64 ? paces.short64 : paces.short128;
      }
      if (is_fp8(kernel.dtype)) return kernel.fwd.hdim_q <= 64 ? paces.fp8_64 : paces.fp8_128;
      return kernel.fwd.hdim_q <= 64 ? paces.pingpong64 : paces.pingpong128;
  }
  __builtin_unreachable();
}

// Tells whether a row of the catalogue keeps what the origin's limits count on.
inline bool fwd_is_usable(const Kernel& kernel) {
  switch (kernel.origin) {
    case Origin::kCk:
      return ck::fwd_is_usable(kernel);
    case Origin::kAiter:
      return true;
    case Origin::kHip:
      return kernel.fwd.tile_m == hip_fwd::kTileRows || kernel.fwd.tile_m == hip_fwd::kTurnTileRows ||
             kernel.fwd.tile_m == hip_fwd::kShortTileRows;
    case Origin::kWmma:
      return kernel.fwd.tile_m > 0 && kernel.fwd.tile_m <= wmma::kFwdMostTileRows;
  }
  return false;  // of an origin that this library does not know
}

// Tells whether the kernels come prebuilt. Such a kernel does nothing that others cannot do.
inline bool fwd_is_prebuilt(Origin origin) { return origin == Origin::kAiter; }

// Tells whether a launch can leave parts of the keys for others to merge: see select/fwd_split.h.
inline bool fwd_can_divide_keys(const Kernel& kernel) {
  switch (kernel.origin) {
    case Origin::kCk:
    case Origin::kAiter:
    case Origin::kWmma:
      return false;
    case Origin::kHip:
      return kernel.fwd.tile_m == hip_fwd::kTileRows;
  }
  return false;
}

// Adds the steps that run the kernel.
inline void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan) {
  switch (kernel.origin) {
    case Origin::kCk:
      return ck::fwd_add_steps(kernel, problem, plan);
    case Origin::kAiter:
      return aiter::fwd_add_steps(kernel, problem, plan);
    case Origin::kHip:
      return hip_fwd::fwd_add_steps(kernel, problem, plan);
    case Origin::kWmma:
      return wmma::fwd_add_steps(kernel, problem, plan);
  }
}

}  // namespace fmha

#pragma GCC diagnostic pop
