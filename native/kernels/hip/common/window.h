// SPDX-License-Identifier: MIT OR Apache-2.0
// The keys that a query sees, and the queries that see a key.
#pragma once

#include "common/device.h"

namespace fmha {

// Rows from `begin` to before `end`.
struct RowRange {
  int begin, end;
};

// Query i lies at key i + diagonal: at the end of both sides, or at the beginning.
__device__ inline int diagonal_of(bool top_left, int seqlen_q, int seqlen_k) {
  return top_left ? 0 : seqlen_k - seqlen_q;
}

// Row i of one side, queries or keys, sees the rows of the other from i + shift - before to i + shift +
// after.
struct Window {
  int shift, before, after;

  __device__ int first(int row) const { return row + shift - before; }
  __device__ int last(int row) const { return row + shift + after; }
  // The rows that any of own rows sees; the other side has `count`.
  __device__ RowRange seen_by(int first_row, int last_row, int count) const {
    return {max(first(first_row), 0), min(last(last_row) + 1, count)};
  }
};

}  // namespace fmha
