// SPDX-License-Identifier: MIT OR Apache-2.0
// Limits of all backward kernels, and those of kernels that load whole tiles.
#include <cfloat>
#include <cinttypes>
#include <cmath>

#include "origins/fwd_numbers.h"
#include "origins/limits.h"
#include "plan/grid.h"

namespace fmha::origins {
namespace {

bool o_type_fits(const FwdProblem& f, Refusal& why) {
  if (f.o_dtype == f.dtype) return true;
  return why.because(FMHA_UNSUPPORTED, "fwd->o_dtype = %s: backward kernels take fwd->dtype = %s",
                     dtype_name(f.o_dtype), dtype_name(f.dtype));
}

constexpr int64_t kMostWorkItems = 512;  // of a workgroup, of any backward kernel

bool bwd_dims_fit(const FwdProblem& f, Refusal& why) {
  return dim_fits("fwd->batch", f.batch, most_batches(kMostWorkItems), why) &&
         dim_fits("fwd->seqlen_q", f.seqlen_q, kMaxSeqlen, why) &&
         dim_fits("fwd->seqlen_k", f.seqlen_k, kMaxSeqlen, why) &&
         dim_fits("fwd->nhead_q", f.nhead_q, kMaxGridYZ, why) &&
         dim_fits("fwd->nhead_k", f.nhead_k, kMaxGridYZ, why) &&
         dim_fits("fwd->hdim_q", f.hdim_q, INT32_MAX, why) &&
         dim_fits("fwd->hdim_v", f.hdim_v, INT32_MAX, why) &&
         dim_fits("fwd->total_q", f.total_q, INT32_MAX, why) &&
         dim_fits("fwd->total_k", f.total_k, INT32_MAX, why);
}

// A factor below zero, or one that is flushed to zero, forward does not take either.
bool scale_fits(const FwdProblem& f, Refusal& why) {
  if (f.softmax_scale >= FLT_MIN && !std::isinf(scale_log2e(f))) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "fwd->softmax_scale = %g: kernels take scales from 1e-38 to 2e38 (negate q for a sign)",
                     double{f.softmax_scale});
}

bool bias_tensor_fits(const View& bias, Refusal& why) {
  return !bias.touched || (strides_fit(bias, 1, why) && span_fits(bias, false, why));
}

// dq_acc, and dk and dv by query head: rows of their head dim, one head after another.
bool part_fits(const char* rows_name, const View& v, const char* hdim_name, Refusal& why) {
  View part = v;
  part.element_bytes = sizeof(float);
  part.size = {1, v.size[kSeqlen], 1};
  part.stride = {0, v.row, 0};
  part.varlen = true;  // the stricter limit
  Refusal unsaid;
  if (span_fits(part, true, unsaid)) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "%s = %" PRId64 " rows of %s = %" PRId64
                     ": kernels add up gradients in float32 in less than 2 GiB a head",
                     rows_name, v.sequence, hdim_name, v.row);
}

// A head's gradient of a bias, and its sums, have offsets below 2 GiB.
bool dbias_fits(const BwdProblem& p, Refusal& why) {
  if (!p.dbias.touched) return true;
  View v = p.dbias;
  v.varlen = true;
  return strides_fit(v, 1, why) && span_fits(v, true, why) &&
         part_fits("fwd->seqlen_q", v, "fwd->seqlen_k", why);
}

bool tensors_fit(const BwdProblem& p, Refusal& why) {
  const FwdProblem& f = p.fwd;
  const bool inputs = tensor_fits(f.q, false, why) && tensor_fits(f.k, false, why) &&
                      tensor_fits(f.v, false, why) && tensor_fits(f.o, false, why) &&
                      (!f.lse.touched || strides_fit(f.lse, 1, why)) && tensor_fits(p.dout, false, why);
  return inputs && tensor_fits(p.dq, true, why) && tensor_fits(p.dk, true, why) &&
         tensor_fits(p.dv, true, why) && part_fits("fwd->seqlen_q", p.dq, "fwd->hdim_q", why) &&
         part_fits("fwd->seqlen_k", p.dk, "fwd->hdim_q", why) &&
         part_fits("fwd->seqlen_k", p.dv, "fwd->hdim_v", why);
}

}  // namespace

bool bwd_is_countable(const BwdProblem& p, Refusal& why) {
  const FwdProblem& f = p.fwd;
  return o_type_fits(f, why) && bwd_dims_fit(f, why) && scale_fits(f, why) &&
         dropout_fits("fwd->batch * fwd->nhead_q", f, why) && tensors_fit(p, why) &&
         alibi_fits("fwd->alibi_stride_batch", f, why);
}

bool bwd_within_limits(const BwdProblem& p, Refusal& why) {
  return bwd_is_countable(p, why) && softcap_fits("fwd->", p.fwd, why) && biases_fit("fwd->", p.fwd, why) &&
         bias_tensor_fits(p.fwd.bias, why) && dbias_fits(p, why);
}

}  // namespace fmha::origins
