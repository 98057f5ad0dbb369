// SPDX-License-Identifier: MIT OR Apache-2.0
// Every piece of memory of a forward call: its shape, strides, alignment and overlaps.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>

#include "error.h"
#include "problem/problem.h"

namespace fmha {
namespace {

// Shapes of what is indexed by (batch, seqlen, head): packed sequences are one batch of all their rows.
struct Rows {
  int64_t batch;
  int64_t count;     // along the seqlen dimension
  int64_t sequence;  // the most of one sequence
  bool varlen;
};

Rows rows_of(const fmha_fwd_params& p, int64_t seqlen, int64_t total) {
  const bool varlen = p.cu_seqlens_q != nullptr;
  if (varlen) return {1, total, std::min(seqlen, total), true};
  return {p.batch, seqlen, seqlen, false};
}

View make_view(const char* name, const char* pointer, const void* data, const Rows& rows, int64_t nhead,
               int64_t row, int64_t element_bytes, const std::array<int64_t, 3>& stride, bool wanted) {
  return View{.name = name,
              .pointer = pointer,
              .data = data,
              .element_bytes = element_bytes,
              .row = row,
              .size = {rows.batch, rows.count, nhead},
              .stride = stride,
              .sequence = rows.sequence,
              .varlen = rows.varlen,
              // Without a query nothing is read at all.
              .touched = wanted && rows.sequence > 0};
}

View tensor_view(const char* name, const char* pointer, const fmha_tensor& t, const Rows& rows, int64_t nhead,
                 int64_t hdim, const AbiType& type, bool wanted) {
  return make_view(name, pointer, t.data, rows, nhead, hdim, type.bytes,
                   {t.stride_batch, t.stride_seqlen, t.stride_head}, wanted);
}

struct KernelStrides {
  int32_t batch, seqlen, head;
};

KernelStrides kernel_strides(const View& v) {
  return {static_cast<int32_t>(v.stride[0]), static_cast<int32_t>(v.stride[1]),
          static_cast<int32_t>(v.stride[2])};
}

// What the checks of one tensor after the other leave behind.
struct Checked {
  const fmha_fwd_params& p;
  const Pointers pointers;
  Problem& problem;
  Extents& extents;
  const Rows q_rows, k_rows;

  template <typename T>
  T* touched(const View& view, T* data) const {
    return view.touched ? data : nullptr;
  }
};

void check_tensor(Checked& c, View& v, bool written) {
  // A head dim that is no multiple of a vector has no kernel, which the selector says better than its
  // strides.
  const int64_t vector = kAlignBytes / v.element_bytes;
  check_strides(v, (v.row & (vector - 1)) == 0 ? vector : 1);
  check_span(v, written);
  check_pointer(v, kAlignBytes, c.pointers);
  if (written) check_no_self_overlap(v);
  c.extents.add(v, written);
}

void set_qkvo(Checked& c, const AbiType& type, const AbiType& o_type) {
  const fmha_fwd_params& p = c.p;
  const bool wanted = !c.problem.empty;
  View q = tensor_view("q", "q.data", p.q, c.q_rows, p.nhead_q, p.hdim_q, type, wanted);
  View k = tensor_view("k", "k.data", p.k, c.k_rows, p.nhead_k, p.hdim_q, type, wanted);
  View v = tensor_view("v", "v.data", p.v, c.k_rows, p.nhead_k, p.hdim_v, type, wanted);
  View o = tensor_view("o", "o.data", p.o, c.q_rows, p.nhead_q, p.hdim_v, o_type, wanted);
  check_tensor(c, q, false);
  check_tensor(c, k, false);
  check_tensor(c, v, false);
  check_tensor(c, o, true);
  FwdKernelParams& a = c.problem.args;
  a.q = c.touched(q, p.q.data);
  a.k = c.touched(k, p.k.data);
  a.v = c.touched(v, p.v.data);
  a.o = c.touched(o, p.o.data);
  const KernelStrides sq = kernel_strides(q), sk = kernel_strides(k), sv = kernel_strides(v);
  const KernelStrides so = kernel_strides(o);
  a.stride_q = sq.seqlen, a.nhead_stride_q = sq.head, a.batch_stride_q = sq.batch;
  a.stride_k = sk.seqlen, a.nhead_stride_k = sk.head, a.batch_stride_k = sk.batch;
  a.stride_v = sv.seqlen, a.nhead_stride_v = sv.head, a.batch_stride_v = sv.batch;
  a.stride_o = so.seqlen, a.nhead_stride_o = so.head, a.batch_stride_o = so.batch;
}

void set_lse(Checked& c) {
  const fmha_fwd_params& p = c.p;
  if (p.lse.data == nullptr || c.problem.empty) return;
  // A row of it is a whole sequence, or all of them.
  const Rows one = {c.q_rows.batch, 1, 1, false};
  View lse = make_view("lse", "lse.data", p.lse.data, one, p.nhead_q, c.q_rows.count, sizeof(float),
                       {p.lse.stride_batch, 0, p.lse.stride_head}, true);
  check_strides(lse, 1);
  check_pointer(lse, sizeof(float), c.pointers);
  check_no_self_overlap(lse);
  c.extents.add(lse, true);
  const KernelStrides s = kernel_strides(lse);
  FwdKernelParams& a = c.problem.args;
  a.lse = p.lse.data;
  a.nhead_stride_lse = s.head, a.batch_stride_lse = s.batch;
}

bool begins_at_vectors(const View& v) {
  bool whole =
      reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(kBiasVector * v.element_bytes) == 0;
  for (size_t i = 0; i < v.size.size(); ++i)
    whole = whole && (v.size[i] <= 1 || v.stride[i] % kBiasVector == 0);
  return whole;
}

void set_bias_tensor(Checked& c, const AbiType& type) {
  const fmha_fwd_params& p = c.p;
  if (p.bias.data == nullptr) return;
  View bias = make_view("bias", "bias.data", p.bias.data, c.q_rows, p.nhead_q, p.seqlen_k, type.bytes,
                        {p.bias.stride_batch, p.bias.stride_seqlen, p.bias.stride_head},
                        !c.problem.empty && p.seqlen_k > 0);
  c.problem.vector_bias = begins_at_vectors(bias);
  if (!bias.touched) return;
  check_strides(bias, 1);
  check_span(bias, false);
  check_pointer(bias, type.bytes, c.pointers);
  c.extents.add(bias, false);
  const KernelStrides s = kernel_strides(bias);
  FwdKernelParams& a = c.problem.args;
  a.bias = p.bias.data;
  a.stride_bias = s.seqlen, a.nhead_stride_bias = s.head, a.batch_stride_bias = s.batch;
}

void set_randval(Checked& c) {
  const fmha_fwd_params& p = c.p;
  if (p.randval.data == nullptr) return;
  View bytes = make_view("randval", "randval.data", p.randval.data, c.q_rows, p.nhead_q, p.seqlen_k, 1,
                         {p.randval.stride_batch, p.randval.stride_seqlen, p.randval.stride_head},
                         !c.problem.empty && p.seqlen_k > 0);
  if (!bytes.touched) return;
  check_strides(bytes, 1);
  check_span(bytes, true);
  check_no_self_overlap(bytes);
  c.extents.add(bytes, true);
  const KernelStrides s = kernel_strides(bytes);
  FwdKernelParams& a = c.problem.args;
  a.randval = p.randval.data;
  a.stride_randval = s.seqlen, a.nhead_stride_randval = s.head, a.batch_stride_randval = s.batch;
}

// A dense array of the device that a kernel reads; nullptr if it will not.
template <typename T>
const T* set_array(Checked& c, const char* name, const T* data, int64_t count) {
  if (data == nullptr || c.problem.empty) return nullptr;
  const View view = array_view(name, data, sizeof(T), count);
  check_pointer(view, alignof(T), c.pointers);
  c.extents.add(view, false);
  return data;
}

void set_alibi(Checked& c) {
  const fmha_fwd_params& p = c.p;
  if (p.alibi_slopes == nullptr) return;
  const int64_t stride = p.batch > 1 ? p.alibi_stride_batch : 0;
  if (stride < 0) fail(FMHA_INVALID_ARGUMENT, "alibi_stride_batch = %" PRId64 ": expected 0 or more", stride);
  // The kernels count slopes in 32 bits, whatever the batch.
  const int64_t most = (INT32_MAX - p.nhead_q) / std::max<int64_t>(p.batch, 1);
  if (stride > most) {
    fail(FMHA_UNSUPPORTED, "alibi_stride_batch = %" PRId64 ": for this batch kernels take at most %" PRId64,
         stride, most);
  }
  c.problem.args.alibi =
      set_array(c, "alibi_slopes", p.alibi_slopes, std::max<int64_t>(p.batch - 1, 0) * stride + p.nhead_q);
  c.problem.args.batch_stride_alibi = static_cast<int32_t>(stride);
}

void set_arrays(Checked& c) {
  const fmha_fwd_params& p = c.p;
  FwdKernelParams& a = c.problem.args;
  a.cu_q = set_array(c, "cu_seqlens_q", p.cu_seqlens_q, p.batch + 1);
  a.cu_k = set_array(c, "cu_seqlens_k", p.cu_seqlens_k, p.batch + 1);
  a.used_q = set_array(c, "seqused_q", p.seqused_q, p.batch);
  a.used_k = set_array(c, "seqused_k", p.seqused_k, p.batch);
  if (c.problem.dropout) a.philox = set_array(c, "philox_seed_offset", p.philox_seed_offset, 2);
}

}  // namespace

void set_tensors(const fmha_fwd_params& p, const AbiType& type, const AbiType& o_type, Pointers pointers,
                 Problem& problem, Extents& extents) {
  Checked c = {
      p, pointers, problem, extents, rows_of(p, p.seqlen_q, p.total_q), rows_of(p, p.seqlen_k, p.total_k)};
  set_qkvo(c, type, o_type);
  set_lse(c);
  set_bias_tensor(c, type);
  set_alibi(c);
  set_randval(c);
  set_arrays(c);
  c.extents.check_overlaps();
}

}  // namespace fmha
