// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/fwd.h"

#include <algorithm>

#include "catalogue/estimates.h"
#include "divide.h"
#include "error.h"
#include "origins/by_name/fwd.h"
#include "select/fwd_keys.h"
#include "select/fwd_needs.h"
#include "select/fwd_split.h"
#include "select/merge.h"

namespace fmha {
namespace {

// The starts of an MI300X, unless the arch has its own.
FwdStarts starts_of(Arch arch) {
  const FwdStarts& own = arch_info(arch).fwd_starts;
  if (own.few64 != 0) return own;
  const auto& mi300x = kForwardEstimate;
  return {mi300x.start64, mi300x.start128, mi300x.start_of_many64, mi300x.start_of_many128};
}

int waves_of(const Kernel& k) { return std::max(k.block_size / arch_info(k.arch).wave_size, 1); }

// The cost of a key to one of the waves that share a tile of so many rows.
int64_t cost_of_tile(int rows, int waves) {
  return (rows + kForwardEstimate.rows_of_a_load) / waves + kForwardEstimate.rows_of_a_key;
}

int64_t round_cost_of(const Kernel& k) {
  const int pace = fwd_pace(k);
  return pace == 0 ? cost_of_tile(k.fwd.tile_m, waves_of(k)) : cost_of_tile(128, 4) * pace / 100;
}

// A unit runs workgroups with several waves for each SIMD one at a time.
FwdWorkCost work_cost(const Kernel& k) {
  return {round_cost_of(k) * waves_of(k) / arch_info(k.arch).simds_per_cu, kSharedKeysEstimate.start_of_part};
}

FwdSplit split_of(const Kernel& k, const FwdProblem& p, const Target& target) {
  if (!fwd_can_divide_keys(k) || !can_merge(p.o_dtype, target)) return {{0, 1}, 100};
  return fwd_split(k, p, target, work_cost(k));
}

// The forward family, as choose.h asks for it.
class FwdFamily {
 public:
  static constexpr Family kFamily = Family::kFwd;
  static constexpr Reasons kReasons = {
      .second = "least time by the estimate for this device and these lengths",
      .third = "least time by the estimate, and of those as fast it checks least at run time",
      .tie = "least time by the estimate, and the first in the catalogue of those as fast"};

  // A kernel may do more than the problem asks for, but not of what is in the key.
  using Key = fmha::Key<Family, Arch, DType, bool, Bias, bool, bool>;

  static size_t key_of(const Kernel& k) {
    return Key::of(k.family, k.arch, k.dtype, k.fwd.group, k.fwd.bias, k.fwd.softcap, k.fwd.dropout);
  }

  static bool is_usable(const Kernel& k) {
    return Key::holds(k.family, k.arch, k.dtype, k.fwd.group, k.fwd.bias, k.fwd.softcap, k.fwd.dropout) &&
           fwd_is_usable(k);
  }

  struct Entry {
    const Kernel* kernel;
    int32_t hdim_q, hdim_v;
    // The smallest tile that holds both head dims is best: the rest of it is computed for nothing. V's count
    // in 64: Composable Kernel's tile of 96 has 128 of V, and time decides between that and our own of 96.
    int32_t first_cost;
    int32_t waves;       // of a workgroup
    int64_t round_cost;  // the cost of a key to a wave
    // What is checked in the loop for nothing: the mask costs most (d128: 653 VALU instructions a step with
    // it, 551 with padded keys, 359 with neither), head dims least.
    int32_t checks;
  };

  static Entry entry_of(const Kernel& k) {
    const FwdRow& row = k.fwd;
    return {.kernel = &k,
            .hdim_q = row.hdim_q,
            .hdim_v = row.hdim_v,
            .first_cost = row.hdim_q + (row.hdim_v + 63) / 64 * 64,
            .waves = waves_of(k),
            .round_cost = round_cost_of(k),
            .checks = (row.mask ? 4 : 0) + (row.pad ? 2 : 0) + (row.hdim_step != 0 ? 1 : 0)};
  }

  FwdFamily(const FwdProblem& problem, const FwdOffers& offers, const Target& target)
      : p_(problem),
        offers_(offers),
        target_(target),
        starts_(starts_of(target.arch)),
        waves_at_once_(int64_t{target.compute_units} * arch_info(target.arch).simds_per_cu) {}

  size_t key() const {
    return Key::of(kFamily, target_.arch, p_.dtype, p_.group, bias_of(p_), p_.softcap != 0.0F,
                   p_.dropout.is_on());
  }

  int64_t least_first_cost() const { return p_.hdim_q + p_.hdim_v; }

  // Head dims come first: they rule out most.
  [[gnu::always_inline]] bool fits(const Entry& e) const {
    return e.hdim_q >= p_.hdim_q && e.hdim_v >= p_.hdim_v && meets_unkeyed_needs(*e.kernel, p_, offers_) &&
           fits_device(e.kernel->fwd) && fits_grid(*e.kernel);
  }

  // After the tile comes the estimate of time, which is about the heights of tiles; then the checks. The
  // catalogue's order names the better of two pipelines first.
  Cost cost(const Entry& e) const { return {e.first_cost, time_of(e), e.checks, e.kernel}; }

  [[noreturn]] void raise_unsupported() const { raise_fwd_unsupported(p_, offers_, target_.arch); }

 private:
  bool fits_device(const FwdRow& row) const {
    const int units = target_.compute_units;
    return row.compute_units[0] == 0 || row.compute_units[0] == units || row.compute_units[1] == units;
  }

  bool fits_grid(const Kernel& k) const {
    return p_.nhead_q * k.block_size <= kMaxWorkItemsX && fits_tiles(k);
  }

  // A tile has a row at least: most problems need no division.
  bool fits_tiles(const Kernel& k) const {
    return (p_.seqlen_q <= kMaxGridYZ && p_.hdim_v <= k.fwd.tile_nv) || fwd_tiles(k, p_) <= kMaxGridYZ;
  }

  // Rounds of workgroups over the device, a wave on each SIMD at a time, times the cost of a key to a wave.
  // Tall tiles read K and V less often; short ones, and those of fewer waves, fill a device that a small
  // problem leaves idle, waste less on few queries, and see fewer keys through a window.
  int64_t time_of(const Entry& e) const {
    const int64_t workgroups = fwd_tiles(*e.kernel, p_) * p_.nhead_q * p_.batch;
    const FwdKeys keys = fwd_keys(p_, e.kernel->fwd.tile_m);
    if (e.waves > arch_info(target_.arch).simds_per_cu) return time_of_many(e, workgroups, keys);
    const int64_t waves = workgroups * e.waves;
    const int64_t rounds = ceil_div(waves, waves_at_once_);
    const int64_t start = e.hdim_q <= 64 ? starts_.few64 : starts_.few128;
    const int64_t alone = e.round_cost + kForwardEstimate.latency / e.kernel->fwd.tile_n;
    return std::max(alone * keys.most, e.round_cost * rounds * keys.mean) + rounds * start;
  }

  // Tiles that all take the same time make whole rounds, however few the last one has. Where a mask makes
  // some take less, a unit that is done with one begins the next.
  int64_t time_of_many(const Entry& e, int64_t workgroups, const FwdKeys& keys) const {
    const int64_t units = target_.compute_units;
    const FwdWorkCost cost = work_cost(*e.kernel);
    const bool same = keys.most == keys.mean;
    const int64_t rounds =
        same ? 100 * ceil_div(workgroups, units) : std::max<int64_t>(100 * workgroups / units, 100);
    const int64_t share = workgroups > units ? 100 : fwd_share_of_units(workgroups, units);
    const int64_t start = start_of_many(e);
    const int64_t time =
        cost.key * share / 100 * std::max(rounds * keys.mean / 100, keys.most) + rounds * start / 100;
    // The n-th candidate is the same kernel with a workspace and without.
    const bool divides = p_.may_use_workspace || p_.candidate != 0;
    return divides ? time * split_of(*e.kernel, p_, target_).percent / 100 : time;
  }

  int64_t start_of_many(const Entry& e) const {
    if (fwd_waves_share_keys(*e.kernel)) {
      return e.hdim_q <= 64 ? kTileSharesEstimate.start64 : kTileSharesEstimate.start128;
    }
    return e.hdim_q <= 64 ? starts_.many64 : starts_.many128;
  }

  const FwdProblem& p_;
  const FwdOffers& offers_;
  const Target& target_;
  const FwdStarts starts_;
  const int64_t waves_at_once_;
};

}  // namespace

void ask_fwd_origins(const FwdProblem& problem, FwdOffers& offers) {
  Refusal why;
  int possible = 0;
  // Goes from the last to the first, whose reason is the one that stays.
  for (size_t i = kOriginCount; i-- > 0;) {
    const auto origin = static_cast<Origin>(i);
    FwdOffers::Offer& offer = offers.offers[i];
    offer.possible = fwd_within_limits(origin, problem, why);
    offer.needs_mask = fwd_needs_mask(origin, problem);
    offer.whole_bias = problem.has_bias && fwd_bias_is_whole(origin, problem);
    offer.takes_sinks = fwd_takes_sinks(origin);
    possible += offer.possible ? 1 : 0;
  }
  if (possible == 0) why.raise();
}

Chosen choose_fwd(const FwdProblem& problem, const FwdOffers& offers, const Target& target, bool counted) {
  return choose(FwdFamily(problem, offers, target), problem.candidate, counted);
}

hip_fwd::Division divide_fwd(const Kernel& kernel, const FwdProblem& problem, const Target& target) {
  if (!problem.may_use_workspace) return {0, 1};
  return split_of(kernel, problem, target).division;
}

void plan_fwd(const Kernel& kernel, const FwdProblem& problem, const hip_fwd::Division& division,
              const Target& target, Plan& plan) {
  plan.empty = problem.empty;
  if (division.parts > 1) return plan_split_fwd(kernel, problem, division, target, plan);
  fwd_add_steps(kernel, problem, plan);
}

}  // namespace fmha
