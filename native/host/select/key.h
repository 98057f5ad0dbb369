// SPDX-License-Identifier: MIT OR Apache-2.0
// Numbers for combinations of values: each kind of value has a count, and no two combinations share a number,
// however many archs, dtypes or families there come to be.
#pragma once

#include <array>
#include <cstddef>

#include "catalogue/catalogue.h"

namespace fmha {

// How many values a type has. A type without one cannot be part of a key.
template <typename T>
struct CountOf;
template <>
struct CountOf<bool> {
  static constexpr size_t kCount = 2;
};
template <>
struct CountOf<Arch> {
  static constexpr size_t kCount = kArchCount;
};
template <>
struct CountOf<Family> {
  static constexpr size_t kCount = kFamilyCount;
};
template <>
struct CountOf<DType> {
  static constexpr size_t kCount = kDTypeCount;
};
template <>
struct CountOf<Bias> {
  static constexpr size_t kCount = kBiasCount;
};
template <>
struct CountOf<PartKind> {
  static constexpr size_t kCount = kPartKindCount;
};

// Combinations of values of these types, and the number of one of them, from 0.
template <typename... T>
struct Key {
  static constexpr size_t kCount = (CountOf<T>::kCount * ... * 1);

  static constexpr size_t of(T... values) {
    size_t key = 0;
    ((key = key * CountOf<T>::kCount + static_cast<size_t>(values)), ...);
    return key;
  }

  // Tells whether each value is below its type's count: a table may be of a newer build.
  static constexpr bool holds(T... values) {
    return ((static_cast<size_t>(values) < CountOf<T>::kCount) && ...);
  }
};

static_assert(Key<bool, bool, bool>::kCount == 8 && Key<bool, bool, bool>::of(true, true, true) == 7);

}  // namespace fmha
