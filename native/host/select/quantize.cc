// SPDX-License-Identifier: MIT OR Apache-2.0
#include "select/quantize.h"

#include "origins/hip/quantize_pack.h"
#include "select/two_types.h"

namespace fmha {
namespace {

struct Quantize {
  static constexpr Family kFamily = Family::kQuantize;
  static constexpr const char* kKernels = "quantise kernel";
  using Problem = QuantizeProblem;

  static DType second_of(const Kernel& k) { return k.quantize.o_dtype; }
  static DType second_of(const Problem& p) { return p.o_dtype; }

  [[noreturn]] static void raise_second(const Problem& p, Arch arch, const ItemList& types,
                                        const Elsewhere& elsewhere) {
    raise(FMHA_UNSUPPORTED,
          "out_dtype = %s: of dtype = %s quantise kernels of this build for %s make: %s%s%s",
          dtype_name(p.o_dtype), dtype_name(p.dtype), arch_name(arch), types.c_str(),
          OtherFp8(p.o_dtype, arch).text, elsewhere.text);
  }
};
using QuantizeFamily = FamilyOfTwoTypes<Quantize>;

}  // namespace

void check_quantize_limits(const QuantizeProblem& problem) {
  Refusal why;
  if (!hip_quantize::within_limits(problem, why)) why.raise();
}

Chosen choose_quantize(const QuantizeProblem& problem, const Target& target, bool counted) {
  return choose(QuantizeFamily(problem, target.arch), problem.candidate, counted);
}

void plan_quantize(const Kernel& kernel, const QuantizeProblem& problem, const Target& target, Plan& plan) {
  plan.empty = problem.empty;
  if (!plan.empty) hip_quantize::add_steps(kernel, problem, target, plan);
}

}  // namespace fmha
