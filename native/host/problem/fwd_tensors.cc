// SPDX-License-Identifier: MIT OR Apache-2.0
// Every piece of memory of a forward call: its shape, strides and extent.
#include <cinttypes>
#include <cstddef>

#include "error.h"
#include "memory/tensors.h"
#include "problem/fwd.h"

namespace fmha {
namespace {

// An optional tensor that is not wanted. Only `touched` and `data` are read of it.
void leave_out(View& view) {
  view.data = nullptr;
  view.touched = false;
}

// Names are written as the other passes have them, in whose params the forward struct is a field.
constexpr size_t kPrefixLength = sizeof "fwd->" - 1;

struct Builder {
  const fmha_fwd_params& p;
  const Pointers pointers;
  const Pass pass;
  FwdProblem& problem;
  const Rows q_rows, k_rows;

  const char* name(const char* as_field) const {
    return pass == Pass::kForward ? as_field + kPrefixLength : as_field;
  }
  // Without a query nothing is read at all.
  bool reads() const { return !problem.empty; }
  bool writes() const { return pass != Pass::kBackward; }
};

void add_tensor(const Builder& b, View& view, const char* name, const char* pointer, const fmha_tensor& t,
                const Rows& rows, int64_t nhead, int64_t hdim, const AbiType& type, bool written) {
  set_tensor(view, {b.name(name), b.name(pointer)}, t, rows, nhead, hdim, type.bytes, b.reads(), b.pointers);
  b.problem.extents.add(view, written);
}

void set_lse(const Builder& b) {
  const fmha_fwd_params& p = b.p;
  View& view = b.problem.lse;
  // The forward pass writes it if it is there; the backward pass needs it.
  if ((p.lse.data == nullptr && b.writes()) || !b.reads()) return leave_out(view);
  // A row of it is a whole sequence, or all of them.
  const Rows one = {b.q_rows.batch, 1, 1, false};
  view.name = b.name("fwd->lse");
  view.pointer = b.name("fwd->lse.data");
  view.stride = {p.lse.stride_batch, 0, p.lse.stride_head};
  set_shape(view, p.lse.data, one, p.nhead_q, b.q_rows.count, sizeof(float), true);
  check_strides(view);
  check_pointer(view, alignof(float), b.pointers);
  b.problem.extents.add(view, b.writes());
}

void set_bias(const Builder& b, const AbiType& type) {
  const fmha_fwd_params& p = b.p;
  View& view = b.problem.bias;
  b.problem.has_bias = p.bias.data != nullptr;
  if (p.bias.data == nullptr) return leave_out(view);
  view.name = b.name("fwd->bias");
  view.pointer = b.name("fwd->bias.data");
  view.stride = {p.bias.stride_batch, p.bias.stride_seqlen, p.bias.stride_head};
  set_shape(view, p.bias.data, b.q_rows, p.nhead_q, p.seqlen_k, type.bytes, b.reads() && p.seqlen_k > 0);
  if (!view.touched) return;
  check_strides(view);
  check_pointer(view, type.bytes, b.pointers);
  b.problem.extents.add(view, false);
}

void set_randval(const Builder& b) {
  const fmha_fwd_params& p = b.p;
  View& view = b.problem.randval;
  if (p.randval.data == nullptr || b.pass != Pass::kForward) return leave_out(view);
  view.name = "randval";
  view.pointer = "randval.data";
  view.stride = {p.randval.stride_batch, p.randval.stride_seqlen, p.randval.stride_head};
  set_shape(view, p.randval.data, b.q_rows, p.nhead_q, p.seqlen_k, 1, b.reads() && p.seqlen_k > 0);
  if (!view.touched) return;
  check_strides(view);
  check_pointer(view, 1, b.pointers);
  b.problem.extents.add(view, true);
}

// A dense array of the device that a kernel reads; nullptr if it will not.
template <typename T>
const T* array(const Builder& b, const char* name, const T* data, int64_t count) {
  if (data == nullptr || !b.reads()) return nullptr;
  const View view = array_view(b.name(name), data, sizeof(T), count);
  check_pointer(view, alignof(T), b.pointers);
  b.problem.extents.add(view, false);
  return data;
}

void set_alibi(const Builder& b) {
  const fmha_fwd_params& p = b.p;
  FwdProblem& problem = b.problem;
  problem.has_alibi = p.alibi_slopes != nullptr;
  problem.alibi_slopes = nullptr;
  problem.alibi_stride_batch = 0;
  if (p.alibi_slopes == nullptr) return;
  const int64_t stride = p.batch > 1 ? p.alibi_stride_batch : 0;
  if (stride < 0) {
    raise(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected 0 or more", b.name("fwd->alibi_stride_batch"),
          stride);
  }
  problem.alibi_stride_batch = stride;
  if (problem.empty) return;
  View view = array_view(b.name("fwd->alibi_slopes"), p.alibi_slopes, sizeof(float), p.nhead_q);
  view.size[0] = p.batch;
  view.stride[0] = stride;
  check_pointer(view, alignof(float), b.pointers);
  problem.extents.add(view, false);
  problem.alibi_slopes = p.alibi_slopes;
}

void set_arrays(const Builder& b) {
  const fmha_fwd_params& p = b.p;
  FwdProblem& problem = b.problem;
  const bool counts_sinks = b.pass == Pass::kForward;  // the backward pass has an LSE that counts them
  problem.has_sinks = counts_sinks && p.sinks != nullptr;
  problem.sinks = counts_sinks ? array(b, "fwd->sinks", p.sinks, p.nhead_q) : nullptr;
  problem.cu_seqlens_q = problem.cu_seqlens_k = problem.seqused_q = problem.seqused_k = nullptr;
  problem.seqused_k = array(b, "fwd->seqused_k", p.seqused_k, p.batch);
  if (problem.group) {
    // Nobody has the lengths of INT64_MAX sequences: that one more would overflow does not matter.
    const int64_t starts = p.batch < INT64_MAX ? p.batch + 1 : p.batch;
    problem.cu_seqlens_q = array(b, "fwd->cu_seqlens_q", p.cu_seqlens_q, starts);
    problem.cu_seqlens_k = array(b, "fwd->cu_seqlens_k", p.cu_seqlens_k, starts);
    problem.seqused_q = array(b, "fwd->seqused_q", p.seqused_q, p.batch);
  }
  if (problem.dropout.is_on()) {
    problem.dropout.seed_offset = array(b, "fwd->philox_seed_offset", p.philox_seed_offset, 2);
  }
}

}  // namespace

void set_fwd_tensors(const fmha_fwd_params& p, const AbiType& type, const AbiType& o_type, Pointers pointers,
                     Pass pass, FwdProblem& problem) {
  const bool packed = problem.group;
  const Builder b = {p,
                     pointers,
                     pass,
                     problem,
                     rows_of(packed, p.batch, p.seqlen_q, p.total_q),
                     rows_of(packed, p.batch, p.seqlen_k, p.total_k)};
  problem.extents.clear();
  add_tensor(b, problem.q, "fwd->q", "fwd->q.data", p.q, b.q_rows, p.nhead_q, p.hdim_q, type, false);
  if (pass == Pass::kDecode) {
    leave_out(problem.k);
    leave_out(problem.v);
  } else {
    add_tensor(b, problem.k, "fwd->k", "fwd->k.data", p.k, b.k_rows, p.nhead_k, p.hdim_q, type, false);
    add_tensor(b, problem.v, "fwd->v", "fwd->v.data", p.v, b.k_rows, p.nhead_k, p.hdim_v, type, false);
  }
  add_tensor(b, problem.o, "fwd->o", "fwd->o.data", p.o, b.q_rows, p.nhead_q, p.hdim_v, o_type, b.writes());
  set_lse(b);
  set_bias(b, type);
  set_alibi(b);
  set_randval(b);
  set_arrays(b);
}

void rebind_fwd_of(const fmha_fwd_params& p, FwdProblem& problem, Rebinder& r) {
  r.view(problem.q, p.q.data);
  r.view(problem.k, p.k.data);
  r.view(problem.v, p.v.data);
  r.view(problem.o, p.o.data);
  r.view(problem.lse, p.lse.data);
  r.view(problem.bias, p.bias.data);
  r.array(problem.alibi_slopes, p.alibi_slopes);
  r.view(problem.randval, p.randval.data);
  r.array(problem.sinks, p.sinks);
  r.array(problem.seqused_k, p.seqused_k);
  r.array(problem.cu_seqlens_q, p.cu_seqlens_q);
  r.array(problem.cu_seqlens_k, p.cu_seqlens_k);
  r.array(problem.seqused_q, p.seqused_q);
  r.array(problem.dropout.seed_offset, p.philox_seed_offset);
  problem.dropout.seed = p.philox_seed;
  problem.dropout.offset = p.philox_offset;
}

void rebind(const fmha_fwd_params& p, FwdProblem& problem) {
  Rebinder rebinder(problem.extents);
  rebind_fwd_of(p, problem, rebinder);
  problem.workspace = {p.workspace, p.workspace_bytes};
}

}  // namespace fmha
