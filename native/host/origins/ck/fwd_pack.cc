// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of CK's forward kernels, and their grid; whether they load a bias by vectors.
#include <new>

#include "args/fwd.h"
#include "origins/ck/fwd.h"
#include "origins/ck/pack.h"
#include "origins/dropout.h"
#include "origins/fwd_numbers.h"
#include "plan/fwd_tiles.h"

namespace fmha::ck {
namespace {

// The bias of kernels that do not pad is loaded by vectors of this many elements.
constexpr int64_t kBiasVector = 4;

// One stride, not all three as a struct: the compiler would return that through the stack, by stores that its
// load has to wait for.
int32_t stride(const View& v, Dimension dimension) {
  return static_cast<int32_t>(origins::kernel_stride(v, dimension));
}

// The tensor may not be there. Its other fields are set only if it is.
int32_t optional_stride(const View& v, Dimension dimension) { return v.touched ? stride(v, dimension) : 0; }

// An unmasked problem may well run on a masked kernel.
KernelMask mask_of(const FwdProblem& p) {
  if (!fwd_needs_mask(p)) return {p.has_alibi ? kMaskBottomRight : kMaskNone, kUnlimited, kUnlimited};
  return kernel_mask(p.mask);
}

// CK's FmhaFwdKernel::GridSize: one workgroup a head, a tile of queries (times tiles of V columns), a batch.
Grid grid_of(const Kernel& kernel, const FwdProblem& p) {
  if (p.empty) return {0, 0, 0};
  return {static_cast<uint32_t>(p.nhead_q), static_cast<uint32_t>(fwd_tiles(kernel, p)),
          static_cast<uint32_t>(p.batch)};
}

}  // namespace

bool fwd_bias_is_whole(const FwdProblem& p) {
  const View& v = p.bias;
  bool whole =
      reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(kBiasVector * v.element_bytes) == 0;
  for (size_t i = 0; i < v.size.size(); ++i) {
    whole = whole && (v.size[i] <= 1 || v.stride[i] % kBiasVector == 0);
  }
  return whole;
}

// Every field by its name and in one expression: zeroing the struct first would cost 15 ns a call.
void fwd_add_steps(const Kernel& kernel, const FwdProblem& p, Plan& plan) {
  const KernelMask mask = mask_of(p);
  const origins::KernelDropout dropout = origins::kernel_dropout(p.dropout);
  const bool fp8 = is_fp8(p.dtype);
  const bool random = p.dropout.is_on();
  const auto nhead_q = static_cast<int32_t>(p.nhead_q);
  new (plan.add_launch<FwdKernelParams>(kernel, grid_of(kernel, p))) FwdKernelParams{
      .q = p.q.address(),
      .k = p.k.address(),
      .v = p.v.address(),
      .o = p.o.address(),
      .lse = p.lse.address<float>(),
      .bias = p.bias.address(),
      .alibi = p.alibi_slopes,
      .cu_q = p.cu_seqlens_q,
      .cu_k = p.cu_seqlens_k,
      .used_q = p.seqused_q,
      .used_k = p.seqused_k,
      .randval = p.randval.address<uint8_t>(),
      .philox = p.dropout.seed_offset,
      .philox_seed = random ? p.dropout.seed : 0,
      .philox_offset = random ? p.dropout.offset : 0,
      .seqlen_q = static_cast<int32_t>(p.seqlen_q),
      .seqlen_k = static_cast<int32_t>(p.seqlen_k),
      .total_q = static_cast<int32_t>(p.total_q),
      .total_k = static_cast<int32_t>(p.total_k),
      .hdim_q = static_cast<int32_t>(p.hdim_q),
      .hdim_v = static_cast<int32_t>(p.hdim_v),
      .nhead_q = nhead_q,
      .nhead_ratio_qk = nhead_q / static_cast<int32_t>(p.nhead_k),
      .scale_log2e = origins::scale_log2e(p),
      .softcap = p.softcap,
      .scale_p = fp8 ? origins::fp8_scale_p(p.dtype) : 0,
      .scale_o = fp8 ? p.v_descale / origins::fp8_scale_p(p.dtype) : 0,
      .rp_keep = dropout.rp_keep,
      .keep_at_most = dropout.keep_at_most,
      .mask_type = mask.type,
      .window_left = mask.left,
      .window_right = mask.right,
      .stride_q = stride(p.q, kSeqlen),
      .stride_k = stride(p.k, kSeqlen),
      .stride_v = stride(p.v, kSeqlen),
      .stride_o = stride(p.o, kSeqlen),
      .stride_bias = optional_stride(p.bias, kSeqlen),
      .stride_randval = optional_stride(p.randval, kSeqlen),
      .nhead_stride_q = stride(p.q, kHead),
      .nhead_stride_k = stride(p.k, kHead),
      .nhead_stride_v = stride(p.v, kHead),
      .nhead_stride_o = stride(p.o, kHead),
      .nhead_stride_lse = optional_stride(p.lse, kHead),
      .nhead_stride_bias = optional_stride(p.bias, kHead),
      .nhead_stride_randval = optional_stride(p.randval, kHead),
      .batch_stride_q = stride(p.q, kBatch),
      .batch_stride_k = stride(p.k, kBatch),
      .batch_stride_v = stride(p.v, kBatch),
      .batch_stride_o = stride(p.o, kBatch),
      .batch_stride_lse = optional_stride(p.lse, kBatch),
      .batch_stride_bias = optional_stride(p.bias, kBatch),
      .batch_stride_randval = optional_stride(p.randval, kBatch),
      .batch_stride_alibi = static_cast<int32_t>(p.alibi_stride_batch),
  };
}

}  // namespace fmha::ck
