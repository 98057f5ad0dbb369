// SPDX-License-Identifier: MIT OR Apache-2.0
// Copies of host arrays in device memory, which live as long as this.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "check.h"
#include "hip_calls.h"

template <typename T, size_t kCount>
class OnDevice {
 public:
  using Host = std::vector<T>[kCount];

  OnDevice(const hip_calls& hip, const Host& host) : hip_(hip) {
    for (size_t i = 0; i < kCount; ++i) {
      const size_t bytes = host[i].size() * sizeof(T);
      CHECK(hip_.malloc_(&memory[i], bytes) == 0);
      CHECK(hip_.copy(memory[i], host[i].data(), bytes, HIP_TO_DEVICE) == 0);
    }
  }
  ~OnDevice() {
    for (void* p : memory) CHECK(hip_.free_(p) == 0);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // Copies some of them back.
  void take(Host& host, std::initializer_list<size_t> which) const {
    for (const size_t i : which) {
      CHECK(hip_.copy(host[i].data(), memory[i], host[i].size() * sizeof(T), HIP_TO_HOST) == 0);
    }
  }

  std::vector<void*> memory = std::vector<void*>(kCount);

 private:
  const hip_calls& hip_;
};
