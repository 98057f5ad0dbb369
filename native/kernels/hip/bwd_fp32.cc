// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments of our float32 backward kernel, its grid, and its limits, which are those of CK's.
#include "hip/bwd_fp32.h"

#include <cinttypes>
#include <new>

#include "args/bwd_fp32.h"
#include "ck/bwd.h"
#include "ck/pack.h"
#include "divide.h"
#include "hip/parts.h"

namespace fmha::hip_bwd {
namespace {

int32_t side(int64_t keys) {
  return keys == Mask::kUnlimited ? BwdFp32Params::kUnlimited : static_cast<int32_t>(keys);
}

BwdStrides lse_strides(const View& v) { return {v.stride[kBatch], v.stride[kHead], 1}; }

BwdStrides optional_strides(const View& v) { return v.touched ? hip_parts::strides(v) : BwdStrides{}; }

// Key tiles, and then query tiles.
Grid grid_of(const Kernel& kernel, const FwdProblem& f, int64_t key_tiles, int64_t query_tiles) {
  const int64_t tiles = key_tiles + query_tiles, most = kMaxWorkItemsX / kernel.block_size;
  if (tiles > most) {
    raise(FMHA_UNSUPPORTED,
          "fwd->seqlen_q = %" PRId64 ", fwd->seqlen_k = %" PRId64 ": one launch does at most %" PRId64
          " rows of float32",
          f.seqlen_q, f.seqlen_k, most * kernel.bwd.tile_n);
  }
  return {static_cast<uint32_t>(tiles), static_cast<uint32_t>(f.nhead_q), static_cast<uint32_t>(f.batch)};
}

}  // namespace

bool is_within_limits(const BwdProblem& p, Refusal& why) { return ck::bwd_is_countable(p, why); }

void add_main(const Kernel& kernel, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  const FwdProblem& f = p.fwd;
  const ck::KernelDropout dropout = ck::kernel_dropout(f.dropout);
  const bool random = f.dropout.is_on();
  const int64_t key_tiles = ceil_div(p.dk.sequence, kernel.bwd.tile_n);
  const int64_t query_tiles = ceil_div(p.dq.sequence, kernel.bwd.tile_n);
  const Grid grid = grid_of(kernel, f, key_tiles, query_tiles);
  new (plan.add_launch<BwdFp32Params>(kernel, grid)) BwdFp32Params{
      .q = f.q.address<float>(),
      .k = f.k.address<float>(),
      .v = f.v.address<float>(),
      .dout = p.dout.address<float>(),
      .lse = f.lse.address<float>(),
      .d = w.d.data,
      .dq = p.dq.address<float>(),
      .dk = p.dk.address<float>(),
      .dv = p.dv.address<float>(),
      .bias = f.bias.address<float>(),
      .alibi = f.alibi_slopes,
      .cu_q = f.cu_seqlens_q,
      .cu_k = f.cu_seqlens_k,
      .used_q = f.seqused_q,
      .used_k = f.seqused_k,
      .philox = f.dropout.seed_offset,
      .philox_seed = random ? f.dropout.seed : 0,
      .philox_offset = random ? f.dropout.offset : 0,
      .q_strides = hip_parts::strides(f.q),
      .k_strides = hip_parts::strides(f.k),
      .v_strides = hip_parts::strides(f.v),
      .dout_strides = hip_parts::strides(p.dout),
      .lse_strides = lse_strides(f.lse),
      .d_strides = w.d.strides,
      .dq_strides = hip_parts::strides(p.dq),
      .dk_strides = hip_parts::strides(p.dk),
      .dv_strides = hip_parts::strides(p.dv),
      .bias_strides = optional_strides(f.bias),
      .seqlen_q = static_cast<int32_t>(f.seqlen_q),
      .seqlen_k = static_cast<int32_t>(f.seqlen_k),
      .hdim_q = static_cast<int32_t>(f.hdim_q),
      .hdim_v = static_cast<int32_t>(f.hdim_v),
      .nhead_q = static_cast<int32_t>(f.nhead_q),
      .nhead_ratio_qk = static_cast<int32_t>(f.nhead_q / f.nhead_k),
      .key_tiles = static_cast<int32_t>(key_tiles),
      .scale = f.softmax_scale,
      .softcap = f.softcap,
      .rp_keep = random ? dropout.rp_keep : 1.0F,
      .keep_at_most = random ? dropout.keep_at_most : -1,
      .top_left = f.mask.top_left ? 1 : 0,
      .window_left = side(f.mask.left),
      .window_right = side(f.mask.right),
      .alibi_stride_batch = static_cast<int32_t>(f.alibi_stride_batch),
      .accumulate = p.accumulate ? 1 : 0,
  };
}

}  // namespace fmha::hip_bwd
