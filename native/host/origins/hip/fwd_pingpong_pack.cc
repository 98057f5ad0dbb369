// SPDX-License-Identifier: MIT OR Apache-2.0
#include "origins/hip/fwd_pingpong_pack.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <new>
#include <numbers>

#include "args/fwd_pingpong.h"
#include "divide.h"
#include "origins/limits.h"

namespace fmha::hip_fwd {
namespace {

constexpr uint64_t kAlignBytes = 16;
constexpr int64_t kMostWorkItems = 512;  // of a workgroup
constexpr int64_t kXcds = 8;
constexpr int64_t kCachedBytes = int64_t{128} << 20;  // half an MI300X's Infinity Cache
constexpr int64_t kMostTileBytes = int64_t{1} << 31;  // of the rows of a tile, gaps included
constexpr int64_t kUnlimited = int64_t{1} << 30;      // of a window's side

// The kernels multiply slopes of ALiBi by 1 / softmax_scale, which is a float32.
constexpr float kLeastScaleOfAlibi = 1e-30F;

bool features_fit(const FwdProblem& p) {
  if (p.has_bias || (p.has_alibi && p.softcap != 0.0F) || p.dropout.is_on() || p.randval.touched)
    return false;
  if (is_fp8(p.dtype)) return !p.has_alibi && p.softcap == 0.0F;
  return p.o_dtype == p.dtype && (p.dtype == DType::kFp16 || p.dtype == DType::kBf16);
}

// The factor on products of q and k; qk_descale is 1 unless they have 8 bits.
float scale(const FwdProblem& p) { return p.softmax_scale * p.qk_descale; }
float scale_log2e(const FwdProblem& p) { return scale(p) * std::numbers::log2e_v<float>; }

// As CK's kernels: a factor below zero, or flushed to zero, would give infinities and NaNs.
bool scale_fits(const FwdProblem& p) { return scale(p) >= FLT_MIN && !std::isinf(scale_log2e(p)); }

// The argument of tanh's exponential has a factor of 2 log2(e) softmax_scale / softcap, which is a float32.
bool cap_fits(const FwdProblem& p, Refusal& why) {
  if (p.softcap == 0.0F) return true;
  if (!origins::softcap_fits("", p, why)) return false;
  if (!std::isinf(2 * (scale_log2e(p) / p.softcap))) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "softcap = %g: kernels of \"pingpong\" take softmax_scale / softcap below 1e38",
                     double{p.softcap});
}

bool alibi_fits(const FwdProblem& p, Refusal& why) {
  if (!p.has_alibi || p.softmax_scale >= kLeastScaleOfAlibi) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "softmax_scale = %g with alibi_slopes: kernels of \"pingpong\" take 1e-30 or more",
                     double{p.softmax_scale});
}

// tanh(x) is x (c0 + c1 x^2 + c2 x^4) up to this |x|, to 2.9 * 2^-24: a fit of the least largest error.
constexpr double kNearlyLine = 0.3, kC0 = 0.99999601, kC1 = -0.3329748, kC2 = 0.12522591;

PingpongCap cap_of(const FwdProblem& p) {
  if (p.softcap == 0.0F) return {};
  const double scale = scale_log2e(p), x = double{p.softmax_scale} / p.softcap;
  const double c1 = kC1 * scale * x * x, c2 = kC2 * scale * x * x * x * x;
  const bool has_line = c2 >= FLT_MIN && c2 <= 1e30;
  const auto number = [has_line](double value) { return has_line ? static_cast<float>(value) : 0.0F; };
  return {
      .nearly_line = has_line ? static_cast<float>(kNearlyLine / x) : -1.0F,
      .c0 = number(kC0 * scale),
      .c1 = number(c1),
      .c2 = number(c2),
      .inner = static_cast<float>(2 * std::numbers::log2e * x),
      .outer = p.softcap * std::numbers::log2e_v<float>,
  };
}

// Heads of all batches, and how many parts of them there are: those of the XCDs, or one of each head if y and
// z have no room for so many.
int64_t heads(const FwdProblem& p) { return p.nhead_q * p.batch; }
int64_t parts(const FwdProblem& p) { return heads(p) <= kMaxGridYZ ? xcd_parts(heads(p)) : heads(p); }

bool lengths_fit(const FwdProblem& p) {
  if (std::max({p.seqlen_q, p.seqlen_k, p.total_q, p.total_k, p.nhead_q, p.batch}) > kMostRows) return false;
  return heads(p) <= kMaxWorkItemsX / kMostWorkItems && ceil_div(p.seqlen_q, kTileRows) <= kMaxGridYZ;
}

bool tensor_fits(const View& v) {
  if (!v.touched) return true;
  if ((reinterpret_cast<uintptr_t>(v.data) & (kAlignBytes - 1)) != 0) return false;
  const int64_t most_stride = kMostTileBytes / (v.element_bytes * kTileRows);
  if (v.size[kSeqlen] > 1 && v.stride[kSeqlen] >= most_stride) return false;
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    const auto bytes = static_cast<uint64_t>(v.stride[i]) * static_cast<uint64_t>(v.element_bytes);
    if (v.size[i] > 1 && bytes % kAlignBytes != 0) return false;
  }
  return true;
}

// The caller's stride of a dimension of size one means nothing.
int64_t step(const View& v, Dimension i) { return v.size[i] > 1 ? v.stride[i] * v.element_bytes : 0; }

PingpongStrides strides_of(const View& v) {
  if (!v.touched) return {0, 0, 0};
  const int64_t row = v.size[kSeqlen] > 1 ? v.stride[kSeqlen] : v.row;
  return {step(v, kBatch), step(v, kHead), static_cast<uint32_t>(row * v.element_bytes)};
}

int32_t side(int64_t keys) { return static_cast<int32_t>(std::min(keys, kUnlimited)); }

// With a causal mask a head's tiles take different times. The longest of all heads begin first, so that no
// unit waits for one at the end. K and V of so many heads at once come from the Infinity Cache, if they fit.
bool wants_heads_first(const FwdProblem& p) {
  if (p.mask.right == Mask::kUnlimited || p.mask.left != Mask::kUnlimited) return false;
  const int64_t keys = p.cu_seqlens_k != nullptr ? p.total_k : p.seqlen_k * p.batch;
  return keys <= kCachedBytes / (2 * (p.hdim_q + p.hdim_v) * std::max<int64_t>(p.nhead_k, 1));
}

// The grid for this many tiles of each head.
Grid grid_of(const FwdProblem& p, int64_t tiles, bool heads_first) {
  if (p.empty) return {0, 0, 0};
  const auto heads_of_part = static_cast<uint32_t>(heads(p) / parts(p)), count = static_cast<uint32_t>(tiles);
  const auto xcds = static_cast<uint32_t>(parts(p));
  return heads_first ? Grid{xcds, heads_of_part, count} : Grid{xcds, count, heads_of_part};
}

constexpr PingpongParts kNotShared = {
    .o = nullptr, .lse = nullptr, .heads = 0, .rows = 0, .count = 1, .first_tile = 0};

}  // namespace

int64_t xcd_parts(int64_t heads) { return is_multiple(heads, kXcds) ? kXcds : 1; }

PingpongParams fwd_params(const FwdProblem& p) {
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  return {
      .q = p.q.address(),
      .k = p.k.address(),
      .v = p.v.address(),
      .o = p.o.address(),
      .lse = p.lse.address<float>(),
      .cu_q = p.cu_seqlens_q,
      .cu_k = p.cu_seqlens_k,
      .used_q = p.seqused_q,
      .used_k = p.seqused_k,
      .q_strides = strides_of(p.q),
      .k_strides = strides_of(p.k),
      .v_strides = strides_of(p.v),
      .o_strides = strides_of(p.o),
      .lse_batch = p.lse.step(kBatch),
      .lse_nhead = p.lse.step(kHead),
      .seqlen_q = number(p.seqlen_q),
      .seqlen_k = number(p.seqlen_k),
      .total_q = number(p.total_q),
      .total_k = number(p.total_k),
      .hdim_q = number(p.hdim_q),
      .hdim_v = number(p.hdim_v),
      .nhead_q = number(p.nhead_q),
      .nhead_ratio = p.nhead_k == 0 ? 1 : number(p.nhead_q / p.nhead_k),
      .window_left = side(p.mask.left),
      .window_right = side(p.mask.right),
      .heads_first = 0,
      .top_left = p.mask.top_left ? 1 : 0,
      .scale = scale_log2e(p),
      .parts = kNotShared,
      .sinks = p.sinks,
  };
}

namespace {

void add_launch(const Kernel& kernel, const FwdProblem& p, int64_t tiles, const PingpongParts& divided,
                Plan& plan) {
  const bool heads_first = wants_heads_first(p);
  const Grid grid = grid_of(p, tiles, heads_first);
  PingpongParams plain = fwd_params(p);
  plain.heads_first = heads_first ? 1 : 0;
  plain.parts = divided;
  if (is_fp8(p.dtype)) {
    new (plan.add_launch<PingpongFp8Params>(kernel, grid))
        PingpongFp8Params{.plain = plain, .v_descale = p.v_descale};
    return;
  }
  if (kernel.fwd.bias == Bias::kNone && !kernel.fwd.softcap) {
    new (plan.add_launch<PingpongParams>(kernel, grid)) PingpongParams(plain);
    return;
  }
  new (plan.add_launch<PingpongScoreParams>(kernel, grid)) PingpongScoreParams{
      .plain = plain,
      .alibi = p.alibi_slopes,
      .alibi_batch = p.alibi_stride_batch,
      .per_scale = 1 / p.softmax_scale,
      .cap = cap_of(p),
  };
}

}  // namespace

bool fwd_within_limits(const FwdProblem& p, Refusal& why) {
  if (!features_fit(p)) return false;
  if (!cap_fits(p, why) || !alibi_fits(p, why) || !origins::v_descale_fits(p, why)) return false;
  const bool tensors_fit = tensor_fits(p.q) && tensor_fits(p.k) && tensor_fits(p.v) && tensor_fits(p.o);
  if (scale_fits(p) && lengths_fit(p) && tensors_fit) return true;
  return why.because(
      FMHA_UNSUPPORTED,
      "this build's nearest kernels (\"pingpong\") take data and strides aligned to 16 bytes, 256 "
      "rows of less than 2 GiB, lengths up to 2^28, and a softmax_scale of 1.2e-38 or more");
}

void fwd_add_steps(const Kernel& kernel, const FwdProblem& p, Plan& plan) {
  add_launch(kernel, p, ceil_div(p.seqlen_q, int64_t{kernel.fwd.tile_m}), kNotShared, plan);
}

void add_divided_steps(const Kernel& kernel, const FwdProblem& p, const Division& division, float* o,
                       float* lse, Plan& plan) {
  const int64_t whole = division.whole_tiles, divided = ceil_div(p.seqlen_q, kTileRows) - whole;
  if (whole > 0) add_launch(kernel, p, whole, kNotShared, plan);
  const PingpongParts shared = {
      .o = o,
      .lse = lse,
      .heads = heads(p),
      .rows = static_cast<int32_t>(p.seqlen_q - whole * kTileRows),
      .count = division.parts,
      .first_tile = division.whole_tiles,
  };
  add_launch(kernel, p, divided * division.parts, shared, plan);
}

}  // namespace fmha::hip_fwd
