// SPDX-License-Identifier: MIT OR Apache-2.0
#include "origins/aiter/fwd.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <new>
#include <numbers>

#include "args/aiter_fwd.h"
#include "divide.h"

namespace fmha::aiter {
namespace {

constexpr int64_t kHdim = 128;
constexpr uint64_t kAlignBytes = 16;
// Where a head begins is a sum of 32 bits, and so are the offsets of its rows, of whole tiles.
constexpr int64_t kMostBeginBytes = int64_t{1} << 32;
constexpr int64_t kMostHeadBytes = int64_t{1} << 31;
constexpr int64_t kTileRows = 256;
constexpr int64_t kMostRows = int64_t{1} << 28;

bool features_fit(const FwdProblem& p) {
  return is_plain(p) && p.dtype == DType::kBf16 && p.o_dtype == DType::kBf16 && p.hdim_q == kHdim &&
         p.hdim_v == kHdim;
}

// As CK's kernels: a factor below zero, or flushed to zero, would give infinities and NaNs.
bool scale_fits(const FwdProblem& p) {
  return p.softmax_scale >= FLT_MIN && !std::isinf(p.softmax_scale * std::numbers::log2e_v<float>);
}

// A causal kernel whose tile sees no key gives its rows a log-sum-exp of the number of keys, not -inf: every
// row has to see one. With packed sequences that is known if queries and keys have one array of
// lengths.
bool lengths_fit(const FwdProblem& p) {
  if (p.seqlen_k == 0 || p.nhead_q > kMaxGridYZ || p.batch > kMaxGridYZ) return false;
  if (std::max({p.seqlen_q, p.seqlen_k, p.total_q, p.total_k}) > kMostRows) return false;
  if (p.group) {
    return p.cu_seqlens_q == p.cu_seqlens_k && p.seqlen_q == p.seqlen_k && p.seqused_q == nullptr &&
           p.seqused_k == nullptr;
  }
  return !p.mask.hides() || p.seqlen_q <= p.seqlen_k;
}

bool mask_fits(const FwdProblem& p) {
  if (!p.mask.hides()) return true;
  const bool bottom_right = !p.mask.top_left || p.seqlen_q == p.seqlen_k;
  return p.mask.left == Mask::kUnlimited && p.mask.right == 0 && bottom_right;
}

// Bytes from one index to the next. The caller's stride of a dimension of size one means nothing: then a
// row's, so that what lies past the end is not far.
int64_t step(const View& v, Dimension i) { return (v.size[i] > 1 ? v.stride[i] : v.row) * v.element_bytes; }

// The lengths fit, so that nothing here overflows.
bool spans_fit(const View& v) {
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    if (step(v, i) >= kMostBeginBytes) return false;
  }
  const int64_t begin = (v.size[kBatch] - 1) * step(v, kBatch) + (v.size[kHead] - 1) * step(v, kHead);
  const int64_t rows = (v.size[kSeqlen] + kTileRows) & -kTileRows;
  return begin < kMostBeginBytes && rows * step(v, kSeqlen) < kMostHeadBytes;
}

bool tensor_fits(const View& v) {
  if ((reinterpret_cast<uintptr_t>(v.data) & (kAlignBytes - 1)) != 0 || !spans_fit(v)) return false;
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    const auto bytes = static_cast<uint64_t>(v.stride[i]) * static_cast<uint64_t>(v.element_bytes);
    if (v.size[i] > 1 && bytes % kAlignBytes != 0) return false;
  }
  return true;
}

// The kernels step over batches by as many heads as there are.
bool lse_fits(const FwdProblem& p) {
  if (!p.lse.touched) return true;
  if (!spans_fit(p.lse)) return false;
  const bool dense = p.group || p.batch <= 1 || p.lse.stride[kBatch] == p.nhead_q * p.lse.stride[kHead];
  return dense && (p.nhead_q > 1 || p.batch <= 1);
}

// A causal workgroup does two tiles, one from each end.
Grid grid_of(const Kernel& kernel, const FwdProblem& p) {
  if (p.empty) return {0, 0, 0};
  const int64_t tiles = ceil_div(p.seqlen_q, int64_t{kernel.fwd.tile_m});
  const auto blocks = static_cast<uint32_t>(kernel.fwd.causal ? ceil_div(tiles, int64_t{2}) : tiles);
  const auto heads = static_cast<uint32_t>(p.nhead_q), batch = static_cast<uint32_t>(p.batch);
  return p.group ? Grid{heads, batch, blocks} : Grid{blocks, heads, batch};
}

// AITER's: the number of heads a multiple of XCDs, and 16384 rows at most, or it goes by another order.
uint32_t order_of(const FwdProblem& p) {
  constexpr uint32_t kByXcd = 5, kPlain = 3;
  constexpr int64_t kXcds = 8, kMostByXcd = 16384;
  return p.mask.hides() && (p.nhead_q % kXcds != 0 || p.seqlen_q > kMostByXcd) ? kPlain : kByXcd;
}

}  // namespace

bool fwd_within_limits(const FwdProblem& p) {
  return features_fit(p) && scale_fits(p) && lengths_fit(p) && mask_fits(p) && tensor_fits(p.q) &&
         tensor_fits(p.k) && tensor_fits(p.v) && tensor_fits(p.o) && lse_fits(p);
}

void fwd_add_steps(const Kernel& kernel, const FwdProblem& p, Plan& plan) {
  const auto number = [](int64_t value) { return static_cast<uint32_t>(value); };
  new (plan.add_launch<AiterFwdParams>(kernel, grid_of(kernel, p))) AiterFwdParams{
      .o = {p.o.address()},
      .q = {p.q.address()},
      .k = {p.k.address()},
      .v = {p.v.address()},
      .lse = {p.lse.address()},
      .scale = {p.softmax_scale},
      .seqlen_q = {number(p.seqlen_q)},
      .q_row = {number(step(p.q, kSeqlen))},
      .q_tile = {number(step(p.q, kSeqlen)) * number(kernel.fwd.tile_m)},
      .q_head = {number(step(p.q, kHead))},
      .q_batch = {number(step(p.q, kBatch))},
      .nhead_ratio = {number(p.nhead_q / p.nhead_k)},
      .k_row = {number(step(p.k, kSeqlen))},
      .k_head = {number(step(p.k, kHead))},
      .k_batch = {number(step(p.k, kBatch))},
      .order = {order_of(p)},
      .stores_lse = {p.lse.touched ? 1U : 0U},
      .seqlen_k = {number(p.seqlen_k)},
      .hdim_q = {number(p.hdim_q)},
      .hdim_v = {number(p.hdim_v)},
      .nhead_q = {number(p.nhead_q)},
      .v_row = {number(step(p.v, kSeqlen))},
      .v_head = {number(step(p.v, kHead))},
      .v_batch = {number(step(p.v, kBatch))},
      .o_row = {number(step(p.o, kSeqlen))},
      .o_head = {number(step(p.o, kHead))},
      .o_batch = {number(step(p.o, kBatch))},
      .cu_q = {p.cu_seqlens_q},
      .cu_k = {p.cu_seqlens_k},
      .lse_head = {p.lse.touched ? number(step(p.lse, kHead)) : 0},
      .cu_q_rows = {p.cu_seqlens_q},
      .cu_k_rows = {p.cu_seqlens_k},
  };
}

}  // namespace fmha::aiter
