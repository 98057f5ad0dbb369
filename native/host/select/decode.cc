// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/decode.h"

#include <algorithm>
#include <cinttypes>
#include <cstdlib>

#include "catalogue/estimates.h"
#include "divide.h"
#include "error.h"
#include "origins/by_name/decode.h"
#include "plan/decode_workspace.h"
#include "select/fwd_needs.h"
#include "select/merge.h"
#include "select/unsupported.h"

namespace fmha {
namespace {

bool holds_dims(const DecodeRow& row, const FwdProblem& f) {
  return holds(row.hdim_q, row.hdim_step, f.hdim_q) && holds(row.hdim_v, row.hdim_step, f.hdim_v);
}

// True: the values are the first dims of the keys, as a latent cache has them.
bool values_are_in_keys(const DecodeProblem& p) {
  const View &k = p.cache.k, &v = p.cache.v;
  return p.fwd.hdim_v <= p.fwd.hdim_q && k.address() == v.address() && k.step(kBatch) == v.step(kBatch) &&
         k.step(kHead) == v.step(kHead) && k.step(kSeqlen) == v.step(kSeqlen);
}

int64_t tiles_of(const Kernel& kernel, const FwdProblem& f) {
  return ceil_div(f.seqlen_q * (f.nhead_q / f.nhead_k), int64_t{kernel.decode.tile_m});
}

// The cost of a key head's row tiles in instructions.
int64_t cost_of_rows(const Kernel& kernel, const FwdProblem& f) {
  const int64_t rows = kernel.decode.latent ? kDecodeEstimate.latent_rows : kernel.decode.tile_m;
  return tiles_of(kernel, f) * (rows + kDecodeEstimate.rows_of_a_load);
}

class DecodeFamily {
 public:
  static constexpr Family kFamily = Family::kDecode;
  static constexpr Reasons kReasons = {.second = "least work for so many rows"};
  using Key = fmha::Key<Arch, DType, DType, bool>;

  struct Entry {
    const Kernel* kernel;
    int32_t first_cost;  // the rest of a tile's head dims is computed for nothing
  };

  static size_t key_of(const Kernel& k) {
    return Key::of(k.arch, k.dtype, k.decode.cache_dtype, k.decode.vectors);
  }
  static bool is_usable(const Kernel& k) {
    return Key::holds(k.arch, k.dtype, k.decode.cache_dtype, k.decode.vectors) && decode_is_usable(k);
  }
  static Entry entry_of(const Kernel& k) { return {&k, k.decode.hdim_q + k.decode.hdim_v}; }

  DecodeFamily(const DecodeProblem& problem, Arch arch) : p_(problem), arch_(arch) {}

  size_t key() const { return Key::of(arch_, p_.fwd.dtype, p_.cache.dtype, p_.cache.vectors.any()); }
  int64_t least_first_cost() const { return p_.fwd.hdim_q + p_.fwd.hdim_v; }

  bool fits(const Entry& e) const {
    Refusal unsaid;
    const DecodeRow& row = e.kernel->decode;
    return holds_dims(row, p_.fwd) && (!row.latent || values_are_in_keys(p_)) &&
           decode_within_limits(e.kernel->origin, p_, unsaid);
  }

  Cost cost(const Entry& e) const { return {e.first_cost, cost_of_rows(*e.kernel, p_.fwd), 0, e.kernel}; }

  [[noreturn]] void raise_unsupported() const {
    const FwdProblem& f = p_.fwd;
    const auto is_of = [&](const Kernel& k) {
      return k.arch == arch_ && k.family == kFamily && k.dtype == f.dtype;
    };
    const auto reads = [&](const DecodeRow& row) {
      return row.cache_dtype == p_.cache.dtype && row.vectors == p_.cache.vectors.any();
    };
    const auto matches = [&](const Kernel& k) { return is_of(k) && reads(k.decode); };
    const Elsewhere elsewhere([&](const Kernel& k) { return matches(k) && holds_dims(k.decode, f); });
    const Kernel* nearest = nearest_kernel(matches, [&](const Kernel& k) {
      return std::llabs(k.decode.hdim_q - f.hdim_q) + std::llabs(k.decode.hdim_v - f.hdim_v);
    });
    if (nearest == nullptr && nearest_kernel(is_of, [](const Kernel&) { return 0; }) != nullptr) {
      raise(FMHA_UNSUPPORTED,
            "cache->dtype = %s, cache->k_vector = %" PRId32
            ": no %s kernel of this build for %s reads such a cache; expected cache->dtype = %s and k_vector "
            "0%s%s",
            dtype_name(p_.cache.dtype), p_.cache.vectors.k, dtype_name(f.dtype), arch_name(arch_),
            dtype_name(f.dtype), OtherFp8(p_.cache.dtype, arch_).text, elsewhere.text);
    }
    if (nearest == nullptr) {
      raise_for_type({kFamily, "kernel over a KV cache", "fwd->dtype"}, f.dtype, arch_, elsewhere);
    }
    if (Refusal why; !decode_within_limits(nearest->origin, p_, why)) why.raise();
    raise(FMHA_UNSUPPORTED,
          "fwd->hdim_q = %" PRId64 ", fwd->hdim_v = %" PRId64
          ": no %s kernel over a KV cache of this build for %s does that; the nearest, %s, takes fwd->hdim_q "
          "up "
          "to %d and fwd->hdim_v up to %d, multiples of %d%s",
          f.hdim_q, f.hdim_v, dtype_name(f.dtype), arch_name(arch_), nearest->name, nearest->decode.hdim_q,
          nearest->decode.hdim_v, nearest->decode.hdim_step, elsewhere.text);
  }

 private:
  const DecodeProblem& p_;
  const Arch arch_;
};

// Workgroups that a device has registers and LDS for at a time: those of its multiprocessors.
int64_t workgroups_at_once(const Kernel& kernel, const Target& target) {
  const ArchInfo& arch = arch_info(target.arch);
  const int registers = static_cast<int>(ceil_div(kernel.vgpr_count, arch.vgpr_granule)) * arch.vgpr_granule;
  const int waves = arch.vgprs_per_simd_lane / std::max(registers, 1) * arch.simds_per_cu;
  const int units = arch.cus_per_multiprocessor;
  const int by_registers = units * waves / (kernel.block_size / arch.wave_size);
  const int by_lds = units * arch.lds_bytes_per_cu / std::max(kernel.lds_bytes, 1);
  return int64_t{target.compute_units / units} * std::max(std::min(by_registers, by_lds), 1);
}

// Parts of the keys. Workgroups run in rounds of as many as the device has room for, and a round takes as
// long however few it has. No part has less than two blocks of keys a wave, since a part costs the reading
// and writing of its O. Lengths that only the device knows may be shorter than the bound that counts here.
int32_t splits_of(const Kernel& kernel, const DecodeProblem& p, const Target& target) {
  if (p.splits != 0) return p.splits;
  constexpr auto kCost = kDecodeSplitsEstimate;
  const FwdProblem& f = p.fwd;
  const int64_t workgroups = std::max<int64_t>(tiles_of(kernel, f) * f.nhead_k * f.batch, 1);
  const int64_t room = workgroups_at_once(kernel, target), steps = ceil_div(f.seqlen_k, kernel.decode.tile_n);
  const int64_t most = std::clamp<int64_t>(steps / 2, 1, DecodeProblem::kMostSplits);
  const auto cost = [&](int64_t splits) {
    return ceil_div(workgroups * splits, room) * (ceil_div(steps, splits) + kCost.start_of_part) +
           (splits > 1 ? kCost.merge : 0);
  };
  int64_t best = 1, least = cost(1);
  for (int64_t splits = 2; splits <= most; ++splits) {
    if (const int64_t found = cost(splits); found < least) {
      best = splits;
      least = found;
    }
  }
  return static_cast<int32_t>(best);
}

}  // namespace

Chosen choose_decode(const DecodeProblem& problem, const Target& target, bool counted) {
  return choose(DecodeFamily(problem, target.arch), problem.candidate, counted);
}

void plan_decode(const Kernel& kernel, const DecodeProblem& p, const Target& target, Plan& plan) {
  plan.empty = p.fwd.empty;
  if (plan.empty) return;
  const int32_t splits = splits_of(kernel, p, target);
  const DecodeWorkspace w = decode_workspace(p, splits);
  plan.workspace_bytes = w.bytes;
  decode_add_main(kernel, p, w, splits, plan);
  if (splits == 1) return;
  const MergeProblem merge = merge_of(p, w, splits);
  check_merge_limits(merge);
  plan_merge(*choose_merge(merge, target, false).kernel, merge, plan);
}

}  // namespace fmha
