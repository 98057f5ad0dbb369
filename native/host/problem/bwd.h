// SPDX-License-Identifier: MIT OR Apache-2.0
// The backward pass as the caller asked for it, checked: see problem/fwd.h.
#pragma once

#include <cstdint>

#include "catalogue/catalogue.h"
#include "fmha_rocm.h"
#include "memory/view.h"
#include "memory/workspace.h"
#include "problem/fwd.h"

namespace fmha {

struct BwdProblem {
  BwdProblem() {}  // make_bwd_problem sets every field

  // The attention itself. Its extents are those of the whole call. Its `empty` says that no row of queries is
  // read: dk and dv may still have to be written, as zeros.
  FwdProblem fwd;
  DType grad_dtype;  // of dq, dk, dv and dbias
  bool accumulate;   // gradients are added to what is there
  bool deterministic;
  bool checks_memory;
  int32_t candidate;  // as of FwdProblem
  View dout;
  View dq;  // these three are touched if they have elements
  View dk, dv;
  // Touched if it is wanted and has elements. Dimensions that are summed over have size 1.
  View dbias;
  bool has_dbias;  // it was asked for, even if it has no elements
  Workspace workspace;

  bool has_queries() const { return dq.touched; }
  bool has_keys() const { return dk.touched; }
  // Tells whether the bias has one element for several scores' gradients. Packed sequences share none but
  // rows.
  bool sums_dbias() const {
    return dbias.size[kSeqlen] < (fwd.group ? fwd.total_q : fwd.seqlen_q) ||
           dbias.size[kHead] < fwd.nhead_q || (!fwd.group && dbias.size[kBatch] < fwd.batch);
  }
  // Without queries or keys every gradient is 0.
  bool is_zero() const { return !has_queries() || !has_keys(); }
  // Nothing to write, or only zeros to add.
  bool is_empty() const {
    return (!has_queries() && !has_keys() && !dbias.touched) || (is_zero() && accumulate);
  }
};

// Fails with INVALID_ARGUMENT or ABI_MISMATCH. It does not look whether tensors overlap.
void make_bwd_problem(const fmha_bwd_params* params, Pointers pointers, BwdProblem& problem);

// Takes over the addresses of a call that is like the problem's own in all else: see problem/fwd.h.
void rebind(const fmha_bwd_params& params, BwdProblem& problem);

// Fails with INVALID_ARGUMENT if what is written overlaps itself or anything else.
void check_overlaps(const BwdProblem& problem);

}  // namespace fmha
