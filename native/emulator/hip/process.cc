// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/process.h"

#include <pthread.h>

#include <cstdio>

namespace fmha::emu {

std::atomic<Use> process_use{Use::kNone};

namespace {

std::atomic<bool> is_said{false};

void after_fork() {
  if (process_use.load(std::memory_order_relaxed) == Use::kBegun) process_use = Use::kInParent;
}

[[gnu::constructor]] void watch_forks() { (void)pthread_atfork(nullptr, nullptr, after_fork); }

}  // namespace

bool begin_use() noexcept {
  Use none = Use::kNone;
  if (process_use.compare_exchange_strong(none, Use::kBegun) || none == Use::kBegun) return true;
  if (!is_said.exchange(true)) {
    std::fputs(
        "amdhip64 software device: this process was forked from one that had used the device; start it by "
        "spawn or exec, or fork before the first use\n",
        stderr);
  }
  return false;
}

}  // namespace fmha::emu
