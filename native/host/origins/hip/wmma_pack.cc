// SPDX-License-Identifier: MIT OR Apache-2.0
#include "origins/hip/wmma_pack.h"

#include <cinttypes>
#include <new>

#include "args/fwd_wmma.h"
#include "divide.h"
#include "origins/dropout.h"
#include "origins/hip/fwd_pingpong_pack.h"
#include "origins/limits.h"
#include "origins/two_sided.h"

namespace fmha::wmma {
namespace {

bool types_fit(const FwdProblem& p, Refusal& why) {
  if (p.dtype != DType::kFp16 && p.dtype != DType::kBf16) {
    return why.because(FMHA_UNSUPPORTED, "dtype = %s: kernels for Radeon take fp16 and bf16",
                       dtype_name(p.dtype));
  }
  if (p.o_dtype != p.dtype) {
    return why.because(FMHA_UNSUPPORTED, "o_dtype = %s: kernels for Radeon take dtype = %s",
                       dtype_name(p.o_dtype), dtype_name(p.dtype));
  }
  return true;
}

// A launch counts work items of x in 32 bits; no kernel has more of them in a workgroup.
constexpr int64_t kMostWorkItems = 256;

bool grid_fits(const FwdProblem& p, Refusal& why) {
  return origins::dim_fits("batch * nhead_q", p.batch * p.nhead_q, kMaxWorkItemsX / kMostWorkItems, why) &&
         origins::dim_fits("seqlen_q", p.seqlen_q, kMaxGridYZ * kFwdMostTileRows, why);
}

// Heads of all batches; a head's tiles follow each other, unless z has no room for so many heads.
Grid grid_of(const FwdProblem& p, int64_t tile) {
  const int64_t heads = p.batch * p.nhead_q, parts = heads > kMaxGridYZ ? heads : 1;
  return {static_cast<uint32_t>(parts), static_cast<uint32_t>(ceil_div(p.seqlen_q, tile)),
          static_cast<uint32_t>(heads / parts)};
}

// Strides are int32 elements by now. The bias of a tile of rows spans less than a buffer.
bool bias_fits(const View& v, Refusal& why) {
  if (!v.touched || v.size[kSeqlen] <= 1) return true;
  const int64_t span = v.stride[kSeqlen] * kFwdMostTileRows * v.element_bytes;
  if (span < int64_t{1} << 31) return true;
  return why.because(FMHA_UNSUPPORTED, "%s.stride_seqlen = %" PRId64 ": kernels take less than %" PRId64,
                     v.name, v.stride[kSeqlen], (int64_t{1} << 31) / (kFwdMostTileRows * v.element_bytes));
}

}  // namespace

bool fwd_within_limits(const FwdProblem& p, Refusal& why) {
  return types_fit(p, why) && origins::fwd_within_limits(p, why) && grid_fits(p, why) &&
         bias_fits(p.bias, why);
}

bool bwd_within_limits(const BwdProblem& p, Refusal& why) {
  return origins::bwd_within_limits(p, why) && bias_fits(p.fwd.bias, why);
}

void fwd_add_steps(const Kernel& kernel, const FwdProblem& p, Plan& plan) {
  const origins::KernelDropout dropout = origins::kernel_dropout(p.dropout);
  const bool random = p.dropout.is_on();
  const Grid grid = p.empty ? Grid{0, 0, 0} : grid_of(p, kernel.fwd.tile_m);
  new (plan.add_launch<FwdWmmaParams>(kernel, grid)) FwdWmmaParams{
      .plain = hip_fwd::fwd_params(p),
      .bias = p.bias.address(),
      .alibi = p.alibi_slopes,
      .randval = p.randval.address<uint8_t>(),
      .philox = p.dropout.seed_offset,
      .philox_seed = random ? p.dropout.seed : 0,
      .philox_offset = random ? p.dropout.offset : 0,
      .bias_batch = p.bias.step(kBatch),
      .bias_nhead = p.bias.step(kHead),
      .bias_row = p.bias.step(kSeqlen),
      .randval_batch = p.randval.step(kBatch),
      .randval_nhead = p.randval.step(kHead),
      .randval_row = p.randval.step(kSeqlen),
      .alibi_batch = p.alibi_stride_batch,
      .softcap = p.softcap,
      .softmax_scale = p.softmax_scale,
      .rp_keep = dropout.rp_keep,
      .keep_at_most = dropout.keep_at_most,
  };
}

void bwd_add_main(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  two_sided::add_main(kernel, p, w, plan);
}

}  // namespace fmha::wmma
