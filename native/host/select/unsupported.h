// SPDX-License-Identifier: MIT OR Apache-2.0
// The words of any family's message when this build has no kernel for a problem.
#pragma once

#include <cstdio>

#include "catalogue/catalogue.h"

namespace fmha {

// Tells whether another build has a kernel that a predicate accepts, as the end of a message.
struct Elsewhere {
  template <typename Predicate>
  explicit Elsewhere(Predicate can_do) {
    for (size_t i = 0; i < kAbsentKernelCount; ++i) {
      const AbsentKernel& absent = kAbsentKernels[i];
      if (!can_do(absent.kernel)) continue;
      std::snprintf(text, sizeof text, "; the kernel set %s has one: build with %s", absent.set,
                    absent.build_with);
      return;
    }
  }
  char text[160] = "";
};

// Returns the matching kernel of the least distance; nullptr if none matches.
template <typename Matches, typename Distance>
const Kernel* nearest_kernel(Matches matches, Distance distance) {
  const Kernel* nearest = nullptr;
  for (size_t i = 0; i < kKernelCount; ++i) {
    const Kernel& k = kKernels[i];
    if (matches(k) && (nearest == nullptr || distance(k) < distance(*nearest))) nearest = &k;
  }
  return nearest;
}

// The end of a message about 8-bit floats of the kind that an arch does not have.
struct OtherFp8 {
  OtherFp8(DType wanted, Arch arch);
  char text[96] = "";
};

// How a family's messages name things.
struct FamilyWords {
  Family family;
  const char* kernel;  // "kernel"
  const char* dtype;   // the argument
};

// Fails with UNSUPPORTED: there is no kernel of the family for an arch and a dtype.
[[noreturn]] void raise_for_type(const FamilyWords& words, DType dtype, Arch arch,
                                 const Elsewhere& elsewhere);

}  // namespace fmha
