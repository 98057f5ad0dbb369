// SPDX-License-Identifier: MIT OR Apache-2.0
#include <algorithm>
#include <cfloat>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "error.h"
#include "problem/problem.h"
#include "problem/struct_size.h"
#include "text.h"

namespace fmha {
namespace {

// CK's numbers for a mask's alignment (GenericAttentionMaskEnum).
constexpr int32_t kMaskNone = 0;
constexpr int32_t kMaskTopLeft = 1;
constexpr int32_t kMaskBottomRight = 2;
constexpr int32_t kUnlimited = -1;

// LSE offsets are int32 bytes, and a store past the last row is dropped by adding 2 GiB to its address, so
// that seqlen_q * 4 must stay below that. It also keeps the masks' int32 sums of two lengths from
// overflowing.
constexpr int64_t kMaxSeqlen = (int64_t{1} << 29) - kTileRows;

// Each (batch, head) takes 64 numbers of the random sequence, which the kernels count in 32 bits.
constexpr int64_t kMaxDropoutHeads = INT32_MAX / 64;

// Every field of version 0.1, of the header that came before bias, varlen and dropout; and of this one.
// The second header's ended with four bytes of padding, in which its callers may have anything.
constexpr StructVersion kParamsVersions[] = {
    {240, 240}, {424, 420}, {sizeof(fmha_fwd_params), sizeof(fmha_fwd_params)}};
static_assert(offsetof(fmha_fwd_params, lse) + sizeof(fmha_lse) == 240 &&
              offsetof(fmha_fwd_params, reserved) == 420);

constexpr float kLog2E = 1.4426950408889634F;

// What P, from 0 to 1, is multiplied with before fp8 kernels round it: the largest number of the type, so
// that its smaller elements lose as little as may be.
constexpr float kFp8ScaleP = 240.0F;

// CK's tanh is 1 - 2 / (exp2(..) + 1), off by up to 10 * 2^-24 however small it is (worked out in
// pyfa_rocm/cli/rounding.py), and a score by softcap times that. At this cap it is as much as fp16's P is off by
// rounding toward zero, an ulp of 1/2 to 1. Models have caps of 20 to 50.
constexpr float kMaxSoftcap = 0x1p-11F / (10 * 0x1p-24F);

const AbiType& type_of(const char* name, fmha_dtype value) {
  for (const AbiType& type : kAbiTypes) {
    if (type.value == value) return type;
  }
  fail(FMHA_INVALID_ARGUMENT,
       "%s = %" PRId32 ": expected FMHA_FP16 (1), FMHA_BF16 (2), FMHA_FP32 (3) or FMHA_FP8_E4M3_FNUZ (4)",
       name, value);
}

void check_dim(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value < least) {
    fail(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected %" PRId64 " or more", name, value, least);
  }
  if (value > most) {
    fail(FMHA_UNSUPPORTED, "%s = %" PRId64 ": kernels take at most %" PRId64, name, value, most);
  }
}

void check_dims(const fmha_fwd_params& p) {
  check_dim("batch", p.batch, 0, INT32_MAX);
  check_dim("seqlen_q", p.seqlen_q, 0, kMaxSeqlen);
  check_dim("seqlen_k", p.seqlen_k, 0, kMaxSeqlen);
  check_dim("nhead_q", p.nhead_q, 0, INT32_MAX);
  check_dim("nhead_k", p.nhead_k, 1, INT32_MAX);
  check_dim("hdim_q", p.hdim_q, 1, INT32_MAX);
  check_dim("hdim_v", p.hdim_v, 1, INT32_MAX);
  if (static_cast<uint32_t>(p.nhead_q) % static_cast<uint32_t>(p.nhead_k) != 0) {
    fail(FMHA_INVALID_ARGUMENT, "nhead_q = %" PRId64 ": expected a multiple of nhead_k = %" PRId64, p.nhead_q,
         p.nhead_k);
  }
}

// Which lengths are said by what, and that nothing is said twice or by half.
void check_varlen(const fmha_fwd_params& p) {
  if ((p.cu_seqlens_q == nullptr) != (p.cu_seqlens_k == nullptr)) {
    fail(FMHA_INVALID_ARGUMENT, "cu_seqlens_%c = NULL, but cu_seqlens_%c is set: expected both or neither",
         p.cu_seqlens_q == nullptr ? 'q' : 'k', p.cu_seqlens_q == nullptr ? 'k' : 'q');
  }
  if (p.cu_seqlens_q == nullptr) {
    if (p.seqused_q != nullptr || p.seqused_k != nullptr) {
      fail(FMHA_INVALID_ARGUMENT, "seqused_%c = %p: expected NULL without cu_seqlens_q and cu_seqlens_k",
           p.seqused_q != nullptr ? 'q' : 'k',
           static_cast<const void*>(p.seqused_q != nullptr ? p.seqused_q : p.seqused_k));
    }
    return;
  }
  // A total that was forgotten is zero. Without rows the upper bound says so.
  check_dim("total_q", p.total_q, p.batch > 0 && p.seqlen_q > 0 ? 1 : 0, INT32_MAX);
  check_dim("total_k", p.total_k, p.batch > 0 && p.seqlen_k > 0 ? 1 : 0, INT32_MAX);
}

void check_positive(const char* name, float value) {
  if (!std::isfinite(value) || value <= 0.0F) {
    fail(FMHA_INVALID_ARGUMENT, "%s = %g: expected a finite number above 0", name, double{value});
  }
}

float descale(const char* name, float value, bool fp8) {
  if (value == 0.0F || value == 1.0F) return 1.0F;
  if (!fp8) {
    fail(FMHA_INVALID_ARGUMENT, "%s = %g: expected 0 (none): FP8 inputs alone are scaled", name,
         double{value});
  }
  check_positive(name, value);
  return value;
}

// Scales as the kernels want them. They take the row maximum before they scale and hide keys with -inf
// scores, so a factor below zero, or one that is flushed to zero, would give infinities and NaNs.
void set_scales(const fmha_fwd_params& p, Problem& problem) {
  const bool fp8 = problem.dtype == DType::kFp8;
  const float qk = descale("q_descale", p.q_descale, fp8) * descale("k_descale", p.k_descale, fp8);
  const float v = descale("v_descale", p.v_descale, fp8);
  if (!std::isfinite(p.softmax_scale) || p.softmax_scale == 0.0F) {
    fail(FMHA_INVALID_ARGUMENT, "softmax_scale = %g: expected a finite number above 0",
         double{p.softmax_scale});
  }
  FwdKernelParams& a = problem.args;
  a.scale_log2e = p.softmax_scale * qk * kLog2E;
  if (!(a.scale_log2e >= FLT_MIN) || std::isinf(a.scale_log2e)) {
    fail(FMHA_UNSUPPORTED,
         "softmax_scale = %g%s: kernels take scales from 1e-38 to 2e38 (negate q for a sign)",
         double{p.softmax_scale}, qk == 1.0F ? "" : ", times q_descale and k_descale");
  }
  if (!fp8) return;
  a.scale_p = kFp8ScaleP;
  a.scale_o = v / kFp8ScaleP;
  if (a.scale_o < FLT_MIN) {
    fail(FMHA_UNSUPPORTED, "v_descale = %g: kernels take 3e-36 or more", double{p.v_descale});
  }
}

// tanh is taken of the score divided by softcap, and the quotient of the two scales is a factor of its own.
void set_softcap(const fmha_fwd_params& p, Problem& problem) {
  if (p.softcap == 0.0F) return;
  check_positive("softcap", p.softcap);
  if (p.softcap < FLT_MIN || p.softcap > kMaxSoftcap) {
    fail(FMHA_UNSUPPORTED,
         "softcap = %g: kernels take 1e-38 to %g, beyond which the error of their tanh shows; "
         "expected that, or 0 for none",
         double{p.softcap}, double{kMaxSoftcap});
  }
  const float quotient = problem.args.scale_log2e / p.softcap;
  if (quotient < FLT_MIN || std::isinf(quotient)) {
    fail(FMHA_UNSUPPORTED, "softcap = %g: kernels take softmax_scale / softcap from 1e-38 to 2e38",
         double{p.softcap});
  }
  problem.softcap = true;
  problem.args.softcap = p.softcap;
}

void set_bias(const fmha_fwd_params& p, Problem& problem) {
  const bool elementwise = p.bias.data != nullptr;
  const bool alibi = p.alibi_slopes != nullptr;
  if (elementwise && alibi) {
    fail(FMHA_UNSUPPORTED,
         "bias and alibi_slopes are both set: no kernel adds two biases; expected one of them "
         "(an ALiBi can be "
         "written into an elementwise bias)");
  }
  if (problem.softcap && (elementwise || alibi)) {
    fail(FMHA_UNSUPPORTED, "softcap = %g and %s: no kernel does both; expected one of them",
         double{p.softcap}, elementwise ? "bias" : "alibi_slopes");
  }
  problem.bias = elementwise ? Bias::kElementwise : alibi ? Bias::kAlibi : Bias::kNone;
}

// As CK's MakeKargs computes them, in its precision: a backward pass and the tests' model do the same.
void set_dropout(const fmha_fwd_params& p, Problem& problem) {
  if (!(p.p_drop >= 0.0F && p.p_drop < 1.0F)) {
    fail(FMHA_INVALID_ARGUMENT, "p_drop = %g: expected a chance from 0 to below 1", double{p.p_drop});
  }
  if (p.p_drop == 0.0F) {
    if (p.randval.data != nullptr) {
      fail(FMHA_INVALID_ARGUMENT, "randval.data = %p: expected NULL where p_drop = 0, without random numbers",
           static_cast<void*>(p.randval.data));
    }
    return;
  }
  if (p.batch * p.nhead_q > kMaxDropoutHeads) {
    fail(FMHA_UNSUPPORTED, "batch * nhead_q = %" PRId64 ": kernels with dropout take at most %" PRId64,
         p.batch * p.nhead_q, kMaxDropoutHeads);
  }
  problem.dropout = true;
  FwdKernelParams& a = problem.args;
  const auto p_keep = static_cast<float>(1.0 - double{p.p_drop});
  a.keep_at_most = static_cast<int32_t>(std::floor(p_keep * 255.0F));
  a.rp_keep = static_cast<float>(1.0 / double{p_keep});
  a.philox_seed = p.philox_seed;
  a.philox_offset = p.philox_offset;
}

int32_t window_side(const char* name, int64_t value, int64_t seqlen_k) {
  if (value < 0) {
    fail(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected 0 or more (seqlen_k or more for no limit)", name,
         value);
  }
  return value >= seqlen_k ? kUnlimited : static_cast<int32_t>(value);
}

void read_mask(const fmha_fwd_params& p, FwdKernelParams& a) {
  a.mask_type = kMaskBottomRight;
  a.window_left = kUnlimited;
  a.window_right = kUnlimited;
  switch (p.mask) {
    case FMHA_MASK_NONE:
      return;
    case FMHA_MASK_CAUSAL_TOP_LEFT:
      a.mask_type = kMaskTopLeft;
      [[fallthrough]];
    case FMHA_MASK_CAUSAL:
      a.window_right = 0;
      return;
    case FMHA_MASK_WINDOW_TOP_LEFT:
      a.mask_type = kMaskTopLeft;
      [[fallthrough]];
    case FMHA_MASK_WINDOW:
      a.window_left = window_side("window_left", p.window_left, p.seqlen_k);
      a.window_right = window_side("window_right", p.window_right, p.seqlen_k);
      return;
    default:
      fail(FMHA_INVALID_ARGUMENT, "mask = %" PRId32 ": expected one of FMHA_MASK_* (0 to 4)", p.mask);
  }
}

// Sides that hide no key become unlimited. Of packed sequences only the device knows the lengths.
void drop_idle_sides(const fmha_fwd_params& p, FwdKernelParams& a) {
  const bool top_left = a.mask_type == kMaskTopLeft;
  // The first row is the one that a right side cuts most: its column is 0 (top-left) or seqlen_k - seqlen_q.
  if (a.window_right >= (top_left ? p.seqlen_k : p.seqlen_q) - 1) a.window_right = kUnlimited;
  // The last row is the one that a left side cuts most: its column is seqlen_q - 1 or the last key.
  if (a.window_left >= (top_left ? p.seqlen_q : p.seqlen_k) - 1) a.window_left = kUnlimited;
}

// A mask with both sides unlimited needs no masked kernel, unless ALiBi counts from its diagonal: an unmasked
// kernel counts from bottom-right.
void set_mask(const fmha_fwd_params& p, Problem& problem) {
  FwdKernelParams& a = problem.args;
  read_mask(p, a);
  if (!problem.group) drop_idle_sides(p, a);
  const bool alibi = problem.bias == Bias::kAlibi;
  const bool hides = a.window_left != kUnlimited || a.window_right != kUnlimited;
  const bool moved = alibi && a.mask_type == kMaskTopLeft && (problem.group || p.seqlen_q != p.seqlen_k);
  problem.masked = p.seqlen_k > 0 && (hides || moved);
  if (problem.masked) return;
  a.mask_type = alibi ? kMaskBottomRight : kMaskNone;
  a.window_left = kUnlimited;
  a.window_right = kUnlimited;
}

void set_sizes(const fmha_fwd_params& p, Problem& problem) {
  problem.group = p.cu_seqlens_q != nullptr;
  problem.batch = static_cast<int32_t>(p.batch);
  problem.nhead_k = static_cast<int32_t>(p.nhead_k);
  problem.empty = p.batch == 0 || p.seqlen_q == 0 || p.nhead_q == 0;
  if (p.kernel < 0) {
    fail(FMHA_INVALID_ARGUMENT, "kernel = %" PRId32 ": expected 0, or the number of a candidate", p.kernel);
  }
  problem.kernel = p.kernel;
  FwdKernelParams& a = problem.args;
  a.seqlen_q = static_cast<int32_t>(p.seqlen_q);
  a.seqlen_k = static_cast<int32_t>(p.seqlen_k);
  a.hdim_q = static_cast<int32_t>(p.hdim_q);
  a.hdim_v = static_cast<int32_t>(p.hdim_v);
  a.nhead_q = static_cast<int32_t>(p.nhead_q);
  // A head more or less costs nobody a 64-bit division.
  a.nhead_ratio_qk = a.nhead_q / problem.nhead_k;
}

void fill_problem(const fmha_fwd_params& p, Pointers pointers, Problem& problem, Extents& extents) {
  check_reserved("reserved", p.reserved);
  const AbiType& type = type_of("dtype", p.dtype);
  const AbiType& o_type = p.o_dtype == 0 ? type : type_of("o_dtype", p.o_dtype);
  problem.dtype = type.dtype;
  problem.o_dtype = o_type.dtype;
  check_dims(p);
  check_varlen(p);
  set_sizes(p, problem);
  set_scales(p, problem);
  set_softcap(p, problem);
  set_bias(p, problem);
  set_dropout(p, problem);
  set_mask(p, problem);
  set_tensors(p, type, o_type, pointers, problem, extents);
}

}  // namespace

void make_problem(const fmha_fwd_params* params, Pointers pointers, Problem& problem, Extents& extents) {
  const uint32_t bytes = check_struct_size("params", params, kParamsVersions);
  problem = {};
  if (bytes == sizeof *params) {
    fill_problem(*params, pointers, problem, extents);
    return;
  }
  fmha_fwd_params copy{};
  std::memcpy(&copy, params, bytes);
  fill_problem(copy, pointers, problem, extents);
}

}  // namespace fmha
