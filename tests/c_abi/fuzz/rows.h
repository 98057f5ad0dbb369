// SPDX-License-Identifier: MIT OR Apache-2.0
// The rows of the tensors that a problem works on.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.h"

namespace fmha::fuzz {

inline bool is_group(const fmha_fwd_params& p) { return p.cu_seqlens_q != nullptr; }

// Nothing to compute: no pointer is looked at.
inline bool is_empty(const fmha_fwd_params& p) { return p.batch == 0 || p.nhead_q == 0 || p.seqlen_q == 0; }

struct Rows {
  int64_t first, count;
};

inline Rows sequence_rows(const std::vector<int32_t>& cu, const std::vector<int32_t>& used, bool has_used,
                          int64_t b) {
  const auto i = static_cast<size_t>(b);
  return {cu[i], has_used ? used[i] : cu[i + 1] - cu[i]};
}

// Rows of q (and o, lse, bias, randval) of sequence `b`; in batch mode those of one batch.
inline Rows query_rows(const Case& c, int64_t b) {
  if (!is_group(c.params)) return {0, c.params.seqlen_q};
  return sequence_rows(c.cu_q, c.used_q, c.params.seqused_q != nullptr, b);
}

// Rows of k and v.
inline Rows key_rows(const Case& c, int64_t b) {
  if (!is_group(c.params)) return {0, c.params.seqlen_k};
  return sequence_rows(c.cu_k, c.used_k, c.params.seqused_k != nullptr, b);
}

// Elements from a tensor's first to the row of (b, h, s). A stride of a dimension of size one is not read,
// nor is that of the batch where sequences are packed.
struct Strides {
  int64_t batch, seqlen, head;

  int64_t offset(const fmha_fwd_params& p, int64_t heads, int64_t b, int64_t h, int64_t s) const {
    return (is_group(p) || p.batch == 1 ? 0 : b * batch) + (heads == 1 ? 0 : h * head) + s * seqlen;
  }
};

}  // namespace fmha::fuzz
