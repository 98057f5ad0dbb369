// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/kv_append.h"

#include "origins/hip/kv_append_pack.h"
#include "select/two_types.h"

namespace fmha {
namespace {

struct KvAppend {
  static constexpr Family kFamily = Family::kKvAppend;
  static constexpr const char* kKernels = "append kernel";
  using Problem = KvAppendProblem;

  static DType second_of(const Kernel& k) { return k.kv_append.o_dtype; }
  static DType second_of(const Problem& p) { return p.cache_dtype; }

  [[noreturn]] static void raise_second(const Problem& p, Arch arch, const ItemList& types,
                                        const Elsewhere& elsewhere) {
    raise(FMHA_UNSUPPORTED, "cache->dtype = %s: this build stores dtype = %s in caches of: %s%s%s",
          dtype_name(p.cache_dtype), dtype_name(p.dtype), types.c_str(), OtherFp8(p.cache_dtype, arch).text,
          elsewhere.text);
  }
};
using KvAppendFamily = FamilyOfTwoTypes<KvAppend>;

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
