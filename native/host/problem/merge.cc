// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/merge.h"

#include <algorithm>

#include "memory/tensors.h"
#include "problem/options.h"
#include "problem/rebind.h"
#include "problem/struct_size.h"
#include "problem/types.h"

namespace fmha {
namespace {

constexpr StructVersion kMergeVersions[] = {{sizeof(fmha_merge_params), sizeof(fmha_merge_params)}};

void set_sizes(const fmha_merge_params& p, MergeProblem& problem) {
  check_least("parts", p.parts, 1);
  check_least("batch", p.batch, 0);
  check_least("seqlen", p.seqlen, 0);
  check_least("nhead", p.nhead, 0);
  check_least("hdim", p.hdim, 1);
  problem.parts = p.parts;
  problem.batch = p.batch;
  problem.seqlen = p.seqlen;
  problem.nhead = p.nhead;
  problem.hdim = p.hdim;
  problem.empty = p.batch == 0 || p.seqlen == 0 || p.nhead == 0;
}

// The stride from part to part: the others are a View's.
int64_t part_stride(const char* name, const MergeProblem& problem, int64_t stride) {
  if (problem.parts == 1) return 0;
  check_least(name, stride, 0);
  return stride;
}

// Treats the parts of a row as one long row.
int64_t row_of_parts(int64_t row, int64_t stride, int64_t parts) {
  int64_t all = 0;
  if (__builtin_mul_overflow(stride, parts - 1, &all) || __builtin_add_overflow(all, row, &all)) {
    return int64_t{kAddressSpace};
  }
  return std::min(all, int64_t{kAddressSpace});
}

struct LseStrides {
  int64_t batch, head;
};

void set_lse(View& view, const TensorName& name, const void* data, const LseStrides& strides, int64_t row,
             const MergeProblem& problem, Pointers pointers) {
  view.name = name.name;
  view.pointer = name.pointer;
  view.stride = {strides.batch, 0, strides.head};
  set_shape(view, data, {problem.batch, 1, 1, false}, problem.nhead, row, sizeof(float), !problem.empty);
  check_strides(view);
  check_pointer(view, alignof(float), pointers);
}

void set_parts(const fmha_merge_params& p, Pointers pointers, int64_t element_bytes, MergeProblem& problem) {
  const Rows rows = rows_of(false, problem.batch, problem.seqlen, 0);
  problem.part = part_stride("o_parts.stride_part", problem, p.o_parts.stride_part);
  problem.part_lse = part_stride("lse_parts.stride_part", problem, p.lse_parts.stride_part);
  const fmha_tensor first = {const_cast<void*>(p.o_parts.data), p.o_parts.stride_batch,
                             p.o_parts.stride_seqlen, p.o_parts.stride_head};
  set_tensor(problem.parts_o, {"o_parts", "o_parts.data"}, first, rows, problem.nhead,
             row_of_parts(problem.hdim, problem.part, problem.parts), element_bytes, !problem.empty,
             pointers);
  set_lse(problem.parts_lse, {"lse_parts", "lse_parts.data"}, p.lse_parts.data,
          {p.lse_parts.stride_batch, p.lse_parts.stride_head},
          row_of_parts(problem.seqlen, problem.part_lse, problem.parts), problem, pointers);
  problem.extents.add(problem.parts_o, false);
  problem.extents.add(problem.parts_lse, false);
}

void set_result(const fmha_merge_params& p, Pointers pointers, int64_t element_bytes, MergeProblem& problem) {
  const Rows rows = rows_of(false, problem.batch, problem.seqlen, 0);
  set_tensor(problem.o, {"o", "o.data"}, p.o, rows, problem.nhead, problem.hdim, element_bytes,
             !problem.empty, pointers);
  const bool wanted = p.lse.data != nullptr || problem.accumulate;
  set_lse(problem.lse, {"lse", "lse.data"}, p.lse.data, {p.lse.stride_batch, p.lse.stride_head},
          problem.seqlen, problem, wanted ? pointers : Pointers::kOptional);
  problem.lse.touched = problem.lse.touched && wanted;
  problem.extents.add(problem.o, true);
  problem.extents.add(problem.lse, true);
}

}  // namespace

void make_merge_problem(const fmha_merge_params* params, Pointers pointers, MergeProblem& problem) {
  (void)check_struct_size("params", params, kMergeVersions);
  const fmha_merge_params& p = *params;
  const CallOptions options = make_call_options(p.kernel, p.flags);
  problem.candidate = options.candidate;
  problem.checks_memory = options.checks_memory;
  const AbiType& type = type_of("dtype", p.dtype);
  const AbiType& o_type = p.o_dtype == 0 ? type : type_of("o_dtype", p.o_dtype);
  problem.dtype = type.dtype;
  problem.o_dtype = o_type.dtype;
  problem.base2 = is_base2(p.lse_base);
  problem.accumulate = truth("accumulate", p.accumulate);
  set_sizes(p, problem);
  problem.extents.clear();
  set_parts(p, pointers, type.bytes, problem);
  set_result(p, pointers, o_type.bytes, problem);
}

void rebind(const fmha_merge_params& p, MergeProblem& problem) {
  Rebinder r(problem.extents);
  r.view(problem.parts_o, p.o_parts.data);
  r.view(problem.parts_lse, p.lse_parts.data);
  r.view(problem.o, p.o.data);
  r.view(problem.lse, p.lse.data);
}

void check_overlaps(const MergeProblem& problem) {
  for (const View* written : {&problem.o, &problem.lse}) {
    if (written->touched) check_no_self_overlap(*written);
  }
  problem.extents.check_overlaps();
}

}  // namespace fmha
