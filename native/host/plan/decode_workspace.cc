// SPDX-License-Identifier: MIT OR Apache-2.0
#include "plan/decode_workspace.h"

#include <algorithm>
#include <array>

#include "memory/tensors.h"
#include "memory/workspace.h"

namespace fmha {
namespace {

constexpr int64_t kElement = sizeof(float);

View view_of(void* data, const std::array<int64_t, 3>& size, const std::array<int64_t, 3>& stride) {
  return {.name = "workspace",
          .pointer = "workspace",
          .data = data,
          .element_bytes = kElement,
          .row = 1,
          .size = size,
          .stride = stride,
          .sequence = size[kSeqlen],
          .varlen = false,
          .touched = true};
}

}  // namespace

DecodeWorkspace decode_workspace(const DecodeProblem& p, int32_t splits) {
  const FwdProblem& f = p.fwd;
  if (splits == 1) return {.o = f.o, .lse = f.lse, .o_split = 0, .lse_split = 0, .bytes = 0};
  const Rows q = rows_of(f.group, f.batch, f.seqlen_q, f.total_q);
  const int64_t row = workspace_product(f.nhead_q, f.hdim_v);
  const int64_t lse_split = workspace_product(workspace_product(q.batch, q.count), f.nhead_q);
  const int64_t o_split = workspace_product(lse_split, f.hdim_v);
  const int64_t o_bytes = workspace_aligned(workspace_product(workspace_product(o_split, splits), kElement));
  const int64_t lse_bytes =
      workspace_aligned(workspace_product(workspace_product(lse_split, splits), kElement));
  const std::array<int64_t, 3> size = {q.batch, q.count, f.nhead_q};
  auto* const begin = p.workspace.data;
  auto* const lse =
      reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(begin) + static_cast<uintptr_t>(o_bytes));
  return {.o = view_of(begin, size, {workspace_product(q.count, row), row, f.hdim_v}),
          .lse = view_of(lse, size, {workspace_product(f.nhead_q, q.count), 1, q.count}),
          .o_split = o_split,
          .lse_split = lse_split,
          .bytes = std::min(o_bytes + lse_bytes, kMostWorkspaceBytes)};
}

MergeProblem merge_of(const DecodeProblem& p, const DecodeWorkspace& w, int32_t splits) {
  const FwdProblem& f = p.fwd;
  MergeProblem merge;
  merge.dtype = DType::kFp32;
  merge.o_dtype = f.o_dtype;
  merge.parts = splits;
  merge.batch = w.o.size[kBatch];
  merge.seqlen = w.o.size[kSeqlen];
  merge.nhead = f.nhead_q;
  merge.hdim = f.hdim_v;
  merge.base2 = p.lse_base2;
  merge.accumulate = merge.empty = false;
  merge.checks_memory = false;
  merge.candidate = 0;
  merge.part = w.o_split;
  merge.part_lse = w.lse_split;
  merge.parts_o = w.o;
  merge.parts_lse = w.lse;
  merge.o = f.o;
  merge.lse = f.lse;
  return merge;
}

}  // namespace fmha
