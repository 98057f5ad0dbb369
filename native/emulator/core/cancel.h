// SPDX-License-Identifier: MIT OR Apache-2.0
// Whether launches are to end before their time: a request holds for every launch, until it is taken back.
#pragma once

#include <atomic>

namespace fmha::emu {

inline std::atomic<int> cancel_requests{0};

inline bool is_cancelled() { return cancel_requests.load(std::memory_order_relaxed) != 0; }

}  // namespace fmha::emu
