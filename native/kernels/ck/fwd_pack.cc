// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of CK's forward kernels, and their grid.
#include <cmath>

#include "args/fwd.h"
#include "ck/fwd.h"
#include "ck/numbers.h"
#include "select/fwd.h"

namespace fmha::ck {
namespace {

// CK's numbers for a mask's alignment (GenericAttentionMaskEnum).
constexpr int32_t kMaskNone = 0;
constexpr int32_t kMaskTopLeft = 1;
constexpr int32_t kMaskBottomRight = 2;
constexpr int32_t kUnlimited = -1;

struct KernelStrides {
  int32_t batch, seqlen, head;
};

KernelStrides kernel_strides(const View& v) {
  return {static_cast<int32_t>(kernel_stride(v, 0)), static_cast<int32_t>(kernel_stride(v, 1)),
          static_cast<int32_t>(kernel_stride(v, 2))};
}

void pack_sizes(const FwdProblem& p, FwdKernelParams& a) {
  a.seqlen_q = static_cast<int32_t>(p.seqlen_q);
  a.seqlen_k = static_cast<int32_t>(p.seqlen_k);
  a.hdim_q = static_cast<int32_t>(p.hdim_q);
  a.hdim_v = static_cast<int32_t>(p.hdim_v);
  a.nhead_q = static_cast<int32_t>(p.nhead_q);
  a.nhead_ratio_qk = a.nhead_q / static_cast<int32_t>(p.nhead_k);
}

void pack_qkvo(const FwdProblem& p, FwdKernelParams& a) {
  a.q = p.q.address();
  a.k = p.k.address();
  a.v = p.v.address();
  a.o = p.o.address();
  const KernelStrides q = kernel_strides(p.q), k = kernel_strides(p.k), v = kernel_strides(p.v);
  const KernelStrides o = kernel_strides(p.o);
  a.stride_q = q.seqlen, a.nhead_stride_q = q.head, a.batch_stride_q = q.batch;
  a.stride_k = k.seqlen, a.nhead_stride_k = k.head, a.batch_stride_k = k.batch;
  a.stride_v = v.seqlen, a.nhead_stride_v = v.head, a.batch_stride_v = v.batch;
  a.stride_o = o.seqlen, a.nhead_stride_o = o.head, a.batch_stride_o = o.batch;
}

void pack_optional(const FwdProblem& p, FwdKernelParams& a) {
  if (p.lse.touched) {
    const KernelStrides s = kernel_strides(p.lse);
    a.lse = p.lse.address<float>();
    a.nhead_stride_lse = s.head, a.batch_stride_lse = s.batch;
  }
  if (p.bias.touched) {
    const KernelStrides s = kernel_strides(p.bias);
    a.bias = p.bias.address();
    a.stride_bias = s.seqlen, a.nhead_stride_bias = s.head, a.batch_stride_bias = s.batch;
  }
  if (p.randval.touched) {
    const KernelStrides s = kernel_strides(p.randval);
    a.randval = p.randval.address<uint8_t>();
    a.stride_randval = s.seqlen, a.nhead_stride_randval = s.head, a.batch_stride_randval = s.batch;
  }
  a.alibi = p.alibi_slopes;
  a.batch_stride_alibi = static_cast<int32_t>(p.alibi_stride_batch);
  a.cu_q = p.cu_seqlens_q;
  a.cu_k = p.cu_seqlens_k;
  a.used_q = p.seqused_q;
  a.used_k = p.seqused_k;
}

int32_t side(int64_t keys) { return keys == Mask::kUnlimited ? kUnlimited : static_cast<int32_t>(keys); }

void pack_mask(const FwdProblem& p, FwdKernelParams& a) {
  if (fwd_needs_mask(p)) {
    a.mask_type = p.mask.top_left ? kMaskTopLeft : kMaskBottomRight;
    a.window_left = side(p.mask.left);
    a.window_right = side(p.mask.right);
    return;
  }
  // An unmasked problem may well run on a masked kernel.
  a.mask_type = p.has_alibi ? kMaskBottomRight : kMaskNone;
  a.window_left = kUnlimited;
  a.window_right = kUnlimited;
}

void pack_scores(const FwdProblem& p, FwdKernelParams& a) {
  a.scale_log2e = scale_log2e(p);
  a.softcap = p.softcap;
  if (p.dtype == DType::kFp8) {
    a.scale_p = kFp8ScaleP;
    a.scale_o = p.v_descale / kFp8ScaleP;
  }
}

// As CK's MakeKargs computes them, in its precision: a backward pass and the tests' model do the same.
void pack_dropout(const FwdProblem& p, FwdKernelParams& a) {
  if (!p.dropout.is_on()) return;
  const auto p_keep = static_cast<float>(1.0 - double{p.dropout.p_drop});
  a.keep_at_most = static_cast<int32_t>(std::floor(p_keep * 255.0F));
  a.rp_keep = static_cast<float>(1.0 / double{p_keep});
  a.philox_seed = p.dropout.seed;
  a.philox_offset = p.dropout.offset;
  a.philox = p.dropout.seed_offset;
}

// CK's FmhaFwdKernel::GridSize: one workgroup a head, a tile of queries (times tiles of V columns), a batch.
// With lengths in use of the keys it has batches before tiles.
Grid grid_of(const Kernel& kernel, const FwdProblem& p) {
  if (p.empty) return {0, 0, 0};
  const auto heads = static_cast<uint32_t>(p.nhead_q);
  const auto tiles = static_cast<uint32_t>(fwd_tiles(kernel, p));
  const auto batch = static_cast<uint32_t>(p.batch);
  if (p.seqused_k != nullptr) return {heads, batch, tiles};
  return {heads, tiles, batch};
}

}  // namespace

void fwd_add_steps(const Kernel& kernel, const FwdProblem& problem, Plan& plan) {
  auto& a = plan.add_launch<FwdKernelParams>(kernel, grid_of(kernel, problem));
  pack_sizes(problem, a);
  pack_qkvo(problem, a);
  pack_optional(problem, a);
  pack_mask(problem, a);
  pack_scores(problem, a);
  pack_dropout(problem, a);
}

}  // namespace fmha::ck
