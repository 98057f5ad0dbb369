// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/bwd.h"

#include <cmath>

#include "catalogue/estimates.h"
#include "divide.h"
#include "error.h"
#include "origins/by_name/bwd.h"
#include "plan/bwd_workspace.h"
#include "select/bwd_needs.h"

namespace fmha {
namespace {

// Tells whether to add up dQ in blocks takes less time, by the software device's clock, than to compute its
// scores again. Its workgroups are half as many: they leave units without work at the end, and with a causal
// mask the longest begin first.
bool blocks_pay(const Kernel& k, const BwdProblem& p, int units) {
  constexpr auto kCost = kBwdBlocksEstimate;
  const FwdProblem& f = p.fwd;
  if (units == 0 || p.is_empty() || p.is_zero() || f.mask.left != Mask::kUnlimited) return false;
  const bool causal = f.mask.right != Mask::kUnlimited;
  const int64_t parts = bwd_key_parts(k, p, units), tiles = ceil_div(f.seqlen_k, int64_t{k.bwd.tile_n});
  const int64_t workgroups = tiles * f.nhead_k * f.batch * parts, share = causal ? 2 : 1;
  const int64_t walked = f.nhead_q / f.nhead_k / parts * f.seqlen_q / share, seen = f.seqlen_k / share;
  if (walked < kCost.least_rows || seen == 0) return false;
  const double rounds = static_cast<double>(workgroups) / units;
  const double own = causal ? rounds + kCost.causal_end / 100.0 : std::ceil(rounds);
  const double sums = 1 + kCost.keys_of_sums / static_cast<double>(seen);
  const double divided = parts == 1 ? 1 : 1 + kCost.rows_of_parts / static_cast<double>(walked);
  const double others = rounds + (causal ? kCost.others_causal_end : kCost.others_end) / 100.0;
  return own * sums * divided <= kCost.others_percent / 100.0 * others;
}

// The kernels of dQ, dK and dV, as choose.h asks for them.
class BwdFamily {
 public:
  static constexpr Family kFamily = Family::kBwd;
  static constexpr Reasons kReasons = {.first = "its tile, or its way of adding up, takes least time",
                                       .second =
                                           "its way of adding up takes less time, it writes the "
                                           "gradients itself, or is made for this mask"};
  using Key = fmha::Key<Arch, DType>;

  struct Entry {
    const Kernel* kernel;
    // The rest of a tile that holds both head dims is computed for nothing. To add up dQ in memory,
    // by tiles of 128 keys and fewer, takes a third longer than to compute its scores again.
    int32_t first_cost;
  };

  static size_t key_of(const Kernel& k) { return Key::of(k.arch, k.dtype); }

  static bool is_usable(const Kernel& k) { return Key::holds(k.arch, k.dtype) && bwd_is_usable(k); }

  static Entry entry_of(const Kernel& k) {
    return {&k, (k.bwd.whole || sums_in_blocks(k) ? 3 : 4) * (k.bwd.hdim_q + k.bwd.hdim_v)};
  }

  BwdFamily(const BwdProblem& problem, const BwdOffers& offers, const Target& target)
      : p_(problem), offers_(offers), target_(target) {}

  size_t key() const { return Key::of(target_.arch, p_.fwd.dtype); }

  int64_t least_first_cost() const { return 3 * (p_.fwd.hdim_q + p_.fwd.hdim_v); }

  bool fits(const Entry& e) const { return unmet_needs(*e.kernel, p_, offers_) == 0; }

  // A kernel that was written for one mask has less to do a score than one that reads its mask's windows.
  Cost cost(const Entry& e) const {
    const Kernel& k = *e.kernel;
    const bool any_mask = k.bwd.mask == BwdMask::kAny;
    if (sums_in_blocks(k)) {
      return {e.first_cost, blocks_pay(k, p_, target_.compute_units) ? 0 : 2, 0, e.kernel};
    }
    return {e.first_cost, k.bwd.whole ? 1 : 2 + any_mask, 0, e.kernel};
  }

  [[noreturn]] void raise_unsupported() const { raise_bwd_unsupported(p_, offers_, target_.arch); }

 private:
  const BwdProblem& p_;
  const BwdOffers& offers_;
  const Target& target_;
};

// The kernels before and after them: one of each kind and dtype.
class PartsFamily {
 public:
  static constexpr Family kFamily = Family::kBwdParts;
  static constexpr Reasons kReasons = {};
  using Key = fmha::Key<Arch, DType, PartKind>;

  struct Entry {
    const Kernel* kernel;
    int32_t first_cost;
  };

  static size_t key_of(const Kernel& k) { return Key::of(k.arch, k.dtype, k.bwd_parts.kind); }

  static bool is_usable(const Kernel& k) {
    return Key::holds(k.arch, k.dtype, k.bwd_parts.kind) && bwd_parts_is_usable(k);
  }

  static Entry entry_of(const Kernel& k) { return {&k, 0}; }

  PartsFamily(Arch arch, DType dtype, PartKind kind) : arch_(arch), dtype_(dtype), kind_(kind) {}

  size_t key() const { return Key::of(arch_, dtype_, kind_); }
  static int64_t least_first_cost() { return 0; }
  static bool fits(const Entry& /*entry*/) { return true; }
  static Cost cost(const Entry& e) { return {0, 0, 0, e.kernel}; }

  // Every set has them; a build with a filter may not.
  [[noreturn]] void raise_unsupported() const {
    raise(FMHA_UNSUPPORTED,
          "this build has no fmha_bwd_%s_%s kernel for %s, which the backward pass takes beside its main "
          "kernel: build with FMHA_KERNEL_FILTER=",
          partkind_name(kind_), dtype_name(dtype_), arch_name(arch_));
  }

 private:
  const Arch arch_;
  const DType dtype_;
  const PartKind kind_;
};

const Kernel* part(Arch arch, DType dtype, PartKind kind) {
  return choose(PartsFamily(arch, dtype, kind), 0, false).kernel;
}

void add_zeros(const Kernel& sum, const View& gradient, Plan& plan) {
  if (gradient.touched) bwd_parts::add_sum(sum, gradient, {}, false, plan);
}

// A key head's gradients are the sums of their parts, unless the main kernel has written them.
void add_key_sums(const Kernel& sum, const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  if (w.direct) return;
  const auto add = [&](const View& out, const BwdWorkspace::Array& array) {
    const BwdStrides& s = array.strides;
    const bwd_parts::Parts parts = {
        array.data, {s.batch, w.key_parts * s.nhead, s.row}, s.nhead, static_cast<int32_t>(w.key_parts)};
    bwd_parts::add_sum(sum, out, parts, p.accumulate, plan);
  };
  add(p.dk, w.dk);
  add(p.dv, w.dv);
}

void add_memset(const BwdWorkspace::Array& first, int64_t bytes, Plan& plan) {
  plan.add_memset(first.data, 0, static_cast<size_t>(bytes));
}

// Zeroes rows of packed sequences that are not in use: a kernel that writes the gradients itself leaves them.
void add_unused_zeros(const Kernel& sum, const BwdProblem& p, bool keys, Plan& plan) {
  if (p.accumulate) return;
  if (p.fwd.seqused_q != nullptr) add_zeros(sum, p.dq, plan);
  if (p.fwd.seqused_k == nullptr || !keys) return;
  add_zeros(sum, p.dk, plan);
  add_zeros(sum, p.dv, plan);
}

// Tells whether the main kernel writes all of the caller's gradient of the bias: no score is hidden from it.
bool covers_dbias(const BwdProblem& p) {
  return p.grad_dtype != DType::kFp32 && !p.fwd.group && !p.fwd.mask.hides();
}

void add_key_memset(const BwdProblem& p, const BwdWorkspace& w, Plan& plan) {
  if (!w.direct && p.fwd.group) add_memset(w.dk, w.dk.bytes + w.dv.bytes, plan);
}

void add_steps(const BwdKernels& kernels, const BwdProblem& p, int units, Plan& plan) {
  const Kernel& main = *kernels.chosen.kernel;
  const BwdWorkspace w = bwd_workspace(main, p, units);
  plan.workspace_bytes = w.bytes;
  bwd_parts::add_dot(*kernels.dot, p, w, plan);
  if (main.bwd.whole) {
    add_unused_zeros(*kernels.sum, p, w.direct, plan);
    add_key_memset(p, w, plan);
    bwd_add_main(main, p, w, plan);
    return add_key_sums(*kernels.sum, p, w, plan);
  }
  add_memset(w.dq_acc, w.dq_acc.bytes + w.dbias.bytes, plan);
  const bool makes_dbias = p.dbias.touched && w.dbias.bytes == 0;
  if (makes_dbias && !p.accumulate && !covers_dbias(p)) {
    bwd_parts::add_bias_zeros(*kernels.bias, p.dbias, plan);
  }
  if (p.fwd.group && bwd_leaves_keys(main.origin)) {
    add_zeros(*kernels.sum, p.dk, plan);
    add_zeros(*kernels.sum, p.dv, plan);
  }
  add_key_memset(p, w, plan);
  bwd_add_main(main, p, w, plan);
  const bwd_parts::Parts parts = {w.dq_acc.data, w.dq_acc.strides, w.copy, static_cast<int32_t>(w.copies),
                                  sums_in_blocks(main)};
  bwd_parts::add_sum(*kernels.sum, p.dq, parts, p.accumulate, plan);
  if (w.dbias.bytes > 0) bwd_parts::add_bias_sum(*kernels.bias, p, w, plan);
  add_key_sums(*kernels.sum, p, w, plan);
}

}  // namespace

void ask_bwd_origins(const BwdProblem& problem, BwdOffers& offers) {
  const DType dtype = problem.fwd.dtype;
  Refusal why;
  bool asked = false, any = false;
  // Goes from the last to the first, whose reason is the one that stays.
  for (size_t i = kOriginCount; i-- > 0;) {
    const auto origin = static_cast<Origin>(i);
    const bool takes = bwd_takes(origin, dtype);
    offers.possible[i] = takes && bwd_within_limits(origin, problem, why);
    asked = asked || takes;
    any = any || offers.possible[i];
  }
  if (any) return;
  if (asked) why.raise();
  raise(FMHA_UNSUPPORTED, "fwd->dtype = %s: backward kernels take fp16, bf16 and fp32", dtype_name(dtype));
}

BwdKernels choose_bwd(const BwdProblem& problem, const BwdOffers& offers, const Target& target,
                      bool counted) {
  const Chosen chosen = choose(BwdFamily(problem, offers, target), problem.candidate, counted);
  const bool sums_bias = problem.dbias.touched && !chosen.kernel->bwd.whole;
  return {chosen, part(target.arch, problem.fwd.o_dtype, PartKind::kDot),
          part(target.arch, problem.grad_dtype, PartKind::kSum),
          sums_bias ? part(target.arch, problem.grad_dtype, PartKind::kBias) : nullptr};
}

void plan_bwd(const BwdKernels& kernels, const BwdProblem& p, const Target& target, Plan& plan) {
  plan.empty = p.is_empty();
  if (plan.empty) return;
  if (!p.is_zero()) return add_steps(kernels, p, target.compute_units, plan);
  for (const View* gradient : {&p.dq, &p.dk, &p.dv}) add_zeros(*kernels.sum, *gradient, plan);
  if (p.dbias.touched) bwd_add_bias_zeros(*kernels.chosen.kernel, kernels.bias, p, plan);
}

}  // namespace fmha
