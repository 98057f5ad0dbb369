// SPDX-License-Identifier: MIT OR Apache-2.0
// Masks and dropout as CK's kernels of several families are handed them.
#pragma once

#include <cmath>
#include <cstdint>

#include "problem/dropout.h"
#include "problem/mask.h"

namespace fmha::ck {

// CK's numbers for a mask's alignment (GenericAttentionMaskEnum).
inline constexpr int32_t kMaskNone = 0;
inline constexpr int32_t kMaskTopLeft = 1;
inline constexpr int32_t kMaskBottomRight = 2;
inline constexpr int32_t kUnlimited = -1;

struct KernelMask {
  int32_t type, left, right;
};

inline int32_t side(int64_t keys) {
  return keys == Mask::kUnlimited ? kUnlimited : static_cast<int32_t>(keys);
}

inline KernelMask kernel_mask(const Mask& mask) {
  return {mask.top_left ? kMaskTopLeft : kMaskBottomRight, side(mask.left), side(mask.right)};
}

struct KernelDropout {
  float rp_keep;
  int32_t keep_at_most;
};

// As CK's MakeKargs computes them, in its precision: the tests' model does the same.
inline KernelDropout kernel_dropout(const Dropout& dropout) {
  if (!dropout.is_on()) return {0, 0};
  const float p_keep = dropout.p_keep();
  return {static_cast<float>(1.0 / double{p_keep}), static_cast<int32_t>(std::floor(p_keep * 255.0F))};
}

}  // namespace fmha::ck
