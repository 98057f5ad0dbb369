// SPDX-License-Identifier: MIT OR Apache-2.0
// The options that calls of any family have, and checks of single fields.
#pragma once

#include <cinttypes>
#include <cstdint>

#include "error.h"
#include "fmha_rocm.h"

namespace fmha {

// Fails with INVALID_ARGUMENT unless a number is at least so large.
inline void check_least(const char* name, int64_t value, int64_t least) {
  if (value >= least) return;
  raise(FMHA_INVALID_ARGUMENT, "%s = %" PRId64 ": expected %" PRId64 " or more", name, value, least);
}

// Fails with INVALID_ARGUMENT: a pointer has to be NULL, and `why` ends the sentence.
[[noreturn]] inline void raise_set(const char* name, const void* value, const char* why) {
  raise(FMHA_INVALID_ARGUMENT, "%s = %p: expected NULL%s", name, value, why);
}

// A field that is 0 or 1. Fails with INVALID_ARGUMENT.
inline bool truth(const char* name, int32_t value) {
  if (value == 0 || value == 1) return value == 1;
  raise(FMHA_INVALID_ARGUMENT, "%s = %" PRId32 ": expected 0 or 1", name, value);
}

// Tells whether the logarithm of an LSE is to base 2. Fails with INVALID_ARGUMENT.
inline bool is_base2(fmha_lse_base base) {
  if (base == FMHA_LSE_NATURAL || base == FMHA_LSE_BASE2) return base == FMHA_LSE_BASE2;
  raise(FMHA_INVALID_ARGUMENT, "lse_base = %" PRId32 ": expected FMHA_LSE_NATURAL (0) or FMHA_LSE_BASE2 (1)",
        base);
}

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
