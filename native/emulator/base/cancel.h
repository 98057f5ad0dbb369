// SPDX-License-Identifier: MIT OR Apache-2.0
// A request to end launches before their time. A counter says how often everything was cancelled. A launch
// remembers the count of when it was asked for, and is cancelled once the counter differs. A thread that did
// not run meanwhile sees the request late, but sees it.
#pragma once

#include <atomic>
#include <cstdint>

namespace fmha::emu {

inline std::atomic<uint64_t> cancellations{0};

// No count: what is asked for at this is cancelled from the start.
inline constexpr uint64_t kCancelledAtOnce = UINT64_MAX;

inline bool is_cancelled(uint64_t asked_at) {
  return cancellations.load(std::memory_order_relaxed) != asked_at;
}

}  // namespace fmha::emu
