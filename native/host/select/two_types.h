// SPDX-License-Identifier: MIT OR Apache-2.0
// A family that has one kernel for each pair of types: append and merge.
#pragma once

#include "origins/by_name/decode.h"
#include "select/choose.h"
#include "select/unsupported.h"
#include "text.h"

namespace fmha {

// Answers choose.h for the family. T has: kFamily; kKernels, their name in messages; Problem; second_of, the
// type beside dtype, of a kernel and of a problem; and raise_second, which refuses a problem's second type,
// given those that there are.
template <typename T>
class FamilyOfTwoTypes {
 public:
  static constexpr Family kFamily = T::kFamily;
  static constexpr Reasons kReasons = {};
  using Problem = typename T::Problem;
  using Key = fmha::Key<Arch, DType, DType>;

  struct Entry {
    const Kernel* kernel;
    int32_t first_cost;
  };

  static size_t key_of(const Kernel& k) { return Key::of(k.arch, k.dtype, T::second_of(k)); }
  static bool is_usable(const Kernel& k) {
    return Key::holds(k.arch, k.dtype, T::second_of(k)) && two_types_is_usable(k);
  }
  static Entry entry_of(const Kernel& k) { return {&k, 0}; }

  FamilyOfTwoTypes(const Problem& problem, Arch arch) : p_(problem), arch_(arch) {}

  size_t key() const { return Key::of(arch_, p_.dtype, T::second_of(p_)); }
  static int64_t least_first_cost() { return 0; }
  static bool fits(const Entry& /*entry*/) { return true; }
  static Cost cost(const Entry& e) { return {0, 0, 0, e.kernel}; }

  [[noreturn]] void raise_unsupported() const {
    const auto same = [&](const Kernel& k) {
      return k.family == kFamily && k.arch == arch_ && k.dtype == p_.dtype;
    };
    const Elsewhere elsewhere(
        [&](const Kernel& k) { return same(k) && T::second_of(k) == T::second_of(p_); });
    ItemList types;
    for (size_t i = 0; i < kKernelCount; ++i) {
      if (same(kKernels[i])) types.add(dtype_name(T::second_of(kKernels[i])));
    }
    if (types.is_empty()) raise_for_type({kFamily, T::kKernels, "dtype"}, p_.dtype, arch_, elsewhere);
    T::raise_second(p_, arch_, types, elsewhere);
  }

 private:
  const Problem& p_;
  const Arch arch_;
};

}  // namespace fmha
