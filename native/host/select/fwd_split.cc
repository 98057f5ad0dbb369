// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/fwd_split.h"

#include <algorithm>

#include "catalogue/estimates.h"
#include "divide.h"
#include "memory/workspace.h"
#include "select/fwd_keys.h"
#include "select/merge.h"

namespace fmha {
namespace {

constexpr int64_t kElement = sizeof(float);
constexpr int64_t kMostMergedRows = int64_t{1} << 25;
constexpr const auto& kEstimate = kSharedKeysEstimate;

// The problem as row tiles of heads; costs as time on a device.
class Tiles {
 public:
  Tiles(const Kernel& kernel, const FwdProblem& p, const Target& target, FwdWorkCost cost)
      : p_(p),
        cost_(cost),
        units_(target.compute_units),
        height_(kernel.fwd.tile_m),
        heads_(p.nhead_q * p.batch),
        count_(ceil_div(p.seqlen_q, height_)) {}

  // Lengths that only the device knows are not estimated, nor are rows skipped that it would not write.
  bool could_be_divided() const {
    return !p_.group && p_.seqused_q == nullptr && p_.seqlen_k >= 2 * kEstimate.least_keys_of_part &&
           !p_.empty && p_.o.touched && units_ > 0 && workgroups() <= kEstimate.most_rounds * units_;
  }

  FwdSplit best() const { return p_.mask.hides() ? best_of_masked() : best_of_plain(); }

 private:
  int64_t workgroups() const { return count_ * heads_; }
  static int64_t most_parts(int64_t keys) {
    return std::min(kEstimate.most_parts, keys / kEstimate.least_keys_of_part);
  }

  int64_t time(int64_t workgroups, int64_t keys) const {
    if (workgroups == 0) return 0;
    return cost_.key * fwd_share_of_units(workgroups, units_) / 100 * keys + cost_.start;
  }

  int64_t merge_time(int64_t whole_tiles, int64_t parts) const {
    const int64_t rows = p_.seqlen_q - whole_tiles * height_;
    return (whole_tiles > 0 ? 2 : 1) * kEstimate.launch +
           rows * heads_ * parts * p_.hdim_v * kElement / kEstimate.merge_bytes;
  }

  FwdSplit result(int64_t whole_tiles, int64_t parts, int64_t time, int64_t undivided) const {
    if (parts < 2 || time > undivided - undivided / kEstimate.least_gain || !fits(whole_tiles, parts))
      return kNone;
    return {{static_cast<int32_t>(whole_tiles), static_cast<int32_t>(parts)}, 100 * time / undivided};
  }

  bool fits(int64_t whole_tiles, int64_t parts) const {
    const int64_t rows = p_.seqlen_q - whole_tiles * height_;
    return (count_ - whole_tiles) * parts <= kMaxGridYZ && rows * heads_ <= kMostMergedRows;
  }

  // All tiles cost the same: whole rounds stay as they are, and the rest is divided so that its parts fill
  // `rounds` rounds of their own.
  FwdSplit best_of_plain() const {
    const int64_t rounds = workgroups() / units_, left = workgroups() - rounds * units_;
    if (left == 0) return kNone;
    const int64_t full = rounds * time(units_, p_.seqlen_k);
    const int64_t undivided = full + time(left, p_.seqlen_k);
    const int64_t whole = rounds * units_ / heads_, rest = (count_ - whole) * heads_;
    FwdSplit best = kNone;
    int64_t least = undivided;
    for (int64_t n = 1; n <= kEstimate.most_rounds_of_parts; ++n) {
      const int64_t parts = std::min(n * units_ / rest, most_parts(p_.seqlen_k));
      if (parts < 2) continue;
      const int64_t keys = ceil_div(p_.seqlen_k, parts);
      const int64_t rounds_of_parts = ceil_div(rest * parts, units_);
      const int64_t now = full + (rounds_of_parts - 1) * time(units_, keys) +
                          time(rest * parts - (rounds_of_parts - 1) * units_, keys) +
                          merge_time(whole, parts);
      if (now >= least) continue;
      least = now;
      best = result(whole, parts, now, undivided);
    }
    return best;
  }

  // Tiles cost what their rows see: all are divided, until none takes much longer than all take together.
  FwdSplit best_of_masked() const {
    int64_t sum = 0, longest = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t keys = fwd_keys_of_tile(p_, height_, i);
      sum += keys;
      longest = std::max(longest, keys);
    }
    const int64_t even = ceil_div(sum * heads_, units_);
    const int64_t undivided = time_of_masked(1, std::max(longest, even));
    FwdSplit best = kNone;
    int64_t least = undivided;
    for (int64_t parts = 2; parts <= most_parts(longest); parts += parts < 4 ? 1 : parts / 2) {
      // A unit that is late has one more piece than others.
      const int64_t piece = ceil_div(longest, parts);
      const int64_t now = time_of_masked(parts, std::max(even + piece / 2, piece)) + merge_time(0, parts);
      if (now >= least) continue;
      least = now;
      best = result(0, parts, now, undivided);
    }
    return best;
  }

  // Units that have so many keys to do.
  int64_t time_of_masked(int64_t parts, int64_t keys) const {
    const int64_t busy = std::min(workgroups() * parts, units_);
    return time(busy, keys) + (ceil_div(workgroups() * parts, units_) - 1) * cost_.start;
  }

  static constexpr FwdSplit kNone = {{0, 1}, 100};

  const FwdProblem& p_;
  FwdWorkCost cost_;
  const int64_t units_, height_, heads_, count_;
};

// O and LSE of the parts, as hip_fwd::Parts says, each aligned to 256 bytes.
struct Memory {
  int64_t heads, rows;  // rows of a head
  int64_t lse_part, o_part;
  int64_t o_bytes, bytes;
};

Memory memory_of(const FwdProblem& p, int64_t first_row, int64_t parts) {
  const int64_t heads = p.nhead_q * p.batch, rows = p.seqlen_q - first_row;
  const int64_t lse_part = workspace_product(heads, rows), o_part = workspace_product(lse_part, p.hdim_v);
  const int64_t o_bytes = workspace_aligned(workspace_product(workspace_product(o_part, parts), kElement));
  const int64_t lse_bytes =
      workspace_aligned(workspace_product(workspace_product(lse_part, parts), kElement));
  return {heads, rows, lse_part, o_part, o_bytes, std::min(o_bytes + lse_bytes, kMostWorkspaceBytes)};
}

void* moved(void* data, int64_t bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes));
}

// The rows from `first` on.
View rows_from(View v, int64_t first) {
  const int64_t step = v.size[kSeqlen] > 1 ? v.stride[kSeqlen] : 0;
  v.data = moved(v.data, first * step * v.element_bytes);
  v.size[kSeqlen] -= first;
  return v;
}

View workspace_view(void* data, const FwdProblem& p, int64_t rows, int64_t row) {
  const int64_t head = rows * row;
  return {.name = "workspace",
          .pointer = "workspace",
          .data = data,
          .element_bytes = kElement,
          .row = row,
          .size = {p.batch, rows, p.nhead_q},
          .stride = {p.nhead_q * head, row, head},
          .sequence = rows,
          .varlen = false,
          .touched = true};
}

MergeProblem merge_of(const FwdProblem& p, const Memory& m, int64_t first_row, int64_t parts) {
  MergeProblem merge;
  merge.dtype = DType::kFp32;
  merge.o_dtype = p.o_dtype;
  merge.parts = parts;
  merge.batch = p.batch;
  merge.seqlen = m.rows;
  merge.nhead = p.nhead_q;
  merge.hdim = p.hdim_v;
  merge.base2 = merge.accumulate = merge.empty = merge.checks_memory = false;
  merge.candidate = 0;
  merge.part = m.o_part;
  merge.part_lse = m.lse_part;
  merge.parts_o = workspace_view(p.workspace.data, p, m.rows, p.hdim_v);
  merge.parts_lse = workspace_view(moved(p.workspace.data, m.o_bytes), p, m.rows, 1);
  merge.o = rows_from(p.o, first_row);
  merge.lse = p.lse.touched ? rows_from(p.lse, first_row) : p.lse;
  return merge;
}

}  // namespace

int64_t fwd_share_of_units(int64_t workgroups, int64_t units) {
  return (kEstimate.few_units * units + (100 - kEstimate.few_units) * workgroups) / units;
}

FwdSplit fwd_split(const Kernel& kernel, const FwdProblem& problem, const Target& target, FwdWorkCost cost) {
  const Tiles tiles(kernel, problem, target, cost);
  return tiles.could_be_divided() ? tiles.best() : FwdSplit{{0, 1}, 100};
}

void plan_split_fwd(const Kernel& kernel, const FwdProblem& p, const hip_fwd::Division& division,
                    const Target& target, Plan& plan) {
  const int64_t first_row = int64_t{division.whole_tiles} * kernel.fwd.tile_m;
  const Memory memory = memory_of(p, first_row, division.parts);
  plan.workspace_bytes = memory.bytes;
  auto* const o = static_cast<float*>(p.workspace.data);
  auto* const lse = static_cast<float*>(moved(p.workspace.data, memory.o_bytes));
  hip_fwd::add_divided_steps(kernel, p, division, o, lse, plan);
  const MergeProblem merge = merge_of(p, memory, first_row, division.parts);
  check_merge_limits(merge);
  plan_merge(*choose_merge(merge, target, false).kernel, merge, plan);
}

}  // namespace fmha
