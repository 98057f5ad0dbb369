// SPDX-License-Identifier: MIT OR Apache-2.0
// A merge of partial outputs as the caller asked for it, checked: see problem/fwd.h.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "fmha_rocm.h"
#include "memory/view.h"

namespace fmha {

struct MergeProblem {
  MergeProblem() {}  // make_merge_problem sets every field

  DType dtype;    // of the parts
  DType o_dtype;  // of the result
  int64_t parts;
  int64_t batch, seqlen, nhead, hdim;
  bool base2;       // LSEs are of base 2
  bool accumulate;  // o and lse hold one more part
  bool empty;       // there is no row
  bool checks_memory;
  int32_t candidate;       // as of FwdProblem
  int64_t part, part_lse;  // from one part to the next; 0 of one
  // (batch, seqlen, nhead, hdim) of all parts together: `row` reaches to the last part's.
  View parts_o;
  View parts_lse;  // (batch, nhead, seqlen) of all parts, in the same way
  View o;
  View lse;  // not touched: not wanted
  Extents extents;
};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH. It does not look whether tensors overlap.
void make_merge_problem(const fmha_merge_params* params, Pointers pointers, MergeProblem& problem);

// Takes over the addresses of a call that is like the problem's own in all else: see problem/fwd.h.
void rebind(const fmha_merge_params& params, MergeProblem& problem);

// Fails with INVALID_ARGUMENT if what is written overlaps itself or anything else.
void check_overlaps(const MergeProblem& problem);

}  // namespace fmha
