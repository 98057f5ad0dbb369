// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/merge.h"

#include "error.h"
#include "origins/by_name/decode.h"
#include "origins/hip/merge_pack.h"
#include "select/unsupported.h"
#include "text.h"

namespace fmha {
namespace {

// As choose.h asks for them: one kernel of each pair of types.
class MergeFamily {
 public:
  static constexpr Family kFamily = Family::kMerge;
  static constexpr Reasons kReasons = {};
  using Key = fmha::Key<Arch, DType, DType>;

  struct Entry {
    const Kernel* kernel;
    int32_t first_cost;
  };

  static size_t key_of(const Kernel& k) { return Key::of(k.arch, k.dtype, k.merge.o_dtype); }

  static bool is_usable(const Kernel& k) {
    return Key::holds(k.arch, k.dtype, k.merge.o_dtype) && merge_is_usable(k);
  }

  static Entry entry_of(const Kernel& k) { return {&k, 0}; }

  MergeFamily(const MergeProblem& problem, Arch arch) : p_(problem), arch_(arch) {}

  size_t key() const { return Key::of(arch_, p_.dtype, p_.o_dtype); }
  static int64_t least_first_cost() { return 0; }
  static bool fits(const Entry& /*entry*/) { return true; }
  static Cost cost(const Entry& e) { return {0, 0, 0, e.kernel}; }

  [[noreturn]] void raise_unsupported() const {
    const auto same = [&](const Kernel& k) {
      return k.family == kFamily && k.arch == arch_ && k.dtype == p_.dtype;
    };
    const Elsewhere elsewhere([&](const Kernel& k) { return same(k) && k.merge.o_dtype == p_.o_dtype; });
    ItemList types;
    for (size_t i = 0; i < kKernelCount; ++i) {
      if (same(kKernels[i])) types.add(dtype_name(kKernels[i].merge.o_dtype));
    }
    if (types.is_empty()) raise_for_type({kFamily, "merge kernel", "dtype"}, p_.dtype, arch_, elsewhere);
    raise(FMHA_UNSUPPORTED, "o_dtype = %s: of parts of dtype = %s merge kernels make: %s%s",
          dtype_name(p_.o_dtype), dtype_name(p_.dtype), types.c_str(), elsewhere.text);
  }

 private:
  const MergeProblem& p_;
  const Arch arch_;
};

}  // namespace

void check_merge_limits(const MergeProblem& problem) {
  Refusal why;
  if (!hip_merge::within_limits(problem, why)) why.raise();
}

Chosen choose_merge(const MergeProblem& problem, const Target& target, bool counted) {
  return choose(MergeFamily(problem, target.arch), problem.candidate, counted);
}

bool can_merge(DType o_dtype, const Target& target) {
  return !Index<MergeFamily>::of(MergeFamily::Key::of(target.arch, DType::kFp32, o_dtype)).empty();
}

void plan_merge(const Kernel& kernel, const MergeProblem& problem, Plan& plan) {
  plan.empty = problem.empty;
  if (!plan.empty) hip_merge::add_steps(kernel, problem, plan);
}

}  // namespace fmha
