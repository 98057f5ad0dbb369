// SPDX-License-Identifier: MIT OR Apache-2.0
// The limits of all of AITER's backward kernels.
#include <cinttypes>

#include "origins/aiter/bwd.h"
#include "origins/limits.h"

namespace fmha::aiter {
namespace {

// Where a (batch, head) begins they compute in 32 bits.
constexpr uint64_t kMostBytes = uint64_t{1} << 32;

bool reach_fits(const View& v, Refusal& why) {
  const uint64_t bytes = reach_bytes(v);
  if (bytes < kMostBytes) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "%s spans %" PRIu64 " bytes: hand-written kernels address less than 4 GiB", v.name,
                     bytes);
}

// A float32 dQ of all heads, and so LSE and D too.
bool sums_fit(const BwdProblem& p, Refusal& why) {
  View sums = p.dq;
  sums.element_bytes = sizeof(float);
  sums.stride = {sums.row * sums.size[kSeqlen] * sums.size[kHead], sums.row, sums.row * sums.size[kSeqlen]};
  return reach_fits(sums, why);
}

bool tensors_fit(const BwdProblem& p, Refusal& why) {
  const FwdProblem& f = p.fwd;
  for (const View* v : {&f.q, &f.k, &f.v, &p.dout, &p.dk, &p.dv}) {
    if (!reach_fits(*v, why)) return false;
  }
  return sums_fit(p, why);
}

// They are told no strides of LSE.
bool lse_fits(const FwdProblem& f, Refusal& why) {
  const View& v = f.lse;
  const int64_t rows = f.group ? f.total_q : f.seqlen_q;
  const bool heads = v.size[kHead] <= 1 || v.stride[kHead] == rows;
  const bool batches = v.size[kBatch] <= 1 || v.stride[kBatch] == rows * v.size[kHead];
  if (!v.touched || (heads && batches)) return true;
  return why.because(FMHA_UNSUPPORTED, "%s is not contiguous: hand-written kernels take one that is", v.name);
}

// They write dK and dV of each query head once, rounded: a sum of these would be rounded twice.
bool gradients_fit(const BwdProblem& p, Refusal& why) {
  const FwdProblem& f = p.fwd;
  if (f.nhead_q != f.nhead_k) {
    return why.because(FMHA_UNSUPPORTED,
                       "fwd->nhead_q = %" PRId64 ": hand-written kernels take fwd->nhead_k = %" PRId64,
                       f.nhead_q, f.nhead_k);
  }
  if (p.accumulate) return why.because(FMHA_UNSUPPORTED, "accumulate = 1: hand-written kernels take 0");
  if (p.deterministic) return why.because(FMHA_UNSUPPORTED, "deterministic = 1: hand-written kernels take 0");
  if (p.grad_dtype == f.dtype) return true;
  return why.because(FMHA_UNSUPPORTED, "grad_dtype = %s: hand-written kernels take fwd->dtype = %s",
                     dtype_name(p.grad_dtype), dtype_name(f.dtype));
}

bool lengths_fit(const FwdProblem& f, Refusal& why) {
  if (f.seqused_q == nullptr && f.seqused_k == nullptr) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "fwd->%s is set: hand-written kernels take sequences in use as a whole",
                     f.seqused_q != nullptr ? "seqused_q" : "seqused_k");
}

}  // namespace

bool bwd_within_limits(const BwdProblem& p, Refusal& why) {
  return origins::batch_fits_z("fwd->batch", p.fwd.batch, why) && origins::bwd_is_countable(p, why) &&
         gradients_fit(p, why) && lengths_fit(p.fwd, why) && lse_fits(p.fwd, why) && tensors_fit(p, why);
}

}  // namespace fmha::aiter
