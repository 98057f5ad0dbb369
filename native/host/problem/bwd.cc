// SPDX-License-Identifier: MIT OR Apache-2.0
#include "problem/bwd.h"

#include <cinttypes>
#include <cstddef>

#include "error.h"
#include "memory/tensors.h"
#include "problem/options.h"
#include "problem/struct_size.h"

namespace fmha {
namespace {

// The first header's struct ended after flags.
constexpr StructVersion kBwdVersions[] = {{184, 184}, {sizeof(fmha_bwd_params), sizeof(fmha_bwd_params)}};
static_assert(offsetof(fmha_bwd_params, dbias) == 184);

const AbiType& grad_type(const fmha_bwd_params& p, DType dtype) {
  const AbiType& forward = type_of(dtype);
  if (p.grad_dtype == 0) return forward;
  const AbiType& type = type_of("grad_dtype", p.grad_dtype);
  if (type.dtype != DType::kFp32 && type.dtype != dtype) {
    raise(FMHA_INVALID_ARGUMENT, "grad_dtype = %s: expected 0, fwd->dtype = %s, or FMHA_FP32",
          dtype_name(type.dtype), dtype_name(dtype));
  }
  return type;
}

void set_tensors(const fmha_bwd_params& p, Pointers pointers, const AbiType& type, BwdProblem& problem) {
  FwdProblem& f = problem.fwd;
  const Rows q_rows = rows_of(f.group, f.batch, f.seqlen_q, f.total_q);
  const Rows k_rows = rows_of(f.group, f.batch, f.seqlen_k, f.total_k);
  const bool keys = f.batch > 0, queries = keys && f.nhead_q > 0;
  set_tensor(problem.dout, {"dout", "dout.data"}, p.dout, q_rows, f.nhead_q, f.hdim_v,
             type_of(f.o_dtype).bytes, queries, pointers);
  set_tensor(problem.dq, {"dq", "dq.data"}, p.dq, q_rows, f.nhead_q, f.hdim_q, type.bytes, queries, pointers);
  set_tensor(problem.dk, {"dk", "dk.data"}, p.dk, k_rows, f.nhead_k, f.hdim_q, type.bytes, keys, pointers);
  set_tensor(problem.dv, {"dv", "dv.data"}, p.dv, k_rows, f.nhead_k, f.hdim_v, type.bytes, keys, pointers);
  f.extents.add(problem.dout, false);
  for (const View* written : {&problem.dq, &problem.dk, &problem.dv}) f.extents.add(*written, true);
}

[[noreturn]] void raise_summed(const View& bias, Dimension i) {
  raise(FMHA_INVALID_ARGUMENT, "dbias.%s = 0: expected above 0, since fwd->bias.%s = %" PRId64,
        kStrideNames[i], kStrideNames[i], bias.stride[i]);
}

// Where the bias has an element for each index, one stride of 0 would be a field that was forgotten.
void check_summed(const View& bias, const View& dbias) {
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    if (bias.size[i] > 1 && bias.stride[i] != 0 && dbias.stride[i] == 0) raise_summed(bias, i);
  }
}

void set_dbias(const fmha_bwd_params& p, Pointers pointers, const AbiType& type, BwdProblem& problem) {
  FwdProblem& f = problem.fwd;
  View& view = problem.dbias;
  problem.has_dbias = p.dbias.data != nullptr;
  view.data = nullptr;
  view.touched = false;
  if (!problem.has_dbias) return;
  if (!f.has_bias) {
    raise(FMHA_INVALID_ARGUMENT, "dbias.data = %p: expected NULL, since fwd->bias.data is NULL",
          p.dbias.data);
  }
  view.name = "dbias";
  view.pointer = "dbias.data";
  view.stride = {p.dbias.stride_batch, p.dbias.stride_seqlen, p.dbias.stride_head};
  const Rows rows = rows_of(f.group, f.batch, f.seqlen_q, f.total_q);
  set_shape(view, p.dbias.data, rows, f.nhead_q, f.seqlen_k, type.bytes, true);
  check_summed(f.bias, view);
  for (size_t i = 0; i < view.size.size(); ++i) {
    if (view.stride[i] == 0 && !(f.group && i == kBatch)) view.size[i] = 1;
  }
  view.touched = view.size[0] > 0 && view.size[1] > 0 && view.size[2] > 0 && view.row > 0;
  check_strides(view);
  check_pointer(view, type.bytes, pointers);
  f.extents.add(view, true);
}

}  // namespace

void make_bwd_problem(const fmha_bwd_params* params, Pointers pointers, BwdProblem& problem) {
  fmha_bwd_params copy;
  const fmha_bwd_params& p = current_params("params", params, kBwdVersions, copy);
  check_reserved("reserved", p.reserved);
  const CallOptions options = make_call_options(p.kernel, p.flags);
  problem.candidate = options.candidate;
  problem.checks_memory = options.checks_memory;
  problem.accumulate = truth("accumulate", p.accumulate);
  problem.deterministic = truth("deterministic", p.deterministic);
  make_fwd_problem_of(Pass::kBackward, p.fwd, pointers, problem.fwd);
  const AbiType& type = grad_type(p, problem.fwd.dtype);
  problem.grad_dtype = type.dtype;
  set_tensors(p, pointers, type, problem);
  set_dbias(p, pointers, type, problem);
  problem.workspace = {p.workspace, p.workspace_bytes};
}

void rebind(const fmha_bwd_params& p, BwdProblem& problem) {
  Rebinder r(problem.fwd.extents);
  rebind_fwd_of(*p.fwd, problem.fwd, r);
  r.view(problem.dout, p.dout.data);
  r.view(problem.dq, p.dq.data);
  r.view(problem.dk, p.dk.data);
  r.view(problem.dv, p.dv.data);
  r.view(problem.dbias, p.dbias.data);
  problem.workspace = {p.workspace, p.workspace_bytes};
}

void check_overlaps(const BwdProblem& problem) {
  for (const View* written : {&problem.dq, &problem.dk, &problem.dv, &problem.dbias}) {
    if (written->touched) check_no_self_overlap(*written);
  }
  problem.fwd.extents.check_overlaps();
}

}  // namespace fmha
