// SPDX-License-Identifier: MIT OR Apache-2.0
// The memory a device may touch: what came from this runtime, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fmha::emu {

enum class MemoryKind : uint8_t { kDevice, kHost, kRegistered, kManaged, kCode, kKernarg };

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  uint32_t shared_with = 0;  // bit n: device n may touch it without peer access (memory of a pool)
};

// The allocations of the process. Every function may be called from any thread.
// Allocations that hipMalloc and its kin give back are remembered (the last kFreedKept of them), and their
// addresses are not given out again: so an access to one is told as a use after free.
constexpr size_t kFreedKept = 65536;
void memory_add(const Allocation& a);
bool memory_remove(uint64_t base);                       // false: no allocation starts there
bool memory_find(uint64_t address, Allocation* out);     // the allocation that holds `address`
bool memory_overlaps(uint64_t address, uint64_t bytes);  // any of [address, address + bytes) is in one
std::vector<Allocation> memory_all();
bool memory_was_freed(uint64_t address);  // it was in an allocation that is remembered as freed
// "12 bytes past the end of 0x… (4096 bytes of device memory, device 0)", "freed: 8 bytes into 0x… (…)"
std::string memory_describe_nearest(uint64_t address);

// The devices whose memory a device may touch: bit n for device n.
inline constexpr int kMostDevices = 32;  // bits of a set of peers
void memory_set_peers(int device, uint32_t peers);
uint32_t memory_peers(int device);
bool memory_reachable(const Allocation& a, int device);

// A few allocations remembered by one wave, so that most accesses take no lock. An allocation is never freed
// while a launch runs: hipFree waits for the device.
class MemoryCache {
 public:
  explicit MemoryCache(int device = 0) : device_(device) {}
  uint8_t* lookup(uint64_t address, uint64_t bytes) {
    for (const Allocation& a : entries_) {
      if (address - a.base < a.bytes && bytes <= a.bytes - (address - a.base)) {
        return reinterpret_cast<uint8_t*>(address);
      }
    }
    return fill(address, bytes);
  }

 private:
  // nullptr: not all of it is in one allocation that the device may touch
  uint8_t* fill(uint64_t address, uint64_t bytes);
  Allocation entries_[8];
  uint32_t next_ = 0;
  int device_;
};

}  // namespace fmha::emu
