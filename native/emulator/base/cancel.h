// SPDX-License-Identifier: MIT OR Apache-2.0
// Whether launches are to end before their time. How often everything that had been asked for was cancelled
// is counted; a launch is cancelled once the count is not what it was when the launch was asked for. A
// request that is seen late, by a thread that did not run meanwhile, is so seen all the same.
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
