// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/merge.h"

#include "origins/hip/merge_pack.h"
#include "select/two_types.h"

namespace fmha {
namespace {

struct Merge {
  static constexpr Family kFamily = Family::kMerge;
  static constexpr const char* kKernels = "merge kernel";
  using Problem = MergeProblem;

  static DType second_of(const Kernel& k) { return k.merge.o_dtype; }
  static DType second_of(const Problem& p) { return p.o_dtype; }

  [[noreturn]] static void raise_second(const Problem& p, Arch /*arch*/, const ItemList& types,
                                        const Elsewhere& elsewhere) {
    raise(FMHA_UNSUPPORTED, "o_dtype = %s: of parts of dtype = %s merge kernels make: %s%s",
          dtype_name(p.o_dtype), dtype_name(p.dtype), types.c_str(), elsewhere.text);
  }
};
using MergeFamily = FamilyOfTwoTypes<Merge>;

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
