// SPDX-License-Identifier: MIT OR Apache-2.0
// The choice among the kernels of any family. A family says by a type F
//
//   using Key = fmha::Key<Family, Arch, DType, ...>;   what kernels have in common that can be compared at
//   all using Entry = ...;                                 facts of a kernel that the choice reads, beside it
//   static constexpr Family kFamily
//   static bool is_usable(const Kernel&)               whether the library can use a row of the family
//   static size_t key_of(const Kernel&)                of a row that it can use
//   static Entry entry_of(const Kernel&)
//   static constexpr Reasons kReasons                  why a kernel is best, by what tells it from the next
//
// and by an object of it, made for one problem,
//
//   size_t key() const                                 of the kernels to look at
//   int64_t least_first_cost() const                   below which no kernel fits
//   bool fits(const Entry&) const                      whether a kernel can do the problem
//   Cost cost(const Entry&) const
//   [[noreturn]] void raise_unsupported() const
//
// An Entry has `kernel`, and `first_cost`: the part of the cost that weighs most, and is the same whatever
// the problem.
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
  int64_t first, second, third;
  const Kernel* kernel;

  bool operator<(const Cost& other) const {
    if (first != other.first) return first < other.first;
    if (second != other.second) return second < other.second;
    if (third != other.third) return third < other.third;
    return kernel < other.kernel;
  }
};

// Why a kernel is the best: its first cost is the least, its second, its third, or the next costs the same.
struct Reasons {
  const char* first = "its tile is the smallest that holds the head dims";
  const char* second = nullptr;
  const char* third = nullptr;
  const char* tie = "the first in the catalogue of those as good";
};

struct Chosen {
  const Kernel* kernel;
  int number;       // which candidate it is, from 1, and
  int count;        // of how many; both 0 if they were not asked for
  const char* why;  // it is this one; nullptr if that was not asked for
};

// A family's kernels by key: a full set has more than a thousand, of which a call looks at some ten. Those of
// a key's least first cost come first.
template <typename F>
class Index {
 public:
  using Entry = typename F::Entry;

  static std::span<const Entry> of(size_t key) {
    static const Index& index = *new Index;  // never destroyed: other threads may still be launching
    const size_t begin = key == 0 ? 0 : index.ends_[key - 1];
    return {&index.entries_[begin], index.ends_[key] - begin};
  }

 private:
  Index() : entries_(std::make_unique<Entry[]>(kKernelCount)) {
    for_each([&](const Kernel& k) { ++ends_[F::key_of(k)]; });
    size_t end = 0;
    for (size_t& count : ends_) end += std::exchange(count, end);
    // Each end is the beginning of its kernels now, and their end once they are in.
    for_each([&](const Kernel& k) { entries_[ends_[F::key_of(k)]++] = F::entry_of(k); });
    size_t begin = 0;
    for (const size_t key_end : ends_) {
      std::sort(&entries_[begin], &entries_[key_end], [](const Entry& a, const Entry& b) {
        return std::pair(a.first_cost, a.kernel) < std::pair(b.first_cost, b.kernel);
      });
      begin = key_end;
    }
  }

  // Rows of another family are not looked at further: their union has another member.
  template <typename Function>
  static void for_each(Function function) {
    for (size_t i = 0; i < kKernelCount; ++i) {
      if (kKernels[i].family == F::kFamily && F::is_usable(kKernels[i])) function(kKernels[i]);
    }
  }

  std::array<size_t, F::Key::kCount> ends_{};
  std::unique_ptr<Entry[]> entries_;
};

// The cheapest of the kernels that fit and cost more than `after`, which becomes its cost; nullptr if there
// is none.
template <typename F>
const Kernel* next_cheapest(std::span<const typename F::Entry> entries, const F& family, Cost& after) {
  const Kernel* chosen = nullptr;
  Cost best{};
  const Cost floor = after;
  const int64_t least = family.least_first_cost();
  for (const auto& entry : entries) {
    if (entry.first_cost < least) continue;
    if (chosen != nullptr && entry.first_cost > best.first) break;
    if (!family.fits(entry)) continue;
    const Cost cost = family.cost(entry);
    if ((chosen != nullptr && !(cost < best)) || !(floor < cost)) continue;
    best = cost;
    chosen = entry.kernel;
  }
  after = best;
  return chosen;
}

inline constexpr Cost kNoCost = {-1, 0, 0, nullptr};

// Why a kernel is better than the next best.
template <typename F>
const char* why_better(const Cost& best, const Cost& next) {
  if (best.first != next.first) return F::kReasons.first;
  if (best.second != next.second) return F::kReasons.second;
  if (best.third != next.third) return F::kReasons.third;
  return F::kReasons.tie;
}

// The n-th best kernel, without an array to sort: this may run while a stream is captured, and allocates
// nothing. Fails with UNSUPPORTED if there are fewer.
template <typename F>
Chosen nth_best(std::span<const typename F::Entry> entries, const F& family, int candidate) {
  const auto count = static_cast<int>(
      std::count_if(entries.begin(), entries.end(), [&](const auto& entry) { return family.fits(entry); }));
  if (count == 0) family.raise_unsupported();
  const int number = std::max(candidate, 1);
  if (number > count) {
    raise(FMHA_UNSUPPORTED,
          "kernel = %d: expected 0 (the library's choice) to %d, the candidates for this problem", candidate,
          count);
  }
  Cost cost = kNoCost;
  const Kernel* chosen = nullptr;
  for (int i = 0; i < number; ++i) chosen = next_cheapest(entries, family, cost);
  if (candidate != 0) return {chosen, number, count, "the caller asked for it"};
  if (count == 1) return {chosen, number, count, "no other kernel of this build does the problem"};
  Cost next = cost;
  next_cheapest(entries, family, next);
  return {chosen, number, count, why_better<F>(cost, next)};
}

// The kernel that runs: the best, or the n-th best if `candidate` is n. Fails with UNSUPPORTED, naming the
// nearest thing that works.
template <typename F>
Chosen choose(const F& family, int candidate, bool counted) {
  const std::span<const typename F::Entry> entries = Index<F>::of(family.key());
  if (counted || candidate != 0) return nth_best(entries, family, candidate);
  Cost cost = kNoCost;
  const Kernel* best = next_cheapest(entries, family, cost);
  if (best == nullptr) family.raise_unsupported();
  return {best, 0, 0, nullptr};
}

}  // namespace fmha
