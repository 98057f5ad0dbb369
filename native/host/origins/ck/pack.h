// SPDX-License-Identifier: MIT OR Apache-2.0
// Masks as CK's kernels of several families are handed them.
#pragma once

#include <cstdint>

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

}  // namespace fmha::ck
