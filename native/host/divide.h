// SPDX-License-Identifier: MIT OR Apache-2.0
// Divisions of numbers that are nearly always small: in 64 bits they take processors two to four times as
// long, and a call makes some ten.
#pragma once

#include <cstdint>

namespace fmha {

// Expects a >= 0 and b > 0, of any size: a caller's numbers come here before anything bounds them.
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  const uint64_t divisor = static_cast<uint64_t>(b), sum = static_cast<uint64_t>(a) + divisor - 1;
  if (((sum | divisor) >> 32) == 0) return static_cast<uint32_t>(sum) / static_cast<uint32_t>(b);
  return static_cast<int64_t>(sum / divisor);
}

// Tells whether a is a multiple of b, for the same.
constexpr bool is_multiple(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) % static_cast<uint32_t>(b) == 0;
  return a % b == 0;
}

}  // namespace fmha
