// SPDX-License-Identifier: MIT OR Apache-2.0
// Limits of all forward kernels that load whole tiles, checked in the order of the params.
#include <cfloat>
#include <cmath>

#include "origins/fwd_numbers.h"
#include "origins/limits.h"

namespace fmha::origins {
namespace {

bool dims_fit(const FwdProblem& p, Refusal& why) {
  return dim_fits("batch", p.batch, INT32_MAX, why) && dim_fits("seqlen_q", p.seqlen_q, kMaxSeqlen, why) &&
         dim_fits("seqlen_k", p.seqlen_k, kMaxSeqlen, why) &&
         dim_fits("nhead_q", p.nhead_q, INT32_MAX, why) && dim_fits("nhead_k", p.nhead_k, INT32_MAX, why) &&
         dim_fits("hdim_q", p.hdim_q, INT32_MAX, why) && dim_fits("hdim_v", p.hdim_v, INT32_MAX, why) &&
         dim_fits("total_q", p.total_q, INT32_MAX, why) && dim_fits("total_k", p.total_k, INT32_MAX, why);
}

// The kernels take the row maximum before they scale and hide keys with -inf scores, so a factor below zero,
// or one that is flushed to zero, would give infinities and NaNs.
bool scales_fit(const FwdProblem& p, Refusal& why) {
  const float scale = scale_log2e(p);
  if (!(scale >= FLT_MIN) || std::isinf(scale)) {
    return why.because(FMHA_UNSUPPORTED,
                       "softmax_scale = %g%s: kernels take scales from 1e-38 to 2e38 (negate q for a sign)",
                       double{p.softmax_scale},
                       p.qk_descale == 1.0F ? "" : ", times q_descale and k_descale");
  }
  return v_descale_fits(p, why);
}

bool tensors_fit(const FwdProblem& p, Refusal& why) {
  return tensor_fits(p.q, false, why) && tensor_fits(p.k, false, why) && tensor_fits(p.v, false, why) &&
         tensor_fits(p.o, true, why) && (!p.lse.touched || strides_fit(p.lse, 1, why)) &&
         (!p.bias.touched || (strides_fit(p.bias, 1, why) && span_fits(p.bias, false, why)));
}

bool randval_fits(const FwdProblem& p, Refusal& why) {
  return !p.randval.touched || (strides_fit(p.randval, 1, why) && span_fits(p.randval, true, why));
}

}  // namespace

bool v_descale_fits(const FwdProblem& p, Refusal& why) {
  if (!is_fp8(p.dtype) || p.v_descale / fp8_scale_p(p.dtype) >= FLT_MIN) return true;
  return why.because(FMHA_UNSUPPORTED, "v_descale = %g: kernels take %g or more", double{p.v_descale},
                     double{fp8_scale_p(p.dtype) * FLT_MIN});
}

bool fwd_within_limits(const FwdProblem& p, Refusal& why) {
  return dims_fit(p, why) && scales_fit(p, why) && softcap_fits("", p, why) && biases_fit("", p, why) &&
         dropout_fits("batch * nhead_q", p, why) && tensors_fit(p, why) &&
         alibi_fits("alibi_stride_batch", p, why) && randval_fits(p, why);
}

}  // namespace fmha::origins
