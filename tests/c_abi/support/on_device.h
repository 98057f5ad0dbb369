// SPDX-License-Identifier: MIT OR Apache-2.0
// The HIP runtime of a test on a device, and copies of host arrays in its memory.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "hip_calls.h"

inline const hip_calls& hip() {
  static const hip_calls calls = [] {
    hip_calls bound;
    REQUIRE(hip_open(&bound) == 1);
    return bound;
  }();
  return calls;
}

// The copies live as long as this.
template <typename T, size_t kCount>
class OnDevice {
 public:
  using Host = std::vector<T>[kCount];

  explicit OnDevice(const Host& host) {
    for (size_t i = 0; i < kCount; ++i) {
      const size_t bytes = host[i].size() * sizeof(T);
      CHECK(hip().malloc_(&memory[i], bytes) == 0);
      CHECK(hip().copy(memory[i], host[i].data(), bytes, HIP_TO_DEVICE) == 0);
    }
  }
  ~OnDevice() {
    for (void* p : memory) CHECK(hip().free_(p) == 0);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // Copies some of them back.
  void take(Host& host, std::initializer_list<size_t> which) const {
    for (const size_t i : which) {
      CHECK(hip().copy(host[i].data(), memory[i], host[i].size() * sizeof(T), HIP_TO_HOST) == 0);
    }
  }

  std::vector<void*> memory = std::vector<void*>(kCount);
};
