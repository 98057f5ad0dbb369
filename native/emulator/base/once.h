// SPDX-License-Identifier: MIT OR Apache-2.0
// A value that is made once, by the first thread to ask. If making it throws, the next thread tries again.
// std::call_once throws through the C library's pthread_once, which then loads libgcc_s.so.1 and ends the
// process if it cannot: as when the host has no memory.
#pragma once

#include <atomic>
#include <mutex>

namespace fmha::emu {

class Once {
 public:
  template <class Make>
  void run(const Make& make) {
    if (made_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (made_.load(std::memory_order_relaxed)) return;
    make();
    made_.store(true, std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> made_{false};
};

}  // namespace fmha::emu
