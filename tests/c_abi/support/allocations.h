// SPDX-License-Identifier: MIT OR Apache-2.0
// How often this process has allocated memory, the library in it as well; where that can be counted, which it
// cannot under a sanitizer. For one source file of a program.
#pragma once

#include <atomic>
#include <cstddef>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static std::atomic<long> g_allocations{0};
extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* malloc(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
inline long allocations() { return g_allocations; }
#else
inline long allocations() { return 0; }
#endif
