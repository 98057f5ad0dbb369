// SPDX-License-Identifier: MIT OR Apache-2.0
// The limits, arguments and grid of the kernels that merge partial outputs.
#include "origins/hip/merge_pack.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <new>
#include <numbers>

#include "args/merge.h"
#include "divide.h"

namespace fmha::hip_merge {
namespace {

constexpr int64_t kVector = 8;       // elements that a lane does at a time
constexpr int64_t kAlignBytes = 16;  // of its loads and stores
constexpr int64_t kMostLanes = 64;   // of any wave

// Enough for the elements of a row at once, in powers of two.
int64_t lanes_of_group(const MergeProblem& p, int64_t lanes) {
  return std::min(lanes, int64_t(std::bit_ceil(static_cast<uint64_t>(p.hdim / kVector))));
}

// As many as a wave's lanes serve with kAtOnce parts each to load: the loads of a group go out together,
// and what the groups add up in the end costs more than fewer are worth.
int64_t groups_of_row(const MergeProblem& p, int64_t lanes) {
  constexpr int64_t kAtOnce = 8;
  const auto wanted = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(p.parts / kAtOnce)));
  return std::clamp(wanted, int64_t{1}, lanes / lanes_of_group(p, lanes));
}

// A row is a wave's at most: its lanes ask each other.
int64_t lanes_of_row(const Kernel& kernel, const MergeProblem& p) {
  const int64_t lanes = arch_info(kernel.arch).wave_size;
  return lanes_of_group(p, lanes) * groups_of_row(p, lanes);
}

// Factors that are each below 2^63.
bool rows_fit(const MergeProblem& p, Refusal& why) {
  const int64_t most = kMaxWorkItemsX / kMostLanes;
  int64_t rows = 0;
  const bool wraps =
      __builtin_mul_overflow(p.batch, p.seqlen, &rows) || __builtin_mul_overflow(rows, p.nhead, &rows);
  if (!wraps && rows <= most) return true;
  return why.because(FMHA_UNSUPPORTED,
                     "batch = %" PRId64 ", seqlen = %" PRId64 ", nhead = %" PRId64
                     ": one call merges at most %" PRId64 " rows",
                     p.batch, p.seqlen, p.nhead, most);
}

bool stride_fits(const char* name, const char* which, int64_t stride, int64_t element_bytes, Refusal& why) {
  if (is_multiple(stride, kAlignBytes / element_bytes)) return true;
  return why.because(FMHA_INVALID_ARGUMENT,
                     "%s.%s = %" PRId64 ": expected a multiple of %" PRId64 " elements (16-byte loads)", name,
                     which, stride, kAlignBytes / element_bytes);
}

bool tensor_fits(const View& v, Refusal& why) {
  if (!v.touched) return true;
  for (const Dimension i : {kBatch, kSeqlen, kHead}) {
    if (v.size[i] > 1 && !stride_fits(v.name, kStrideNames[i], v.stride[i], v.element_bytes, why)) {
      return false;
    }
  }
  if ((reinterpret_cast<uintptr_t>(v.data) & (kAlignBytes - 1)) == 0) return true;
  return why.because(FMHA_INVALID_ARGUMENT, "%s = %p: expected an address aligned to %" PRId64 " bytes",
                     v.pointer, v.data, kAlignBytes);
}

MergeStrides strides(const View& v) { return {v.step(kBatch), v.step(kHead), v.step(kSeqlen)}; }

MergeStrides lse_strides(const View& v) {
  MergeStrides s = strides(v);
  s.row = 1;
  return s;
}

}  // namespace

bool within_limits(const MergeProblem& p, Refusal& why) {
  if (p.hdim > INT32_MAX || !is_multiple(p.hdim, kVector)) {
    return why.because(FMHA_UNSUPPORTED,
                       "hdim = %" PRId64 ": merge kernels take multiples of %" PRId64 " below 2^31", p.hdim,
                       kVector);
  }
  if (p.parts > INT32_MAX) {
    return why.because(FMHA_UNSUPPORTED, "parts = %" PRId64 ": merge kernels take at most %" PRId32, p.parts,
                       INT32_MAX);
  }
  return rows_fit(p, why) && stride_fits("o_parts", "stride_part", p.part, p.parts_o.element_bytes, why) &&
         tensor_fits(p.parts_o, why) && tensor_fits(p.o, why);
}

int64_t rows_per_block(const Kernel& kernel, const MergeProblem& p) {
  return kernel.block_size / lanes_of_row(kernel, p);
}

void add_steps(const Kernel& kernel, const MergeProblem& p, Plan& plan) {
  const int64_t rows = p.batch * p.seqlen * p.nhead;
  const int64_t blocks = ceil_div(rows, rows_per_block(kernel, p));
  new (plan.add_launch<MergeParams>(kernel, {static_cast<uint32_t>(blocks), 1, 1})) MergeParams{
      .parts = p.parts_o.address(),
      .parts_lse = p.parts_lse.address<float>(),
      .o = p.o.address(),
      .lse = p.lse.address<float>(),
      .parts_strides = strides(p.parts_o),
      .parts_lse_strides = lse_strides(p.parts_lse),
      .o_strides = strides(p.o),
      .lse_strides = lse_strides(p.lse),
      .part = p.part,
      .part_lse = p.part_lse,
      .rows = static_cast<uint32_t>(rows),
      .seqlen = static_cast<uint32_t>(p.seqlen),
      .nhead = static_cast<uint32_t>(p.nhead),
      .parts_count = static_cast<int32_t>(p.parts),
      .hdim = static_cast<int32_t>(p.hdim),
      .lanes_shift = std::countr_zero(static_cast<uint64_t>(lanes_of_row(kernel, p))),
      .to_base2 = p.base2 ? 1.0F : std::numbers::log2e_v<float>,
      .from_base2 = p.base2 ? 1.0F : std::numbers::ln2_v<float>,
      .accumulate = p.accumulate ? 1 : 0,
      .groups_shift =
          std::countr_zero(static_cast<uint64_t>(groups_of_row(p, arch_info(kernel.arch).wave_size))),
  };
}

}  // namespace fmha::hip_merge
