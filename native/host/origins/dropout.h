// SPDX-License-Identifier: MIT OR Apache-2.0
// Dropout as kernels of several origins and families are handed it.
#pragma once

#include <cmath>
#include <cstdint>

#include "problem/dropout.h"

namespace fmha::origins {

struct KernelDropout {
  float rp_keep;
  int32_t keep_at_most;
};

// As ck_tile's MakeKargs computes them, in its precision: the tests' model does the same.
inline KernelDropout kernel_dropout(const Dropout& dropout) {
  if (!dropout.is_on()) return {0, 0};
  const float p_keep = dropout.p_keep();
  return {static_cast<float>(1.0 / double{p_keep}), static_cast<int32_t>(std::floor(p_keep * 255.0F))};
}

}  // namespace fmha::origins
