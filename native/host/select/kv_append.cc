// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/kv_append.h"

#include "error.h"
#include "origins/by_name/decode.h"
#include "origins/hip/kv_append_pack.h"
#include "select/unsupported.h"
#include "text.h"

namespace fmha {
namespace {

// As choose.h asks for them: one kernel of each pair of types.
class KvAppendFamily {
 public:
  static constexpr Family kFamily = Family::kKvAppend;
  static constexpr Reasons kReasons = {};
  using Key = fmha::Key<Arch, DType, DType>;

  struct Entry {
    const Kernel* kernel;
    int32_t first_cost;
  };

  static size_t key_of(const Kernel& k) { return Key::of(k.arch, k.dtype, k.kv_append.o_dtype); }

  static bool is_usable(const Kernel& k) {
    return Key::holds(k.arch, k.dtype, k.kv_append.o_dtype) && kv_append_is_usable(k);
  }

  static Entry entry_of(const Kernel& k) { return {&k, 0}; }

  KvAppendFamily(const KvAppendProblem& problem, Arch arch) : p_(problem), arch_(arch) {}

  size_t key() const { return Key::of(arch_, p_.dtype, p_.cache_dtype); }
  static int64_t least_first_cost() { return 0; }
  static bool fits(const Entry& /*entry*/) { return true; }
  static Cost cost(const Entry& e) { return {0, 0, 0, e.kernel}; }

  [[noreturn]] void raise_unsupported() const {
    const auto same = [&](const Kernel& k) {
      return k.family == kFamily && k.arch == arch_ && k.dtype == p_.dtype;
    };
    const Elsewhere elsewhere(
        [&](const Kernel& k) { return same(k) && k.kv_append.o_dtype == p_.cache_dtype; });
    ItemList types;
    for (size_t i = 0; i < kKernelCount; ++i) {
      if (same(kKernels[i])) types.add(dtype_name(kKernels[i].kv_append.o_dtype));
    }
    if (types.is_empty()) raise_for_type({kFamily, "append kernel", "dtype"}, p_.dtype, arch_, elsewhere);
    raise(FMHA_UNSUPPORTED, "cache->dtype = %s: this build stores dtype = %s in caches of: %s%s%s",
          dtype_name(p_.cache_dtype), dtype_name(p_.dtype), types.c_str(),
          OtherFp8(p_.cache_dtype, arch_).text, elsewhere.text);
  }

 private:
  const KvAppendProblem& p_;
  const Arch arch_;
};

}  // namespace

void check_kv_append_limits(const KvAppendProblem& problem) {
  Refusal why;
  if (!hip_kv_append::within_limits(problem, why)) why.raise();
}

Chosen choose_kv_append(const KvAppendProblem& problem, const Target& target, bool counted) {
  return choose(KvAppendFamily(problem, target.arch), problem.candidate, counted);
}

void plan_kv_append(const Kernel& kernel, const KvAppendProblem& problem, Plan& plan) {
  plan.empty = problem.empty;
  if (!plan.empty) hip_kv_append::add_steps(kernel, problem, plan);
}

}  // namespace fmha
