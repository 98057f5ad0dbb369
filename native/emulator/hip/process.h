// SPDX-License-Identifier: MIT OR Apache-2.0
// A child by fork has none of its parent's threads: of streams that serve nothing, and locks that nobody
// gives back, it would wait for ever. As with ROCm's runtime it gets an error instead.
#pragma once

#include <atomic>

namespace fmha::emu {

enum class Use { kNone, kBegun, kInParent };
extern std::atomic<Use> process_use;

// Begins the use of the device in this process; false, said once on stderr, if it began in the parent.
bool begin_use() noexcept;

inline bool may_use_device() noexcept {
  return process_use.load(std::memory_order_relaxed) == Use::kBegun || begin_use();
}

}  // namespace fmha::emu
