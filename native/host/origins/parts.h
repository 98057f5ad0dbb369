// SPDX-License-Identifier: MIT OR Apache-2.0
// The host's side of the kernels before and after a backward kernel (hip/bwd/bwd_parts.h): what they are
// handed.
#pragma once

#include "catalogue/catalogue.h"
#include "plan/bwd_workspace.h"
#include "plan/plan.h"
#include "problem/bwd.h"

namespace fmha::bwd_parts {

// Strides as our kernels take them: they read no stride of a dimension of size one but times 0.
inline BwdStrides strides(const View& v) { return {v.stride[kBatch], v.stride[kHead], v.stride[kSeqlen]}; }

// Adds the launch that makes D. Fails with UNSUPPORTED if there are more rows than one launch does.
void add_dot(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace, Plan& plan);

// The terms of a gradient.
struct Parts {
  const float* data;   // nullptr: nothing, so that the gradient is 0
  BwdStrides strides;  // nhead: from one head of the gradient to the next
  int64_t step;        // from one part to the next
  int32_t count;
  bool in_blocks = false;  // see BwdSumParams
};

// Adds the launch that makes a gradient of its parts. Fails like add_dot.
void add_sum(const Kernel& kernel, const View& out, const Parts& parts, bool accumulate, Plan& plan);

// Adds the launch that makes the gradient of a bias 0. Fails like add_dot.
void add_bias_zeros(const Kernel& kernel, const View& dbias, Plan& plan);

// Adds the launch that makes the gradient of the bias of its sums in the workspace. Fails like add_dot.
void add_bias_sum(const Kernel& kernel, const BwdProblem& problem, const BwdWorkspace& workspace, Plan& plan);

}  // namespace fmha::bwd_parts
