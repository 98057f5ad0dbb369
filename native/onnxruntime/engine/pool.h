// SPDX-License-Identifier: MIT OR Apache-2.0
// A device's memory that runs give back and take again. hipFree would wait for the device, and each run
// allocates the same sizes.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

#include "engine/hip.h"

namespace fmha::onnxruntime {

// Memory that is taken for a stream goes back to that stream: later work there runs after what still uses it.
// Memory that is taken for no stream goes back to HIP. All functions may be called by any thread.
class Pool {
 public:
  explicit Pool(int device) : device_(device) {}
  ~Pool() = default;  // HIP may be gone when a program ends: the rest goes with the process
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Throws if the device has no more memory, also without what waits here.
  void* take(size_t bytes, HipStream stream);
  void give(void* data) noexcept;

  // The stream is about to end, and has no work.
  void retire(HipStream stream) noexcept;

 private:
  struct Block {
    size_t bytes;
    HipStream stream;
  };
  using Free = std::multimap<size_t, void*>;  // by size

  void* allocate(size_t bytes);
  static void release(Free& blocks) noexcept;

  const int device_;
  std::mutex mutex_;
  std::unordered_map<void*, Block> taken_;
  std::unordered_map<HipStream, Free> free_;
};

}  // namespace fmha::onnxruntime
