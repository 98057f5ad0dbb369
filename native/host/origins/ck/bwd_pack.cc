// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of CK's backward kernels, and their grid.
#include <cstddef>
#include <new>

#include "args/bwd.h"
#include "origins/ck/bwd.h"
#include "origins/ck/pack.h"
#include "origins/dropout.h"
#include "origins/parts.h"

namespace fmha::ck {
namespace {

BwdStrides strides(const View& v) {
  return {origins::kernel_stride(v, kBatch), origins::kernel_stride(v, kHead),
          origins::kernel_stride(v, kSeqlen)};
}

// The LSE's rows are elements.
BwdStrides lse_strides(const View& v) {
  return {origins::kernel_stride(v, kBatch), origins::kernel_stride(v, kHead), 1};
}

// Where the kernel puts the gradient of the bias. Strides of dimensions that are summed up are 0; others that
// have size one are read times 0.
void set_dbias(const BwdProblem& p, const BwdWorkspace& w, BwdKernelParams& args) {
  const bool elsewhere = w.dbias.bytes > 0;
  args.dbias = elsewhere ? w.dbias.data : p.dbias.address();
  args.dbias_strides = elsewhere ? w.dbias.strides : bwd_parts::strides(p.dbias);
  args.dbias_adds = elsewhere || p.grad_dtype == DType::kFp32 ? 1 : 0;
}

}  // namespace

void bwd_add_main(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const FwdProblem& f = p.fwd;
  const KernelMask mask = kernel_mask(f.mask);
  const origins::KernelDropout dropout = origins::kernel_dropout(f.dropout);
  const bool random = f.dropout.is_on();
  const auto nhead_q = static_cast<int32_t>(f.nhead_q);
  const Grid grid = {static_cast<uint32_t>(w.groups), static_cast<uint32_t>(f.nhead_q),
                     static_cast<uint32_t>(f.batch)};
  auto* const args = new (plan.add_launch<BwdKernelParams>(kernel, grid)) BwdKernelParams{
      .q = f.q.address(),
      .k = f.k.address(),
      .v = f.v.address(),
      .dout = p.dout.address(),
      .lse = f.lse.address<float>(),
      .d = w.d.data,
      .dq_acc = w.dq_acc.data,
      .dk = w.direct ? p.dk.address() : w.dk.data,
      .dv = w.direct ? p.dv.address() : w.dv.data,
      .alibi = f.alibi_slopes,
      .cu_q = f.cu_seqlens_q,
      .cu_k = f.cu_seqlens_k,
      .used_q = f.seqused_q,
      .used_k = f.seqused_k,
      .philox = f.dropout.seed_offset,
      .philox_seed = random ? f.dropout.seed : 0,
      .philox_offset = random ? f.dropout.offset : 0,
      .q_strides = strides(f.q),
      .k_strides = strides(f.k),
      .v_strides = strides(f.v),
      .dout_strides = strides(p.dout),
      .lse_strides = lse_strides(f.lse),
      .d_strides = w.d.strides,
      .dq_acc_strides = w.dq_acc.strides,
      .dk_strides = w.direct ? strides(p.dk) : w.dk.strides,
      .dv_strides = w.direct ? strides(p.dv) : w.dv.strides,
      .dq_acc_copy = w.copies > 1 ? w.copy : 0,
      .seqlen_q = static_cast<int32_t>(f.seqlen_q),
      .seqlen_k = static_cast<int32_t>(f.seqlen_k),
      .hdim_q = static_cast<int32_t>(f.hdim_q),
      .hdim_v = static_cast<int32_t>(f.hdim_v),
      .nhead_q = nhead_q,
      .nhead_ratio_qk = nhead_q / static_cast<int32_t>(f.nhead_k),
      .scale = f.softmax_scale,
      .rp_keep = dropout.rp_keep,
      .keep_at_most = dropout.keep_at_most,
      .mask_type = mask.type,
      .window_left = mask.left,
      .window_right = mask.right,
      .alibi_stride_batch = static_cast<int32_t>(f.alibi_stride_batch),
      .float_dkv = !w.direct || p.grad_dtype == DType::kFp32 ? 1 : 0,
      .round = 0,
      .softcap = f.softcap,
      .bias = f.bias.address(),
      .bias_strides = f.bias.touched ? strides(f.bias) : BwdStrides{},
      .dbias = nullptr,
      .dbias_strides = {},
      .dbias_adds = 0,
      .total_q = static_cast<int32_t>(f.total_q),
      .total_k = static_cast<int32_t>(f.total_k),
      .reserved = 0,
  };
  if (p.dbias.touched) set_dbias(p, w, *args);
  plan.repeat(static_cast<uint32_t>(w.rounds), offsetof(BwdKernelParams, round));
}

}  // namespace fmha::ck
