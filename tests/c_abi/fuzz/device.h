// SPDX-License-Identifier: MIT OR Apache-2.0
// The software device as the fuzzer uses it: a few small allocations, which the host can read as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fmha_rocm.h"

namespace fmha::fuzz {

// One allocation a tensor. Offsets inside are in bytes.
enum Region : int {
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kBias,
  kRandval,
  kDout,
  kDq,
  kDk,
  kDv,
  kDbias,
  kSlopes,
  kCuQ,
  kCuK,
  kUsedQ,
  kUsedK,
  kPhilox,
  kRegionCount
};

const char* name_of(Region region);

constexpr size_t kTensorBytes = size_t{128} << 10;
constexpr size_t kSmallBytes = 1024;  // of slopes, lengths and seeds
constexpr size_t kWorkspaceBytes = size_t{4} << 20;

class Device {
 public:
  // Opened at the first call, once; ends the process with a message if there is no software device.
  static Device& get();

  uint8_t* start(Region region) const { return start_[region]; }
  static size_t bytes(Region region) { return region < kSlopes ? kTensorBytes : kSmallBytes; }
  // Returns whether [pointer, pointer + bytes) is inside one region.
  bool holds(const void* pointer, uint64_t bytes) const;

  // So many bytes, at most kWorkspaceBytes, at the end of an allocation: the device sees what goes beyond.
  // Their content does not matter.
  void* workspace(size_t bytes) const { return workspace_ + (kWorkspaceBytes - (bytes + 255) / 256 * 256); }

  bool is_workspace(const void* pointer, size_t bytes) const;

  void* other_device() const { return other_device_; }  // memory of the second device
  void* freed() const { return freed_; }                // was memory once

  // Sets the content at rest of a region's beginning, from now on.
  void put(Region region, const void* data, size_t size);
  // The name of a region that is not as at rest; nullptr if all are.
  const char* changed() const;
  // Contents of everything, and back to those at rest.
  std::vector<uint8_t> contents() const;
  void restore();
  void restore(void* start, size_t bytes);  // a part of one region
  static size_t offset(Region region);      // in contents()
  size_t place(const void* pointer) const;  // of an address in contents(); it must be in a region

  void synchronize(const char** fault) const;  // *fault: what stopped the device, nullptr if nothing did
  int last_error() const { return get_last_error_(); }

 private:
  Device();

  uint8_t* start_[kRegionCount] = {};
  uint8_t* workspace_ = nullptr;
  void* other_device_ = nullptr;
  void* freed_ = nullptr;
  std::vector<uint8_t> at_rest_;
  int (*synchronize_)() = nullptr;
  int (*get_last_error_)() = nullptr;
  const char* (*last_fault_)() = nullptr;
};

}  // namespace fmha::fuzz
