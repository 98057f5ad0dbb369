// SPDX-License-Identifier: MIT OR Apache-2.0
// The wave's MODE register, imposed on the host's SSE unit.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

namespace fmha::emu {

// MXCSR for MODE's f32 fields: all exceptions masked, rounding, flushing of inputs (DAZ) and outputs (FTZ).
[[gnu::always_inline]] inline uint32_t mxcsr_of(uint32_t round, uint32_t denorm) {
  constexpr uint32_t kHostRounding[4] = {0, 2, 1, 3};  // ours: nearest, +inf, -inf, zero; host: 1 is -inf
  constexpr uint32_t kMasked = 0x1f80, kDaz = 1u << 6, kFtz = 1u << 15;
  return kMasked | kHostRounding[round & 3] << 13 | (denorm & 1 ? 0 : kDaz) | (denorm & 2 ? 0 : kFtz);
}

// Called before a wave runs and whenever it changes MODE. Whoever runs waves restores the host's own MXCSR.
// Always inlined: a shared copy could be one compiled for a newer CPU than this one.
[[gnu::always_inline]] inline void apply_mode(uint32_t mode) {
  _mm_setcsr(mxcsr_of(mode & 3, mode >> 4 & 3));
}

}  // namespace fmha::emu
