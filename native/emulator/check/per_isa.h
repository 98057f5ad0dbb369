// SPDX-License-Identifier: MIT OR Apache-2.0
// A value for each ISA manual that the device follows (enum Isa). All must be given, in the order of the
// enum: a manual that nobody thought of does not compile, and none reads as 0.
#pragma once

#include "archs.h"

namespace fmha::emu {

template <class T>
class PerIsa {
 public:
  template <class... Values>
    requires(sizeof...(Values) == kIsaCount)
  constexpr PerIsa(Values... values) : values_{values...} {}
  constexpr const T& operator[](Isa isa) const { return values_[static_cast<int>(isa)]; }

 private:
  T values_[kIsaCount];
};

}  // namespace fmha::emu
