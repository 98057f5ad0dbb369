// SPDX-License-Identifier: MIT OR Apache-2.0
#include "device.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace fmha::fuzz {
namespace {

[[noreturn]] void die(const char* what, const char* why) {
  std::fprintf(stderr, "fuzz: %s: %s\n", what, why != nullptr ? why : "unknown reason");
  std::exit(1);
}

template <typename Function>
void bind(void* library, const char* name, Function& function) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) die(name, "the software device has no such function");
  function = reinterpret_cast<Function>(symbol);
}

}  // namespace

const char* name_of(Region region) {
  constexpr const char* kNames[] = {"q",       "k",    "v",    "o",      "lse",    "bias",
                                    "randval", "dout", "dq",   "dk",     "dv",     "dbias",
                                    "slopes",  "cu_q", "cu_k", "used_q", "used_k", "philox"};
  static_assert(std::size(kNames) == kRegionCount);
  return kNames[region];
}

Device& Device::get() {
  static auto* device = new Device;  // never destroyed: the runtime may be gone by then
  return *device;
}

Device::Device() {
  const char* path = fmha_hip_runtime_path();
  if (path == nullptr) die("no HIP runtime", fmha_last_error());
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) die(path, dlerror());
  int (*allocate)(void**, size_t) = nullptr;
  int (*release)(void*) = nullptr;
  int (*set_device)(int) = nullptr;
  bind(library, "hipMalloc", allocate);
  bind(library, "hipFree", release);
  bind(library, "hipSetDevice", set_device);
  bind(library, "hipDeviceSynchronize", synchronize_);
  bind(library, "hipGetLastError", get_last_error_);
  bind(library, "fmha_emu_last_fault", last_fault_);
  const auto must = [](int error, const char* what) {
    if (error != 0) die(what, "failed");
  };
  must(set_device(1), "hipSetDevice(1) (FMHA_EMU_DEVICES=2 is needed)");
  must(allocate(&other_device_, kTensorBytes), "hipMalloc on device 1");
  must(set_device(0), "hipSetDevice(0)");
  must(allocate(&freed_, kTensorBytes), "hipMalloc");
  must(release(freed_), "hipFree");
  void* workspace = nullptr;
  must(allocate(&workspace, kWorkspaceBytes), "hipMalloc");
  workspace_ = static_cast<uint8_t*>(workspace);
  for (int i = 0; i < kRegionCount; ++i) {
    void* p = nullptr;
    must(allocate(&p, bytes(static_cast<Region>(i))), "hipMalloc");
    start_[i] = static_cast<uint8_t*>(p);
    // Small numbers in every type: bytes below 0x38 make floats of 8 and 16 bits below 1, and with a zero
    // high byte they make floats of 32 bits that are finite.
    for (size_t at = 0; at < bytes(static_cast<Region>(i)); ++at) {
      start_[i][at] = static_cast<uint8_t>((at * 37 + at / 251 + static_cast<size_t>(i) * 11) % 0x38);
    }
  }
  at_rest_ = contents();
}

size_t Device::offset(Region region) {
  size_t at = 0;
  for (int i = 0; i < region; ++i) at += bytes(static_cast<Region>(i));
  return at;
}

bool Device::holds(const void* pointer, uint64_t count) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (int i = 0; i < kRegionCount; ++i) {
    const auto first = reinterpret_cast<uintptr_t>(start_[i]);
    const uint64_t size = bytes(static_cast<Region>(i));
    if (address >= first && address - first <= size && count <= size - (address - first)) return true;
  }
  return false;
}

bool Device::is_workspace(const void* pointer, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer), first = reinterpret_cast<uintptr_t>(workspace_);
  return address >= first && address - first <= kWorkspaceBytes &&
         bytes <= kWorkspaceBytes - (address - first);
}

void Device::put(Region region, const void* data, size_t size) {
  std::memcpy(start_[region], data, size);
  std::memcpy(at_rest_.data() + offset(region), data, size);
}

const char* Device::changed() const {
  for (int i = 0; i < kRegionCount; ++i) {
    const auto region = static_cast<Region>(i);
    if (std::memcmp(start_[i], at_rest_.data() + offset(region), bytes(region)) != 0) return name_of(region);
  }
  return nullptr;
}

std::vector<uint8_t> Device::contents() const {
  std::vector<uint8_t> all(offset(kRegionCount));
  for (int i = 0; i < kRegionCount; ++i) {
    const auto region = static_cast<Region>(i);
    std::memcpy(all.data() + offset(region), start_[i], bytes(region));
  }
  return all;
}

void Device::restore() {
  for (int i = 0; i < kRegionCount; ++i) {
    const auto region = static_cast<Region>(i);
    std::memcpy(start_[i], at_rest_.data() + offset(region), bytes(region));
  }
}

void Device::restore(void* start, size_t bytes) { std::memcpy(start, at_rest_.data() + place(start), bytes); }

size_t Device::place(const void* pointer) const {
  const auto* at = static_cast<const uint8_t*>(pointer);
  for (int i = 0; i < kRegionCount; ++i) {
    const auto region = static_cast<Region>(i);
    if (at >= start_[i] && at < start_[i] + bytes(region)) {
      return offset(region) + static_cast<size_t>(at - start_[i]);
    }
  }
  die("an address outside every region", "a defect of the fuzzer");
}

void Device::synchronize(const char** fault) const { *fault = synchronize_() == 0 ? nullptr : last_fault_(); }

}  // namespace fmha::fuzz
