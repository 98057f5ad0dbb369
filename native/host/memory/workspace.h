// SPDX-License-Identifier: MIT OR Apache-2.0
// The caller's device memory for intermediate results.
#pragma once

#include <algorithm>
#include <cstdint>

#include "divide.h"
#include "memory/view.h"

namespace fmha {

struct Workspace {
  // The alignment that fmha_rocm.h asks for and hipMalloc gives; a plan's offsets may count on it.
  static constexpr int64_t kAlignBytes = 256;

  void* data;
  int64_t bytes;
};

// Sizes that no process can address stay at this.
inline constexpr int64_t kMostWorkspaceBytes = int64_t{kAddressSpace};

inline int64_t workspace_product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? kMostWorkspaceBytes : std::min(result, kMostWorkspaceBytes);
}

inline int64_t workspace_aligned(int64_t bytes) {
  return ceil_div(bytes, Workspace::kAlignBytes) * Workspace::kAlignBytes;
}

// Fails with INVALID_ARGUMENT if the caller's workspace does not do for a call that needs `needed` bytes and
// touches `extents`. Looks at nothing if none is needed. `query` is the function that says how many.
void check_workspace(const Workspace& given, int64_t needed, const Extents& extents, const char* query);

}  // namespace fmha
