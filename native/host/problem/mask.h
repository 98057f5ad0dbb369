// SPDX-License-Identifier: MIT OR Apache-2.0
// The keys that a query sees: those in a window around its own column.
#pragma once

#include <cstdint>

#include "fmha_rocm.h"

namespace fmha {

struct Mask {
  static constexpr int64_t kUnlimited = INT64_MAX;

  int64_t left;   // keys seen to the left of the own column, besides its own
  int64_t right;  // and to the right
  bool top_left;  // row i is at column i; otherwise at column i + seqlen_k - seqlen_q

  bool hides() const { return left != kUnlimited || right != kUnlimited; }
};

// Reads the mask of a params struct. A side of seqlen_k or more is unlimited. Fails with INVALID_ARGUMENT.
Mask make_mask(fmha_mask kind, int64_t window_left, int64_t window_right, int64_t seqlen_k);

// Makes sides unlimited that hide no key of sequences of these lengths.
void drop_idle_sides(Mask& mask, int64_t seqlen_q, int64_t seqlen_k);

}  // namespace fmha
