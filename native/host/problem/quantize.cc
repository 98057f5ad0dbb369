// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/quantize.h"

#include <algorithm>
#include <cinttypes>

#include "divide.h"
#include "error.h"
#include "memory/tensors.h"
#include "problem/options.h"
#include "problem/rebind.h"
#include "problem/struct_size.h"
#include "problem/types.h"

namespace fmha {
namespace {

constexpr StructVersion kQuantizeVersions[] = {{sizeof(fmha_quantize_params), sizeof(fmha_quantize_params)}};
constexpr const char* kScaleStrides[] = {"stride_batch", "stride_block", "stride_head"};

void set_types(const fmha_quantize_params& p, QuantizeProblem& problem) {
  problem.dtype = type_of("dtype", p.dtype).dtype;
  problem.o_dtype = type_of("out_dtype", p.out_dtype).dtype;
  problem.hadamard = truth("hadamard", p.hadamard);
  problem.given = truth("given", p.given);
}

void set_sizes(const fmha_quantize_params& p, QuantizeProblem& problem) {
  check_least("batch", p.batch, 0);
  check_least("seqlen", p.seqlen, 0);
  check_least("nhead", p.nhead, 0);
  check_least("hdim", p.hdim, 1);
  problem.batch = p.batch;
  problem.seqlen = p.seqlen;
  problem.nhead = p.nhead;
  problem.hdim = p.hdim;
  problem.empty = p.batch == 0 || p.seqlen == 0 || p.nhead == 0;
}

// A field that this call does not read is 0, so that a forgotten unit is seen.
void check_unread(const char* name, int64_t value, const char* why) {
  if (value == 0) return;
  raise(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected 0 %s", name, value, why);
}

void set_rotation_only(const fmha_quantize_params& p, QuantizeProblem& problem) {
  constexpr const char* kWhy = "with out_dtype = dtype, which has no scales";
  check_unread("scale_unit", p.scale_unit, kWhy);
  check_unread("given", p.given, kWhy);
  check_unread("heads_per_scale", p.heads_per_scale, kWhy);
  check_unread("block_tokens", p.block_tokens, kWhy);
  if (p.descale.data != nullptr) {
    raise(FMHA_INVALID_ARGUMENT, "descale.data = %p: expected NULL %s", static_cast<void*>(p.descale.data),
          kWhy);
  }
  if (!problem.hadamard) {
    raise(FMHA_INVALID_ARGUMENT,
          "hadamard = 0: expected 1 with out_dtype = dtype, or there is nothing to do");
  }
  problem.unit = ScaleUnit::kNone;
  problem.heads = 1;
  problem.block = problem.seqlen;
}

int64_t heads_per_scale(const fmha_quantize_params& p) {
  if (p.heads_per_scale == 0) return 1;
  check_least("heads_per_scale", p.heads_per_scale, 0);
  if (p.nhead % p.heads_per_scale == 0) return p.heads_per_scale;
  raise(FMHA_INVALID_ARGUMENT, "heads_per_scale = %" PRId64 ": expected a divisor of nhead = %" PRId64,
        p.heads_per_scale, p.nhead);
}

void set_unit(const fmha_quantize_params& p, QuantizeProblem& problem) {
  problem.heads = 1;
  problem.block = problem.seqlen;
  switch (p.scale_unit) {
    case FMHA_SCALE_TENSOR:
      problem.unit = ScaleUnit::kTensor;
      check_unread("heads_per_scale", p.heads_per_scale, "with FMHA_SCALE_TENSOR");
      break;
    case FMHA_SCALE_HEAD:
      problem.unit = ScaleUnit::kHead;
      problem.heads = heads_per_scale(p);
      break;
    case FMHA_SCALE_BLOCK:
      problem.unit = ScaleUnit::kBlock;
      problem.heads = heads_per_scale(p);
      check_least("block_tokens", p.block_tokens, 1);
      problem.block = std::min(p.block_tokens, std::max<int64_t>(problem.seqlen, 1));
      return;
    default:
      raise(FMHA_INVALID_ARGUMENT,
            "scale_unit = %" PRId32
            ": expected FMHA_SCALE_TENSOR (1), FMHA_SCALE_HEAD (2) or FMHA_SCALE_BLOCK (3)",
            p.scale_unit);
  }
  check_unread("block_tokens", p.block_tokens, "without FMHA_SCALE_BLOCK");
}

void set_descale(const fmha_quantize_params& p, Pointers pointers, QuantizeProblem& problem) {
  View& v = problem.descale;
  v.name = "descale";
  v.pointer = "descale.data";
  const bool one = problem.unit == ScaleUnit::kTensor;
  const int64_t blocks = problem.empty ? 1 : ceil_div(problem.seqlen, problem.block);
  v.stride = {p.descale.stride_batch, p.descale.stride_block, p.descale.stride_head};
  const Rows rows = {one ? 1 : problem.batch, one ? 1 : blocks, one ? 1 : blocks, false};
  set_shape(v, p.descale.data, rows, one ? 1 : problem.nhead / problem.heads, 1, sizeof(float),
            !problem.empty && problem.unit != ScaleUnit::kNone);
  for (size_t i = 0; i < v.stride.size() && v.touched; ++i) {
    if (v.stride[i] >= 0 || v.size[i] <= 1) continue;
    raise(FMHA_INVALID_ARGUMENT, "descale.%s = %" PRId64 ": expected 0 or more", kScaleStrides[i],
          v.stride[i]);
  }
  check_pointer(v, alignof(float), pointers);
}

}  // namespace

void make_quantize_problem(const fmha_quantize_params* params, Pointers pointers, QuantizeProblem& problem) {
  (void)check_struct_size("params", params, kQuantizeVersions);
  const fmha_quantize_params& p = *params;
  check_reserved("reserved", p.reserved);
  const CallOptions options = make_call_options(p.kernel, p.flags);
  problem.candidate = options.candidate;
  problem.checks_memory = options.checks_memory;
  set_types(p, problem);
  set_sizes(p, problem);
  if (problem.o_dtype == problem.dtype) {
    set_rotation_only(p, problem);
  } else {
    set_unit(p, problem);
  }
  problem.workspace = {p.workspace, p.workspace_bytes};
  problem.extents.clear();
  const Rows rows = rows_of(false, p.batch, p.seqlen, 0);
  set_tensor(problem.x, {"x", "x.data"}, p.x, rows, p.nhead, p.hdim, type_of(problem.dtype).bytes,
             !problem.empty, pointers);
  set_tensor(problem.out, {"out", "out.data"}, p.out, rows, p.nhead, p.hdim, type_of(problem.o_dtype).bytes,
             !problem.empty, pointers);
  set_descale(p, pointers, problem);
  problem.extents.add(problem.x, false);
  problem.extents.add(problem.out, true);
  problem.extents.add(problem.descale, !problem.given);
}

void rebind(const fmha_quantize_params& p, QuantizeProblem& problem) {
  Rebinder r(problem.extents);
  r.view(problem.x, p.x.data);
  r.view(problem.out, p.out.data);
  r.view(problem.descale, p.descale.data);
  problem.workspace = {p.workspace, p.workspace_bytes};
}

void check_overlaps(const QuantizeProblem& problem) {
  if (problem.out.touched) check_no_self_overlap(problem.out);
  if (problem.descale.touched && !problem.given) check_no_self_overlap(problem.descale, kScaleStrides);
  problem.extents.check_overlaps();
}

}  // namespace fmha
