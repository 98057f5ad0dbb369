// SPDX-License-Identifier: MIT OR Apache-2.0
// The limits, arguments and grid of the kernels that append to a cache.
#include "origins/hip/kv_append_pack.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <new>

#include "args/kv_append.h"
#include "divide.h"
#include "plan/grid.h"
#include "problem/cache.h"

namespace fmha::hip_kv_append {
namespace {

constexpr int64_t kVector = 8;  // elements that a lane loads and stores at a time
constexpr int64_t kMostLanes = 64;
constexpr int64_t kMostWorkItems = 256;  // of a workgroup

int64_t heads(const KvAppendProblem& p) {
  return (p.has_q ? p.nhead_q : 0) + (p.has_k ? p.nhead_k : 0) + (p.has_v ? p.nhead_k : 0);
}

// Enough for the longer row at once, in powers of two.
int64_t lanes_of_row(const KvAppendProblem& p) {
  const int64_t hdim = std::max(p.has_q || p.has_k ? p.hdim_q : 0, p.has_v ? p.hdim_v : 0);
  return std::min(kMostLanes, int64_t(std::bit_ceil(static_cast<uint64_t>(hdim / kVector))));
}

bool number_fits(const char* name, int64_t value, int64_t most, Refusal& why) {
  if (value <= most) return true;
  return why.because(FMHA_UNSUPPORTED, "%s = %" PRId64 ": append kernels take at most %" PRId64, name, value,
                     most);
}

bool hdim_fits(const char* name, int64_t hdim, Refusal& why) {
  if (!is_multiple(hdim, kVector)) {
    return why.because(FMHA_UNSUPPORTED, "%s = %" PRId64 ": append kernels take multiples of %" PRId64, name,
                       hdim, kVector);
  }
  return number_fits(name, hdim, INT32_MAX, why);
}

// A lane loads and stores eight elements.
bool tensor_fits(const View& v, const char* const (&strides)[3], Refusal& why) {
  if (!v.touched) return true;
  // Nearly always all are: of eight elements, a stride in bytes is a multiple of eight times theirs.
  const auto align = static_cast<uint64_t>(kVector * v.element_bytes);
  const uint64_t all =
      static_cast<uint64_t>(v.stride[0] | v.stride[1] | v.stride[2]) * static_cast<uint64_t>(v.element_bytes);
  if (((all | reinterpret_cast<uintptr_t>(v.data)) & (align - 1)) == 0) return true;
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    if (v.size[i] <= 1 || is_multiple(v.stride[i], kVector)) continue;
    return why.because(FMHA_INVALID_ARGUMENT,
                       "%s.%s = %" PRId64 ": expected a multiple of %" PRId64 " elements", v.name, strides[i],
                       v.stride[i], kVector);
  }
  if ((reinterpret_cast<uintptr_t>(v.data) & (align - 1)) == 0) return true;
  return why.because(FMHA_INVALID_ARGUMENT, "%s = %p: expected an address aligned to %" PRIu64 " bytes",
                     v.pointer, v.data, align);
}

bool tensors_fit(const KvAppendProblem& p, Refusal& why) {
  return tensor_fits(p.q, kStrideNames, why) && tensor_fits(p.q_out, kStrideNames, why) &&
         tensor_fits(p.k, kStrideNames, why) && tensor_fits(p.v, kStrideNames, why) &&
         tensor_fits(p.cache_k, kCacheStrideNames, why) && tensor_fits(p.cache_v, kCacheStrideNames, why);
}

bool rows_fit(const KvAppendProblem& p, Refusal& why) {
  if (!number_fits("nhead_q", p.nhead_q, UINT16_MAX, why) ||
      !number_fits("nhead_k", p.nhead_k, UINT16_MAX, why)) {
    return false;
  }
  // A workgroup does four rows at least.
  const int64_t rows =
      grid_is_turned(p.batch) ? kMaxGridYZ * (kMostWorkItems / kMostLanes) : kMaxWorkItemsX / kMostLanes;
  return number_fits("batch", p.batch, most_batches(kMostWorkItems), why) &&
         number_fits("seqlen", p.seqlen, rows / std::max<int64_t>(heads(p), 1), why);
}

AppendStrides strides(const View& v) { return {v.step(kBatch), v.step(kHead), v.step(kSeqlen)}; }

AppendCacheStrides cache_strides(const View& v) { return {v.step(kBatch), v.step(kHead), v.step(kSeqlen)}; }

AppendScaleStrides scale_strides(const CacheScale& s) { return {s.stride_page, s.stride_head}; }

KvAppendParams arguments(const KvAppendProblem& p) {
  return {
      .q = p.q.address(),
      .q_out = p.q_out.address(),
      .k = p.k.address(),
      .v = p.v.address(),
      .cache_k = p.cache_k.address(),
      .cache_v = p.cache_v.address(),
      .k_scale = p.k_scale.data,
      .v_scale = p.v_scale.data,
      .cos = p.has_q || p.has_k ? p.cos : nullptr,
      .sin = p.sin,
      .slots = p.slots.data,
      .positions = p.positions.data,
      .cu = p.cu_seqlens,
      .used_k = p.seqused_k,
      .table = p.table,
      .indptr = p.indptr,
      .batch_index = p.batch_index,
      .q_strides = strides(p.q),
      .q_out_strides = strides(p.q_out),
      .k_strides = strides(p.k),
      .v_strides = strides(p.v),
      .cache_k_strides = cache_strides(p.cache_k),
      .cache_v_strides = cache_strides(p.cache_v),
      .k_scale_strides = scale_strides(p.k_scale),
      .v_scale_strides = scale_strides(p.v_scale),
      .table_stride = p.table_stride,
      .columns = p.columns,
      .pages = p.pages,
      .page_size = p.page_size,
      .positions_count = p.rotary_positions,
      .rotary_stride = p.rotary_stride,
      .total = p.total,
      .seqlen = static_cast<int32_t>(p.seqlen),
      .nhead_q = static_cast<int32_t>(p.has_q ? p.nhead_q : 0),
      .nhead_k = static_cast<int32_t>(p.has_k ? p.nhead_k : 0),
      .nhead_v = static_cast<int32_t>(p.has_v ? p.nhead_k : 0),
      .hdim_q = static_cast<int32_t>(p.hdim_q),
      .hdim_v = static_cast<int32_t>(p.hdim_v),
      .rotary_dim = static_cast<int32_t>(p.rotary_dim),
      .interleaved = p.interleaved ? 1 : 0,
      .rotary_float = p.rotary_float ? 1 : 0,
      .wide_slots = p.slots.wide ? 1 : 0,
      .wide_positions = p.positions.wide ? 1 : 0,
      .scale_per_page = p.scale_per_page ? 1 : 0,
      .lanes_shift = std::countr_zero(static_cast<uint64_t>(lanes_of_row(p))),
      .k_vector = p.vectors.k,
      .v_vector = p.vectors.v,
      .turned = grid_is_turned(p.batch) ? 1 : 0,
  };
}

}  // namespace

bool within_limits(const KvAppendProblem& p, Refusal& why) {
  return hdim_fits("hdim_q", p.hdim_q, why) && hdim_fits("hdim_v", p.hdim_v, why) && rows_fit(p, why) &&
         tensors_fit(p, why);
}

int64_t rows_per_block(const Kernel& kernel, const KvAppendProblem& p) {
  return kernel.block_size / lanes_of_row(p);
}

void add_steps(const Kernel& kernel, const KvAppendProblem& p, Plan& plan) {
  const int64_t tokens = p.packed ? std::min(p.seqlen, p.total) : p.seqlen;
  const int64_t blocks = ceil_div(tokens * heads(p), rows_per_block(kernel, p));
  new (plan.add_launch<KvAppendParams>(kernel, grid_of_tiles(blocks, 1, p.batch)))
      KvAppendParams(arguments(p));
}

}  // namespace fmha::hip_kv_append
