// SPDX-License-Identifier: MIT OR Apache-2.0
// Each origin's answers about its backward kernels: see origins/by_name/fwd.h.
#pragma once

#include "error.h"
#include "origins/aiter/bwd.h"
#include "origins/ck/bwd.h"
#include "origins/hip/bwd_pingpong_pack.h"
#include "origins/hip/wmma_pack.h"
#include "origins/parts.h"
#include "origins/two_sided.h"
#include "plan/plan.h"
#include "problem/bwd.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

namespace fmha {

// Tells whether an origin has kernels of a dtype at all.
inline bool bwd_takes(Origin origin, DType dtype) {
  switch (origin) {
    case Origin::kCk:
    case Origin::kAiter:
    case Origin::kWmma:
      return dtype == DType::kFp16 || dtype == DType::kBf16;
    case Origin::kHip:
      return dtype == DType::kFp16 || dtype == DType::kBf16 || dtype == DType::kFp32;
  }
  return false;
}

// Tells whether an origin's kernels could do the problem, as far as that does not depend on the kernel; if
// not, why.
inline bool bwd_within_limits(Origin origin, const BwdProblem& problem, Refusal& why) {
  switch (origin) {
    case Origin::kCk:
      return ck::bwd_within_limits(problem, why);
    case Origin::kAiter:
      return aiter::bwd_within_limits(problem, why);
    case Origin::kHip:
      return problem.fwd.dtype == DType::kFp32 ? two_sided::is_within_limits(problem, why)
                                               : bwd_pingpong::is_within_limits(problem, why);
    case Origin::kWmma:
      return wmma::bwd_within_limits(problem, why);
  }
  __builtin_unreachable();
}

// Tells whether a row of the catalogue keeps what the origin's limits count on.
inline bool bwd_is_usable(const Kernel& kernel) {
  switch (kernel.origin) {
    case Origin::kCk:
      return ck::bwd_is_usable(kernel);
    case Origin::kAiter:
    case Origin::kHip:
    case Origin::kWmma:
      return true;
  }
  return false;  // of an origin that this library does not know
}

// Adds the launch of the kernel of dQ, dK and dV.
inline void bwd_add_main(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace,
                         Plan& plan) {
  switch (kernel.origin) {
    case Origin::kCk:
      return ck::bwd_add_main(kernel, problem, workspace, plan);
    case Origin::kAiter:
      return aiter::bwd_add_main(kernel, problem, workspace, plan);
    case Origin::kHip:
      return kernel.dtype == DType::kFp32 ? two_sided::add_main(kernel, problem, workspace, plan)
                                          : bwd_pingpong::add_main(kernel, problem, workspace, plan);
    case Origin::kWmma:
      return wmma::bwd_add_main(kernel, problem, workspace, plan);
  }
}

// Adds what makes the gradient of a bias 0, of a problem without queries or keys. `part` is the kernel of the
// sums, of origins that have any.
inline void bwd_add_bias_zeros(const Kernel& kernel, const Kernel* part, const BwdProblem& problem,
                               Plan& plan) {
  switch (kernel.origin) {
    case Origin::kCk:
    case Origin::kAiter:
      return bwd_parts::add_bias_zeros(*part, problem.dbias, plan);
    case Origin::kHip:
    case Origin::kWmma:
      return two_sided::add_bias_zeros(kernel, problem, plan);
  }
}

// Tells whether kernels of an origin leave dK and dV as they are of packed sequences that have no queries.
inline bool bwd_leaves_keys(Origin origin) { return origin == Origin::kAiter; }

// Tells whether an origin has the kernels before and after it.
inline bool bwd_parts_is_usable(const Kernel& kernel) { return kernel.origin == Origin::kHip; }

}  // namespace fmha

#pragma GCC diagnostic pop
