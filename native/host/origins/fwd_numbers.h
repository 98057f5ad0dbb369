// SPDX-License-Identifier: MIT OR Apache-2.0
// Numbers of forward kernels that both their limits and the packing of their arguments use.
#pragma once

#include "problem/fwd.h"

namespace fmha::origins {

// P, from 0 to 1, is multiplied by this before fp8 kernels round it: the largest number of the type, so that
// its smaller elements lose as little as may be.
inline float fp8_scale_p(DType dtype) { return dtype == DType::kFp8fn ? 448.0F : 240.0F; }

inline constexpr float kLog2E = 1.4426950408889634F;

// The factor on the scores: exponentials are base 2.
inline float scale_log2e(const FwdProblem& p) { return p.softmax_scale * p.qk_descale * kLog2E; }

}  // namespace fmha::origins
