// SPDX-License-Identifier: MIT OR Apache-2.0
#include "origins/limits.h"

#include <algorithm>
#include <cfloat>
#include <cinttypes>
#include <cmath>

#include "origins/fwd_numbers.h"
#include "plan/plan.h"

namespace fmha::origins {
namespace {

// Each (batch, head) takes 64 numbers of the random sequence, which the kernels count in 32 bits.
constexpr int64_t kMaxDropoutHeads = INT32_MAX / 64;

// Row offsets are int32 elements; in bytes they are taken modulo 4 GiB.
constexpr int64_t kMaxSpanElements = int64_t{1} << 31;
constexpr int64_t kMaxSpanBytes = int64_t{1} << 32;
// Rows past the end of what is written are dropped by adding 2 GiB to their address: they need a span below
// that.
constexpr int64_t kMaxPaddedStoreBytes = int64_t{1} << 31;

// The kernels load and store 16 bytes at a time.
constexpr int64_t kAlignBytes = 16;

// CK's tanh is 1 - 2 / (exp2(..) + 1), off by up to 10 * 2^-24 however small it is (worked out in
// pyfa_rocm/oracle/rounding.py), and a score by softcap times that. At this cap it is as much as an ulp of
// fp16's P between 1/2 and 1. Models have caps of 20 to 50.
constexpr float kMaxSoftcap = 0x1p-11F / (10 * 0x1p-24F);

bool refuse_stride(const View& v, Dimension i, int64_t align_bytes, Refusal& why) {
  if ((static_cast<uint64_t>(v.stride[i]) * static_cast<uint64_t>(v.element_bytes)) %
          static_cast<uint64_t>(align_bytes) !=
      0) {
    return why.because(FMHA_INVALID_ARGUMENT,
                       "%s.%s = %" PRId64 ": expected a multiple of %" PRId64 " elements (16-byte loads)",
                       v.name, kStrideNames[i], v.stride[i], align_bytes / v.element_bytes);
  }
  return why.because(FMHA_UNSUPPORTED, "%s.%s = %" PRId64 ": kernels take strides below 2^31 elements",
                     v.name, kStrideNames[i], v.stride[i]);
}

bool address_fits(const View& v, Refusal& why) {
  if (!v.touched || (reinterpret_cast<uintptr_t>(v.data) & (kAlignBytes - 1)) == 0) return true;
  return why.because(FMHA_INVALID_ARGUMENT, "%s = %p: expected an address aligned to %" PRId64 " bytes",
                     v.pointer, v.data, kAlignBytes);
}

}  // namespace

bool dim_fits(const char* name, int64_t value, int64_t most, Refusal& why) {
  if (value <= most) return true;
  return why.because(FMHA_UNSUPPORTED, "%s = %" PRId64 ": kernels take at most %" PRId64, name, value, most);
}

bool batch_fits_z(const char* name, int64_t batch, Refusal& why) {
  if (batch <= kMaxGridYZ) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "%s = %" PRId64
                     ": Composable Kernel's and AITER's kernels, which this takes, have at "
                     "most %" PRId64 "; split the batch",
                     name, batch, kMaxGridYZ);
}

// A product that wraps around keeps its lower bits.
bool strides_fit(const View& v, int64_t align_bytes, Refusal& why) {
  // The bits of all three together, which also settles the strides that are not read if they are small.
  const auto all = static_cast<uint64_t>(v.stride[0] | v.stride[1] | v.stride[2]);
  const uint64_t all_bytes = all * static_cast<uint64_t>(v.element_bytes);
  if (all <= INT32_MAX && (all_bytes & static_cast<uint64_t>(align_bytes - 1)) == 0) return true;
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    if (v.size[i] <= 1) continue;
    const uint64_t bytes = static_cast<uint64_t>(v.stride[i]) * static_cast<uint64_t>(v.element_bytes);
    const bool aligned = (bytes & static_cast<uint64_t>(align_bytes - 1)) == 0;
    if (!aligned || v.stride[i] > INT32_MAX) return refuse_stride(v, i, align_bytes, why);
  }
  return true;
}

bool span_fits(const View& v, bool written, Refusal& why) {
  const int64_t rows = (v.sequence + kTileRows - 1) & ~(kTileRows - 1);
  const int64_t stride = kernel_stride(v, kSeqlen);
  const int64_t span = (rows * stride + v.row) * v.element_bytes;
  const bool padded_store = written && (v.varlen || rows != v.sequence);
  const int64_t most_bytes = padded_store ? kMaxPaddedStoreBytes : kMaxSpanBytes;
  const int64_t most = std::min(kMaxSpanElements * v.element_bytes, most_bytes);
  if (span < most) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "%s.stride_seqlen = %" PRId64 " over %" PRId64 " rows: one head spans %" PRId64
                     " bytes, and kernels address %" PRId64
                     "; a layout with a smaller stride_seqlen, such as (batch, head, seqlen, ...), fits",
                     v.name, stride, v.sequence, span, most);
}

bool tensor_fits(const View& v, bool written, Refusal& why) {
  // A head dim that is no multiple of a vector has no kernel, which the selector says better than its
  // strides.
  const bool whole_rows = (v.row * v.element_bytes & (kAlignBytes - 1)) == 0;
  return strides_fit(v, whole_rows ? kAlignBytes : 1, why) && span_fits(v, written, why) &&
         address_fits(v, why);
}

// Both factors are below 2^31 by now.
bool dropout_fits(const char* name, const FwdProblem& p, Refusal& why) {
  if (!p.dropout.is_on() || p.batch * p.nhead_q <= kMaxDropoutHeads) return true;
  return why.because(FMHA_UNSUPPORTED, "%s = %" PRId64 ": kernels with dropout take at most %" PRId64, name,
                     p.batch * p.nhead_q, kMaxDropoutHeads);
}

// The kernels count slopes in 32 bits, whatever the batch.
bool alibi_fits(const char* name, const FwdProblem& p, Refusal& why) {
  if (!p.has_alibi || p.alibi_stride_batch == 0) return true;
  const int64_t most = (INT32_MAX - p.nhead_q) / std::max<int64_t>(p.batch, 1);
  if (p.alibi_stride_batch <= most) return true;
  return why.because(FMHA_UNSUPPORTED, "%s = %" PRId64 ": for this batch kernels take at most %" PRId64, name,
                     p.alibi_stride_batch, most);
}

// tanh is taken of the score divided by softcap, and the quotient of the two scales is a factor of its own.
bool softcap_fits(const char* prefix, const FwdProblem& p, Refusal& why) {
  if (p.softcap == 0.0F) return true;
  if (p.softcap < FLT_MIN || p.softcap > kMaxSoftcap) {
    return why.because(
        FMHA_UNSUPPORTED,
        "%ssoftcap = %g: kernels take 1e-38 to %g, beyond which the error of their tanh shows; "
        "expected that, or 0 for none",
        prefix, double{p.softcap}, double{kMaxSoftcap});
  }
  const float quotient = scale_log2e(p) / p.softcap;
  if (quotient < FLT_MIN || std::isinf(quotient)) {
    return why.because(FMHA_UNSUPPORTED,
                       "%ssoftcap = %g: kernels take softmax_scale / softcap from 1e-38 to 2e38", prefix,
                       double{p.softcap});
  }
  return true;
}

bool biases_fit(const char* prefix, const FwdProblem& p, Refusal& why) {
  if (p.has_bias && p.has_alibi) {
    return why.because(
        FMHA_UNSUPPORTED,
        "%sbias and alibi_slopes are both set: no kernel adds two biases; expected one of them "
        "(an ALiBi can be written into an elementwise bias)",
        prefix);
  }
  if (p.softcap != 0.0F && (p.has_bias || p.has_alibi)) {
    return why.because(FMHA_UNSUPPORTED, "%ssoftcap = %g and %s: no kernel does both; expected one of them",
                       prefix, double{p.softcap}, p.has_bias ? "bias" : "alibi_slopes");
  }
  return true;
}

}  // namespace fmha::origins
