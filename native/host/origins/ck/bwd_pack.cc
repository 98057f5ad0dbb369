// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of CK's backward kernels, and their grid.
#include <cstddef>
#include <new>

#include "args/bwd.h"
#include "origins/bwd_inputs.h"
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
  const Grid grid = {static_cast<uint32_t>(w.groups), static_cast<uint32_t>(f.nhead_q),
                     static_cast<uint32_t>(f.batch)};
  auto& args = *new (plan.add_launch<BwdKernelParams>(kernel, grid)) BwdKernelParams;
  origins::set_bwd_inputs(p, w, strides, args);
  args.dq_acc = w.dq_acc.data;
  args.dk = w.direct ? p.dk.address() : w.dk.data;
  args.dv = w.direct ? p.dv.address() : w.dv.data;
  args.dq_acc_strides = w.dq_acc.strides;
  args.dk_strides = w.direct ? strides(p.dk) : w.dk.strides;
  args.dv_strides = w.direct ? strides(p.dv) : w.dv.strides;
  args.dq_acc_copy = w.copies > 1 ? w.copy : 0;
  args.rp_keep = dropout.rp_keep;
  args.keep_at_most = dropout.keep_at_most;
  args.mask_type = mask.type;
  args.window_left = mask.left;
  args.window_right = mask.right;
  args.float_dkv = !w.direct || p.grad_dtype == DType::kFp32 ? 1 : 0;
  args.round = 0;
  args.bias_strides = f.bias.touched ? strides(f.bias) : BwdStrides{};
  args.dbias = nullptr;
  args.dbias_strides = {};
  args.dbias_adds = 0;
  args.reserved = 0;
  if (p.dbias.touched) set_dbias(p, w, args);
  plan.repeat(static_cast<uint32_t>(w.rounds), offsetof(BwdKernelParams, round));
}

}  // namespace fmha::ck
