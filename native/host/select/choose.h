// SPDX-License-Identifier: MIT OR Apache-2.0
// The choice among the kernels of any family. A family says by a type F
//
//   using Key = fmha::Key<Family, Arch, DType, ...>;   what kernels have in common that can be compared at
//   all static size_t key_of(const Kernel&)                for rows of the family static constexpr Family
//   kFamily
//
// and by an object of it, made for one problem,
//
//   size_t key() const                     of the kernels to look at
//   bool fits(const Kernel&) const         whether a kernel can do the problem
//   int64_t first_cost(const Kernel&)      the part of the cost that weighs most, at little cost itself
//   Cost cost(const Kernel&) const
//   [[noreturn]] void fail_unsupported() const
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "error.h"
#include "select/key.h"

namespace fmha {

// The less the better, from the first to the last. If all are equal the catalogue's order decides.
struct Cost {
  std::array<int64_t, 3> parts;
  const Kernel* kernel;

  auto operator<=>(const Cost&) const = default;
};

struct Chosen {
  const Kernel* kernel;
  int number;  // which candidate it is, from 1, and
  int count;   // of how many; both 0 if they were not asked for
};

// A family's kernels by key: a full set has more than a thousand, of which a call looks at some ten.
template <typename F>
class Index {
 public:
  static std::span<const Kernel* const> of(size_t key) {
    static const Index& index = *new Index;  // never destroyed: other threads may still be launching
    const size_t begin = key == 0 ? 0 : index.ends_[key - 1];
    return {&index.kernels_[begin], index.ends_[key] - begin};
  }

 private:
  Index() : kernels_(std::make_unique<const Kernel*[]>(kKernelCount)) {
    for_each([&](const Kernel& k) { ++ends_[F::key_of(k)]; });
    size_t end = 0;
    for (size_t& count : ends_) end += std::exchange(count, end);
    // Each entry is the beginning of its kernels now, and their end once they are in, in the table's order.
    for_each([&](const Kernel& k) { kernels_[ends_[F::key_of(k)]++] = &k; });
  }

  // Rows of another family are not looked at further: their union has another member.
  template <typename Function>
  static void for_each(Function function) {
    for (size_t i = 0; i < kKernelCount; ++i) {
      if (kKernels[i].family == F::kFamily && F::is_usable(kKernels[i])) function(kKernels[i]);
    }
  }

  std::array<size_t, F::Key::kCount> ends_{};
  std::unique_ptr<const Kernel*[]> kernels_;
};

// The cheapest of the kernels that fit and cost more than `after`, which becomes its cost; nullptr if there
// is none.
template <typename F>
const Kernel* next_cheapest(std::span<const Kernel* const> kernels, const F& family, Cost& after) {
  const Kernel* chosen = nullptr;
  Cost best{};
  for (const Kernel* k : kernels) {
    if (chosen != nullptr && family.first_cost(*k) > best.parts[0]) continue;
    if (!family.fits(*k)) continue;
    const Cost cost = family.cost(*k);
    if (cost <= after || (chosen != nullptr && cost >= best)) continue;
    best = cost;
    chosen = k;
  }
  after = best;
  return chosen;
}

inline constexpr Cost kNoCost = {{-1, 0, 0}, nullptr};

// The n-th best kernel, without an array to sort: this may run while a stream is captured, and allocates
// nothing. Fails with UNSUPPORTED if there are fewer.
template <typename F>
Chosen nth_best(std::span<const Kernel* const> kernels, const F& family, int candidate) {
  const auto count = static_cast<int>(
      std::count_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return family.fits(*k); }));
  if (count == 0) family.fail_unsupported();
  const int number = std::max(candidate, 1);
  if (number > count) {
    fail(FMHA_UNSUPPORTED,
         "kernel = %d: expected 0 (the library's choice) to %d, the candidates for this problem", candidate,
         count);
  }
  Cost cost = kNoCost;
  const Kernel* chosen = nullptr;
  for (int i = 0; i < number; ++i) chosen = next_cheapest(kernels, family, cost);
  return {chosen, number, count};
}

// The kernel that runs: the best, or the n-th best if `candidate` is n. Fails with UNSUPPORTED, naming the
// nearest thing that works.
template <typename F>
Chosen choose(const F& family, int candidate, bool counted) {
  const std::span<const Kernel* const> kernels = Index<F>::of(family.key());
  if (counted || candidate != 0) return nth_best(kernels, family, candidate);
  Cost cost = kNoCost;
  const Kernel* best = next_cheapest(kernels, family, cost);
  if (best == nullptr) family.fail_unsupported();
  return {best, 0, 0};
}

}  // namespace fmha
