// SPDX-License-Identifier: MIT OR Apache-2.0
// The limits, arguments and grid of the kernels that make 8-bit floats.
#include "origins/hip/quantize_pack.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <new>

#include "args/quantize.h"
#include "divide.h"

namespace fmha::hip_quantize {
namespace {

constexpr int64_t kVector = 8;         // elements that a lane loads and stores at a time
constexpr int64_t kMostHdim = 512;     // 64 lanes
constexpr int64_t kMostRotated = 256;  // 32 lanes, those of any wave
constexpr int64_t kKept = 8;           // rows of a lane that stay in registers
constexpr int64_t kMostWorkItems = 256;
constexpr int64_t kLineBytes = 64;   // of a scale's counters, and of the tickets'
constexpr int64_t kItemsOfUnit = 8;  // that a compute unit has in turn, at most: each adds to one counter

int64_t lanes_of_row(const QuantizeProblem& p) {
  return int64_t(std::bit_ceil(static_cast<uint64_t>(ceil_div(p.hdim, kVector))));
}

int64_t groups_of_heads(const QuantizeProblem& p) { return p.nhead / p.heads; }

// Tokens whose rows a workgroup keeps in registers.
int64_t kept_tokens(const QuantizeProblem& p, int64_t block_size) {
  return std::max<int64_t>(kKept * block_size / lanes_of_row(p) / p.heads, 1);
}

// A scale for each block of tokens, or for so few that a workgroup does them all as well.
bool is_own(const QuantizeProblem& p, int64_t kept) {
  if (p.unit == ScaleUnit::kBlock) return true;
  return p.unit == ScaleUnit::kHead ? p.seqlen <= kept : p.batch * p.nhead == 1 && p.seqlen <= kept;
}

int64_t tokens_of_chunk(const QuantizeProblem& p, int64_t kept) {
  return std::min(p.unit == ScaleUnit::kBlock ? p.block : kept, p.seqlen);
}

bool stride_fits(const View& v, Dimension i, Refusal& why) {
  if (v.size[i] <= 1 || is_multiple(v.stride[i], kVector)) return true;
  return why.because(FMHA_INVALID_ARGUMENT,
                     "%s.%s = %" PRId64 ": expected a multiple of %" PRId64 " elements", v.name,
                     kStrideNames[i], v.stride[i], kVector);
}

bool tensor_fits(const View& v, Refusal& why) {
  if (!v.touched) return true;
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    if (!stride_fits(v, i, why)) return false;
  }
  const auto align = static_cast<uint64_t>(kVector * v.element_bytes);
  if ((reinterpret_cast<uintptr_t>(v.data) & (align - 1)) == 0) return true;
  return why.because(FMHA_INVALID_ARGUMENT, "%s = %p: expected an address aligned to %" PRIu64 " bytes",
                     v.pointer, v.data, align);
}

bool hdim_fits(const QuantizeProblem& p, Refusal& why) {
  if (p.hdim > kMostHdim || !is_multiple(p.hdim, kVector)) {
    return why.because(FMHA_UNSUPPORTED,
                       "hdim = %" PRId64 ": quantise kernels take multiples of %" PRId64 " up to %" PRId64,
                       p.hdim, kVector, kMostHdim);
  }
  if (!p.hadamard || (p.hdim <= kMostRotated && std::has_single_bit(static_cast<uint64_t>(p.hdim))))
    return true;
  return why.because(FMHA_UNSUPPORTED,
                     "hdim = %" PRId64
                     " with hadamard: quantise kernels rotate 8, 16, 32, 64, 128 or %" PRId64 " elements",
                     p.hdim, kMostRotated);
}

bool count_fits(const char* name, int64_t value, int64_t most, Refusal& why) {
  if (value <= most) return true;
  return why.because(FMHA_UNSUPPORTED, "%s = %" PRId64 ": quantise kernels take at most %" PRId64, name,
                     value, most);
}

// A launch has two items for each chunk, and counts work-items in 32 bits.
bool chunks_fit(const QuantizeProblem& p, Refusal& why) {
  constexpr int64_t kMost = kMaxWorkItemsX / kMostWorkItems / 2;
  if (p.empty) return true;
  if (!count_fits("batch", p.batch, kMost, why) || !count_fits("nhead", p.nhead, UINT16_MAX, why) ||
      !count_fits("seqlen", p.seqlen, INT32_MAX / p.heads, why)) {
    return false;
  }
  const int64_t tokens = tokens_of_chunk(p, kept_tokens(p, kMostWorkItems));
  const int64_t chunks = p.batch * groups_of_heads(p), of_heads = ceil_div(p.seqlen, tokens);
  if (chunks <= kMost / of_heads) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "batch = %" PRId64 ", seqlen = %" PRId64 ", nhead = %" PRId64 ": %" PRId64
                     " times %" PRId64 " blocks of %" PRId64 " tokens, and one launch does at most %" PRId64
                     "; split the batch",
                     p.batch, p.seqlen, p.nhead, chunks, of_heads, tokens, kMost);
}

QuantizeStrides strides(const View& v) { return {v.step(kBatch), v.step(kHead), v.step(kSeqlen)}; }

}  // namespace

bool within_limits(const QuantizeProblem& p, Refusal& why) {
  return hdim_fits(p, why) && chunks_fit(p, why) && tensor_fits(p.x, why) && tensor_fits(p.out, why);
}

int64_t rows_at_once(const Kernel& kernel, const QuantizeProblem& p) {
  return kernel.block_size / lanes_of_row(p);
}

void add_steps(const Kernel& kernel, const QuantizeProblem& p, const Target& target, Plan& plan) {
  const int64_t kept = kept_tokens(p, kernel.block_size), tokens = tokens_of_chunk(p, kept);
  const int64_t of_heads = ceil_div(p.seqlen, tokens), heads = p.batch * groups_of_heads(p);
  const bool writes = p.given || p.unit == ScaleUnit::kNone, own = !writes && is_own(p, kept);
  const int64_t scales = p.unit == ScaleUnit::kTensor ? 1 : heads;
  const int64_t chunks = p.unit == ScaleUnit::kTensor ? heads * of_heads : of_heads;
  // As many items as keep a device busy, of all scales together.
  const int64_t wanted = std::max<int64_t>(kItemsOfUnit * std::max(target.compute_units, 1), scales);
  const int64_t per_item = std::max<int64_t>(chunks * scales / wanted, 1), items = ceil_div(chunks, per_item);
  const int64_t lag = std::min(ceil_div(kItemsOfUnit / 2 * std::max(target.compute_units, 1), items), scales);
  const int64_t blocks = writes || own ? heads * of_heads : 2 * items * scales;
  void* counters = nullptr;
  if (!writes && !own) {
    plan.workspace_bytes = (1 + scales) * kLineBytes;
    counters = p.workspace.data;
    plan.add_memset(counters, 0, static_cast<size_t>(plan.workspace_bytes));
  }
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  const auto count = [](int64_t value) { return static_cast<uint32_t>(value); };
  new (plan.add_launch<QuantizeParams>(kernel, {count(blocks), 1, 1})) QuantizeParams{
      .x = p.x.address(),
      .out = p.out.address(),
      .descale = p.descale.address<float>(),
      .counters = static_cast<uint32_t*>(counters),
      .x_strides = strides(p.x),
      .out_strides = strides(p.out),
      .descale_strides = {p.descale.step(kBatch), p.descale.step(kHead), p.descale.step(kSeqlen)},
      .seqlen = number(p.seqlen),
      .heads = number(p.heads),
      .groups_of_heads = number(groups_of_heads(p)),
      .tokens = number(tokens),
      .chunks_of_heads = number(of_heads),
      .chunks = count(chunks),
      .per_item = count(per_item),
      .items = count(items),
      .scales = count(scales),
      .lag = count(lag),
      .way = writes ? QuantizeWay::kWrite
             : own  ? QuantizeWay::kOwn
                    : QuantizeWay::kTickets,
      .hdim = number(p.hdim),
      .lanes_shift = std::countr_zero(static_cast<uint64_t>(lanes_of_row(p))),
      .hadamard = p.hadamard ? 1 : 0,
      .factor = p.hadamard ? 1 / std::sqrt(static_cast<float>(p.hdim)) : 1,
      .reserved = 0,
  };
}

}  // namespace fmha::hip_quantize
