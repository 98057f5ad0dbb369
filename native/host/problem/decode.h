// SPDX-License-Identifier: MIT OR Apache-2.0
// Attention over a KV cache as the caller asked for it, checked: see problem/fwd.h.
#pragma once

#include <cstdint>

#include "fmha_rocm.h"
#include "memory/workspace.h"
#include "problem/cache.h"
#include "problem/fwd.h"

namespace fmha {

struct DecodeProblem {
  DecodeProblem() {}  // make_decode_problem sets every field

  static constexpr int32_t kMostSplits = 128;

  // The attention itself. Its k and v are not touched; its extents are those of the whole call.
  FwdProblem fwd;
  Cache cache;
  const int32_t* leftpad_k;
  const float* sinks;
  int32_t splits;  // 0: as many as the selector likes
  int32_t seqlen_new;
  bool lse_base2;
  bool checks_memory;
  int32_t candidate;  // as of FwdProblem
  Workspace workspace;
};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH. It does not look whether tensors overlap.
void make_decode_problem(const fmha_decode_params* params, Pointers pointers, DecodeProblem& problem);

// Takes over the addresses of a call that is like the problem's own in all else: see problem/fwd.h.
void rebind(const fmha_decode_params& params, DecodeProblem& problem);

// Fails with INVALID_ARGUMENT if what is written overlaps itself or anything else.
void check_overlaps(const DecodeProblem& problem);

}  // namespace fmha
