// SPDX-License-Identifier: MIT OR Apache-2.0
// How many keys a row tile sees under a mask: what its time goes by.
#pragma once

#include <algorithm>
#include <cstdint>

#include "problem/fwd.h"

namespace fmha {

// Keys that some row of the tile sees. For packed sequences, those of one with the lengths that bound them
// all.
inline int64_t fwd_keys_of_tile(const FwdProblem& p, int64_t height, int64_t tile) {
  constexpr int64_t kFar = int64_t{1} << 40;
  const int64_t diagonal = p.mask.top_left ? 0 : p.seqlen_k - p.seqlen_q;
  const int64_t first_row = tile * height;
  const int64_t last_row = std::min(first_row + height, p.seqlen_q) - 1;
  const int64_t left = std::min(p.mask.left, kFar), right = std::min(p.mask.right, kFar);
  const int64_t first = std::max<int64_t>(first_row + diagonal - left, 0);
  const int64_t end = std::min(last_row + diagonal + right + 1, p.seqlen_k);
  return std::max<int64_t>(end - first, 0);
}

struct FwdKeys {
  int64_t most, mean;  // of a row tile
};

// The mean is of a few tiles: exact where keys grow from tile to tile or are the same for all but a few.
inline FwdKeys fwd_keys(const FwdProblem& p, int64_t height) {
  if (!p.mask.hides()) return {p.seqlen_k, p.seqlen_k};
  const int64_t last = std::max<int64_t>((p.seqlen_q - 1) / height, 0);
  const int64_t begin = fwd_keys_of_tile(p, height, 0), end = fwd_keys_of_tile(p, height, last);
  const int64_t middle = fwd_keys_of_tile(p, height, last / 2);
  return {std::max({begin, middle, end}), std::max(middle, (begin + end) / 2)};
}

}  // namespace fmha
