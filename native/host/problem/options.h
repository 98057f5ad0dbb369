// SPDX-License-Identifier: MIT OR Apache-2.0
// What a call of any family says of itself, not of the mathematics.
#pragma once

#include <cinttypes>
#include <cstdint>

#include "error.h"
#include "fmha_rocm.h"

namespace fmha {

struct CallOptions {
  int32_t candidate;   // 0: the best kernel; n: the n-th that can do it
  bool checks_memory;  // whose memory the pointers are is asked of HIP
};

// Fails with INVALID_ARGUMENT.
inline CallOptions make_call_options(int32_t kernel, uint64_t flags) {
  if (kernel < 0) {
    raise(FMHA_INVALID_ARGUMENT, "kernel = %" PRId32 ": expected 0, or the number of a candidate", kernel);
  }
  if ((flags & ~uint64_t{FMHA_NO_MEMORY_CHECK}) != 0) {
    raise(FMHA_INVALID_ARGUMENT, "flags = 0x%" PRIx64 ": expected 0 or FMHA_NO_MEMORY_CHECK (0x%x)", flags,
          unsigned{FMHA_NO_MEMORY_CHECK});
  }
  return {kernel, (flags & FMHA_NO_MEMORY_CHECK) == 0};
}

}  // namespace fmha
