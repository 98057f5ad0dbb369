// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/fwd_wmma_pack.h"

#include <cinttypes>
#include <new>

#include "args/fwd_wmma.h"
#include "ck/pack.h"
#include "divide.h"
#include "hip/fwd_pingpong_pack.h"

namespace fmha::wmma {
namespace {

constexpr int64_t kMostTileBytes = int64_t{1} << 31;  // of a bias's rows of a tile, gaps included

bool dtypes_fit(const FwdProblem& p) {
  return (p.dtype == DType::kFp16 || p.dtype == DType::kBf16) && p.o_dtype == p.dtype;
}

// Of a dimension of size one the caller's stride means nothing.
int64_t step(const View& v, Dimension i) { return v.touched && v.size[i] > 1 ? v.stride[i] : 0; }

bool bias_fits(const FwdProblem& p) {
  return !p.bias.touched || step(p.bias, kSeqlen) * p.bias.element_bytes * kTileRows < kMostTileBytes;
}

Grid grid_of(const FwdProblem& p) {
  if (p.empty) return {0, 0, 0};
  return {1, static_cast<uint32_t>(ceil_div(p.seqlen_q, kTileRows)),
          static_cast<uint32_t>(p.nhead_q * p.batch)};
}

}  // namespace

bool fwd_within_limits(const FwdProblem& p, Refusal& why) {
  if (!dtypes_fit(p)) return false;
  if (p.randval.touched)
    return why.because(FMHA_UNSUPPORTED, "randval: kernels for WMMA draw the same numbers, and do not write them");
  if (hip_fwd::fwd_shape_fits(p, kTileRows) && bias_fits(p)) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "kernels for WMMA take pointers and strides of 16 bytes, 128 rows of a tensor of less than "
                     "2 GiB, gaps included, and a softmax_scale of 1.2e-38 or more");
}

void fwd_add_steps(const Kernel& kernel, const FwdProblem& p, Plan& plan) {
  const ck::KernelDropout dropout = ck::kernel_dropout(p.dropout);
  const bool random = p.dropout.is_on();
  new (plan.add_launch<FwdWmmaParams>(kernel, grid_of(p))) FwdWmmaParams{
      .plain = hip_fwd::fwd_arguments(p),
      .bias = p.bias.address(),
      .alibi = p.alibi_slopes,
      .philox = p.dropout.seed_offset,
      .philox_seed = random ? p.dropout.seed : 0,
      .philox_offset = random ? p.dropout.offset : 0,
      .bias_batch = step(p.bias, kBatch),
      .bias_nhead = step(p.bias, kHead),
      .bias_row = step(p.bias, kSeqlen),
      .alibi_batch = p.alibi_stride_batch,
      .softcap = p.softcap,
      .softmax_scale = p.softmax_scale,
      .rp_keep = dropout.rp_keep,
      .keep_at_most = dropout.keep_at_most,
  };
}

}  // namespace fmha::wmma
