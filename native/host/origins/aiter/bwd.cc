// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of AITER's backward kernels, and their grid.
#include "origins/aiter/bwd.h"

#include <new>
#include <numbers>

#include "args/aiter_bwd.h"
#include "divide.h"

namespace fmha::aiter {
namespace {

constexpr float kLog2e = std::numbers::log2e_v<float>;

// The limits have checked that what is read of it fits. The caller's stride of a dimension of size one means
// nothing: then a row's, for the kernels take seqlen times its stride for where memory ends.
uint32_t stride_bytes(const View& v, Dimension i) {
  return static_cast<uint32_t>((v.size[i] > 1 ? v.stride[i] : v.row) * v.element_bytes);
}

template <typename Number>
AiterBwdStrides<Number> strides(const View& v) {
  return {Number{stride_bytes(v, kHead)}, Number{stride_bytes(v, kBatch)}, Number{stride_bytes(v, kSeqlen)}};
}

AiterBwdGroupParams::Strides group_strides(const View& v) {
  return {stride_bytes(v, kHead), stride_bytes(v, kSeqlen)};
}

uint32_t number(int64_t value) { return static_cast<uint32_t>(value); }

template <typename Pointer>
AiterBwdTensors<Pointer> tensors(const BwdProblem& p, const BwdWorkspace& w) {
  const FwdProblem& f = p.fwd;
  return {
      .dq_acc = Pointer{w.dq_acc.data},
      .dk = Pointer{p.dk.address()},
      .dv = Pointer{p.dv.address()},
      .q = Pointer{f.q.address()},
      .k = Pointer{f.k.address()},
      .v = Pointer{f.v.address()},
      .dout = Pointer{p.dout.address()},
      .lse = Pointer{f.lse.address()},
      .d = Pointer{w.d.data},
  };
}

// With a causal mask a workgroup does two tiles.
Grid grid_of(const Kernel& kernel, const FwdProblem& f, const BwdWorkspace& w) {
  const bool pairs = kernel.bwd.mask != BwdMask::kNone;
  return {number(pairs ? ceil_div(w.groups, int64_t{2}) : w.groups), number(f.nhead_q), number(f.batch)};
}

// The dot kernel has put the starts in order. A batch of equal lengths has none.
template <typename Pointer>
AiterBwdStarts<Pointer> starts(const FwdProblem& f, const BwdWorkspace& w) {
  const Pointer q{w.starts}, k{w.starts == nullptr ? nullptr : w.starts + f.batch + 1};
  return {.cu_q = q, .cu_k = k, .cu_q_slots = q, .cu_k_slots = k};
}

void add_group(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const FwdProblem& f = p.fwd;
  new (plan.add_launch<AiterBwdGroupParams>(kernel, grid_of(kernel, f, w))) AiterBwdGroupParams{
      .tensors = tensors<const void*>(p, w),
      .starts = starts<const void*>(f, w),
      .scale = f.softmax_scale,
      .log2e = kLog2e,
      .nhead_ratio_qk = number(f.nhead_q / f.nhead_k),
      .lse_stride_nhead = number(f.total_q * f.lse.element_bytes),
      .total_k = number(f.total_k),
      .q = group_strides(f.q),
      .k = group_strides(f.k),
      .v = group_strides(f.v),
      .dout = group_strides(p.dout),
      .dk = group_strides(p.dk),
      .dv = group_strides(p.dv),
      .hdim = number(f.hdim_q),
  };
}

void add_batch(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const FwdProblem& f = p.fwd;
  new (plan.add_launch<AiterBwdBatchParams>(kernel, grid_of(kernel, f, w))) AiterBwdBatchParams{
      .tensors = tensors<const void*>(p, w),
      .scale = f.softmax_scale,
      .log2e = kLog2e,
      .nhead_ratio_qk = number(f.nhead_q / f.nhead_k),
      .seqlen_q = number(f.seqlen_q),
      .seqlen_k = number(f.seqlen_k),
      .hdim = number(f.hdim_q),
      .nhead_q = number(f.nhead_q),
      .q = strides<AiterBwdInt>(f.q),
      .k = strides<AiterBwdInt>(f.k),
      .v = strides<AiterBwdInt>(f.v),
      .dout = strides<AiterBwdInt>(p.dout),
      .dk = strides<AiterBwdInt>(p.dk),
      .dv = strides<AiterBwdInt>(p.dv),
  };
}

void add_wide(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const FwdProblem& f = p.fwd;
  using Pointer = AiterBwdWideParams::Pointer;
  using Number = AiterBwdWideParams::Number;
  const auto stride = [](const View& v, Dimension i) { return Number{stride_bytes(v, i)}; };
  const auto count = [](int64_t value) { return Number{number(value)}; };
  new (plan.add_launch<AiterBwdWideParams>(kernel, grid_of(kernel, f, w))) AiterBwdWideParams{
      .tensors = tensors<Pointer>(p, w),
      .scale = {f.softmax_scale},
      .log2e = {kLog2e},
      .seqlen_q = count(f.seqlen_q),
      .k_tile = {stride_bytes(f.k, kSeqlen) * number(kernel.bwd.tile_n)},
      .q = strides<Number>(f.q),
      .nhead_ratio_qk = count(f.nhead_q / f.nhead_k),
      .k = strides<Number>(f.k),
      .dk_row = stride(p.dk, kSeqlen),
      .seqlen_k = count(f.seqlen_k),
      .hdim_q = count(f.hdim_q),
      .hdim_v = count(f.hdim_v),
      .nhead_q = count(f.nhead_q),
      .v = strides<Number>(f.v),
      .dout = strides<Number>(p.dout),
      .dk_head = stride(p.dk, kHead),
      .dk_batch = stride(p.dk, kBatch),
      .dv = strides<Number>(p.dv),
      .lse_head = count(f.total_q * f.lse.element_bytes),
      .starts = starts<Pointer>(f, w),
      .most_queries = count(f.seqlen_q),
      .window = {},
  };
}

}  // namespace

void bwd_add_main(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  constexpr int kWideSlot = 16;
  if (kernel.bwd.slot_bytes == kWideSlot) return add_wide(kernel, p, w, plan);
  if (p.fwd.group) return add_group(kernel, p, w, plan);
  add_batch(kernel, p, w, plan);
}

}  // namespace fmha::aiter
