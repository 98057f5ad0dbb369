// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/decode_workspace.h"

#include <algorithm>

#include "divide.h"
#include "problem/workspace.h"

namespace fmha {
namespace {

constexpr int64_t kElement = sizeof(float);

View view_of(void* data, int64_t batch, int64_t rows, int64_t nhead) {
  return {.name = "workspace",
          .pointer = "workspace",
          .data = data,
          .element_bytes = kElement,
          .row = 1,
          .size = {batch, rows, nhead},
          .stride = {0, 0, 0},
          .sequence = rows,
          .varlen = false,
          .touched = true};
}

}  // namespace

DecodeWorkspace decode_workspace(const DecodeProblem& p, int32_t splits) {
  const FwdProblem& f = p.fwd;
  DecodeWorkspace w{};
  w.batch = f.group ? 1 : f.batch;
  w.rows = f.group ? f.total_q : f.seqlen_q;
  if (splits == 1) return w;
  w.lse_split = workspace_product(workspace_product(w.batch, w.rows), f.nhead_q);
  w.o_split = workspace_product(w.lse_split, f.hdim_v);
  const int64_t o_bytes =
      workspace_aligned(workspace_product(workspace_product(w.o_split, splits), kElement));
  const int64_t lse_bytes =
      workspace_aligned(workspace_product(workspace_product(w.lse_split, splits), kElement));
  const auto begin = reinterpret_cast<uintptr_t>(p.workspace.data);
  w.o = reinterpret_cast<float*>(begin);
  w.lse = reinterpret_cast<float*>(begin + static_cast<uintptr_t>(o_bytes));
  w.bytes = std::min(o_bytes + lse_bytes, kMostWorkspaceBytes);
  return w;
}

MergeProblem merge_of(const DecodeProblem& p, const DecodeWorkspace& w, int32_t splits) {
  const FwdProblem& f = p.fwd;
  MergeProblem merge;
  merge.dtype = DType::kFp32;
  merge.o_dtype = f.o_dtype;
  merge.parts = splits;
  merge.batch = w.batch;
  merge.seqlen = w.rows;
  merge.nhead = f.nhead_q;
  merge.hdim = f.hdim_v;
  merge.base2 = merge.accumulate = merge.empty = false;
  merge.checks_memory = false;
  merge.candidate = 0;
  merge.part = w.o_split;
  merge.part_lse = w.lse_split;
  merge.parts_o = view_of(w.o, w.batch, w.rows, f.nhead_q);
  merge.parts_o.stride = {w.rows * f.nhead_q * f.hdim_v, f.nhead_q * f.hdim_v, f.hdim_v};
  merge.parts_lse = view_of(w.lse, w.batch, w.rows, f.nhead_q);
  merge.parts_lse.stride = {f.nhead_q * w.rows, 1, w.rows};
  merge.o = f.o;
  merge.lse = f.lse;
  return merge;
}

}  // namespace fmha
