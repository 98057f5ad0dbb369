// SPDX-License-Identifier: MIT OR Apache-2.0
// Every piece of memory of a forward call: its shape, strides and extent.
#include <algorithm>
#include <cinttypes>
#include <cstddef>

#include "error.h"
#include "problem/fwd.h"

namespace fmha {
namespace {

// Shapes of what is indexed by (batch, seqlen, head): packed sequences are one batch of all their rows.
struct Rows {
  int64_t batch;
  int64_t count;     // along the seqlen dimension
  int64_t sequence;  // the most of one sequence
  bool varlen;
};

Rows rows_of(const FwdProblem& problem, int64_t seqlen, int64_t total) {
  if (problem.group) return {1, total, std::min(seqlen, total), true};
  return {problem.batch, seqlen, seqlen, false};
}

// An optional tensor that is not wanted. Only `touched` and `data` are read of it.
void leave_out(View& view) {
  view.data = nullptr;
  view.touched = false;
}

struct Builder {
  const fmha_fwd_params& p;
  const Pointers pointers;
  FwdProblem& problem;
  const Rows q_rows, k_rows;
};

// Everything but name and strides, which differ in the ABI's structs.
void set_shape(View& view, const void* data, const Rows& rows, int64_t nhead, int64_t row,
               int64_t element_bytes, bool wanted) {
  view.data = const_cast<void*>(data);
  view.element_bytes = element_bytes;
  view.row = row;
  view.size = {rows.batch, rows.count, nhead};
  view.sequence = rows.sequence;
  view.varlen = rows.varlen;
  // Without a query nothing is read at all.
  view.touched = wanted && rows.sequence > 0;
}

// How addresses of these four are to be aligned, the kernels' origin says.
void set_tensor(const Builder& b, View& view, const char* name, const char* pointer, const fmha_tensor& t,
                const Rows& rows, int64_t nhead, int64_t hdim, const AbiType& type, bool written) {
  view.name = name;
  view.pointer = pointer;
  view.stride = {t.stride_batch, t.stride_seqlen, t.stride_head};
  set_shape(view, t.data, rows, nhead, hdim, type.bytes, !b.problem.empty);
  check_strides(view);
  check_pointer(view, 1, b.pointers);
  b.problem.extents.add(view, written);
}

void set_lse(const Builder& b) {
  const fmha_fwd_params& p = b.p;
  View& view = b.problem.lse;
  if (p.lse.data == nullptr || b.problem.empty) return leave_out(view);
  // A row of it is a whole sequence, or all of them.
  const Rows one = {b.q_rows.batch, 1, 1, false};
  view.name = "lse";
  view.pointer = "lse.data";
  view.stride = {p.lse.stride_batch, 0, p.lse.stride_head};
  set_shape(view, p.lse.data, one, p.nhead_q, b.q_rows.count, sizeof(float), true);
  check_strides(view);
  check_pointer(view, alignof(float), b.pointers);
  b.problem.extents.add(view, true);
}

void set_bias(const Builder& b, const AbiType& type) {
  const fmha_fwd_params& p = b.p;
  View& view = b.problem.bias;
  b.problem.has_bias = p.bias.data != nullptr;
  if (p.bias.data == nullptr) return leave_out(view);
  view.name = "bias";
  view.pointer = "bias.data";
  view.stride = {p.bias.stride_batch, p.bias.stride_seqlen, p.bias.stride_head};
  set_shape(view, p.bias.data, b.q_rows, p.nhead_q, p.seqlen_k, type.bytes,
            !b.problem.empty && p.seqlen_k > 0);
  if (!view.touched) return;
  check_strides(view);
  check_pointer(view, type.bytes, b.pointers);
  b.problem.extents.add(view, false);
}

void set_randval(const Builder& b) {
  const fmha_fwd_params& p = b.p;
  View& view = b.problem.randval;
  if (p.randval.data == nullptr) return leave_out(view);
  view.name = "randval";
  view.pointer = "randval.data";
  view.stride = {p.randval.stride_batch, p.randval.stride_seqlen, p.randval.stride_head};
  set_shape(view, p.randval.data, b.q_rows, p.nhead_q, p.seqlen_k, 1, !b.problem.empty && p.seqlen_k > 0);
  if (!view.touched) return;
  check_strides(view);
  check_pointer(view, 1, b.pointers);
  b.problem.extents.add(view, true);
}

// A dense array of the device that a kernel reads; nullptr if it will not.
template <typename T>
const T* array(const Builder& b, const char* name, const T* data, int64_t count) {
  if (data == nullptr || b.problem.empty) return nullptr;
  const View view = array_view(name, data, sizeof(T), count);
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
  if (stride < 0)
    raise(FMHA_INVALID_ARGUMENT, "alibi_stride_batch = %" PRId64 ": expected 0 or more", stride);
  problem.alibi_stride_batch = stride;
  if (problem.empty) return;
  View view = array_view("alibi_slopes", p.alibi_slopes, sizeof(float), p.nhead_q);
  view.size[0] = p.batch;
  view.stride[0] = stride;
  check_pointer(view, alignof(float), b.pointers);
  problem.extents.add(view, false);
  problem.alibi_slopes = p.alibi_slopes;
}

void set_arrays(const Builder& b) {
  const fmha_fwd_params& p = b.p;
  FwdProblem& problem = b.problem;
  if (problem.group) {
    // Of INT64_MAX sequences nobody has the lengths: that one more would overflow does not matter.
    const int64_t starts = p.batch < INT64_MAX ? p.batch + 1 : p.batch;
    problem.cu_seqlens_q = array(b, "cu_seqlens_q", p.cu_seqlens_q, starts);
    problem.cu_seqlens_k = array(b, "cu_seqlens_k", p.cu_seqlens_k, starts);
    problem.seqused_q = array(b, "seqused_q", p.seqused_q, p.batch);
    problem.seqused_k = array(b, "seqused_k", p.seqused_k, p.batch);
  } else {
    problem.cu_seqlens_q = problem.cu_seqlens_k = problem.seqused_q = problem.seqused_k = nullptr;
  }
  if (problem.dropout.is_on()) {
    problem.dropout.seed_offset = array(b, "philox_seed_offset", p.philox_seed_offset, 2);
  }
}

}  // namespace

void set_fwd_tensors(const fmha_fwd_params& p, const AbiType& type, const AbiType& o_type, Pointers pointers,
                     FwdProblem& problem) {
  const Builder b = {p, pointers, problem, rows_of(problem, p.seqlen_q, p.total_q),
                     rows_of(problem, p.seqlen_k, p.total_k)};
  problem.extents.clear();
  set_tensor(b, problem.q, "q", "q.data", p.q, b.q_rows, p.nhead_q, p.hdim_q, type, false);
  set_tensor(b, problem.k, "k", "k.data", p.k, b.k_rows, p.nhead_k, p.hdim_q, type, false);
  set_tensor(b, problem.v, "v", "v.data", p.v, b.k_rows, p.nhead_k, p.hdim_v, type, false);
  set_tensor(b, problem.o, "o", "o.data", p.o, b.q_rows, p.nhead_q, p.hdim_v, o_type, true);
  set_lse(b);
  set_bias(b, type);
  set_alibi(b);
  set_randval(b);
  set_arrays(b);
}

}  // namespace fmha
