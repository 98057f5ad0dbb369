// SPDX-License-Identifier: MIT OR Apache-2.0
// The arguments that Composable Kernel's backward kernels and our own have in common.
#pragma once

#include <cstdint>

#include "args/bwd.h"
#include "plan/bwd_workspace.h"
#include "problem/bwd.h"

namespace fmha::origins {

// Sets the fields for the inputs of a problem, and no others: the caller sets those of the kernel's own.
// `strides_of` makes the kernel's strides of a tensor.
template <typename Args, typename StridesOf>
[[gnu::always_inline]] inline void set_bwd_inputs(const BwdProblem& p, const BwdWorkspace& w,
                                                  const StridesOf& strides_of, Args& args) {
  const FwdProblem& f = p.fwd;
  const bool random = f.dropout.is_on();
  args.q = f.q.address();
  args.k = f.k.address();
  args.v = f.v.address();
  args.dout = p.dout.address();
  args.lse = f.lse.address<float>();
  args.d = w.d.data;
  args.bias = f.bias.address();
  args.alibi = f.alibi_slopes;
  args.cu_q = f.cu_seqlens_q;
  args.cu_k = f.cu_seqlens_k;
  args.used_q = f.seqused_q;
  args.used_k = f.seqused_k;
  args.philox = f.dropout.seed_offset;
  args.philox_seed = random ? f.dropout.seed : 0;
  args.philox_offset = random ? f.dropout.offset : 0;
  args.q_strides = strides_of(f.q);
  args.k_strides = strides_of(f.k);
  args.v_strides = strides_of(f.v);
  args.dout_strides = strides_of(p.dout);
  args.lse_strides = strides_of(f.lse);
  args.lse_strides.row = 1;  // its rows are elements
  args.d_strides = w.d.strides;
  args.seqlen_q = static_cast<int32_t>(f.seqlen_q);
  args.seqlen_k = static_cast<int32_t>(f.seqlen_k);
  args.total_q = static_cast<int32_t>(f.total_q);
  args.total_k = static_cast<int32_t>(f.total_k);
  args.hdim_q = static_cast<int32_t>(f.hdim_q);
  args.hdim_v = static_cast<int32_t>(f.hdim_v);
  args.nhead_q = static_cast<int32_t>(f.nhead_q);
  args.nhead_ratio_qk = args.nhead_q / static_cast<int32_t>(f.nhead_k);
  args.alibi_stride_batch = static_cast<int32_t>(f.alibi_stride_batch);
  args.scale = f.softmax_scale;
  args.softcap = f.softcap;
}

}  // namespace fmha::origins
