// SPDX-License-Identifier: MIT OR Apache-2.0
// A device of HIP as ONNX Runtime names its memory.
#pragma once

#include <deque>

#include "engine/api.h"
#include "engine/pool.h"

namespace fmha::onnxruntime {

class Place {
 public:
  explicit Place(int device);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  int device() const { return device_; }
  const OrtMemoryInfo* memory() const { return memory_; }  // the device's
  Pool& pool() const { return pool_; }                     // of that memory
  const OrtMemoryInfo* pinned() const { return pinned_; }  // the host's, which the device can read

 private:
  int device_;
  mutable Pool pool_;
  OrtMemoryInfo* memory_ = nullptr;
  OrtMemoryInfo* pinned_ = nullptr;
};

using Places = std::deque<Place>;  // by the device's number

// HIP's number of the device whose memory this is; -1 if it is the host's own or another provider's.
int device_of(const OrtMemoryDevice* memory);

}  // namespace fmha::onnxruntime
