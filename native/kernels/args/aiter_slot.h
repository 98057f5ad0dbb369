// SPDX-License-Identifier: MIT OR Apache-2.0
// An argument of AITER's kernels: a number or an address in 16 bytes.
#pragma once

namespace fmha {

template <typename T>
struct alignas(16) AiterSlot {
  T value;
};

}  // namespace fmha
