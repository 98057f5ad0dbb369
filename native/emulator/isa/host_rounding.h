// SPDX-License-Identifier: MIT OR Apache-2.0
// Rounding and denormals for instructions that do not follow MODE.
#pragma once

#include <xmmintrin.h>

namespace fmha::emu::FMHA_EMU_LEVEL {

// While it lives, the host rounds to nearest even and keeps denormals (or flushes them, in and out). The host
// almost always does so already; then the cost is one read of MXCSR.
class HostRounding {
 public:
  explicit HostRounding(bool flush)
      : saved_(_mm_getcsr()), changed_((saved_ & kAll) != (flush ? kFlush : 0)) {
    if (changed_) [[unlikely]]
      _mm_setcsr((saved_ & ~kAll) | (flush ? kFlush : 0));
  }
  ~HostRounding() {
    if (changed_) [[unlikely]]
      _mm_setcsr(saved_);
  }
  HostRounding(const HostRounding&) = delete;
  HostRounding& operator=(const HostRounding&) = delete;

 private:
  static constexpr unsigned kFlush = 0x8040, kRound = 0x6000, kAll = kFlush | kRound;
  unsigned saved_;
  bool changed_;
};

}  // namespace fmha::emu::FMHA_EMU_LEVEL
