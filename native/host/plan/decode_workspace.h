// SPDX-License-Identifier: MIT OR Apache-2.0
// The workspace of attention over a KV cache whose keys are split: the float32 outputs of the splits (splits,
// batch, seqlen_q, nhead_q, hdim_v) and then their LSEs (splits, batch, nhead_q, seqlen_q), each aligned to
// 256 bytes; packed sequences are one batch of all their rows.
#pragma once

#include <cstdint>

#include "problem/decode.h"
#include "problem/merge.h"

namespace fmha {

struct DecodeWorkspace {
  View o, lse;      // of one split; if the keys are not split, the caller's
  int64_t o_split;  // from one split to the next, in elements
  int64_t lse_split;
  int64_t bytes;  // 0: the keys are not split
};

// Addresses are those of the problem's workspace, and mean nothing until it is there.
DecodeWorkspace decode_workspace(const DecodeProblem& problem, int32_t splits);

// Returns the merge of the splits.
MergeProblem merge_of(const DecodeProblem& problem, const DecodeWorkspace& workspace, int32_t splits);

}  // namespace fmha
