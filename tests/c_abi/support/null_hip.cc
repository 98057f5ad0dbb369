// SPDX-License-Identifier: MIT OR Apache-2.0
// The null device: a libamdhip64 whose launches do nothing, for benchmarks/call_overhead.py. It stands in for
// all of HIP that the library, pyfa_rocm and hip-python call on the way to a launch, so that what is measured
// on it is the callers' own work. It keeps the work of a real runtime that a caller cannot avoid: it
// looks a pointer's owner up in an ordered map under a lock, as ROCm's MemObjMap does.

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "hip/types.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kVersion = 60200000;  // HIP 6.2

// A gfx942.
constexpr int kMajor = 9;
constexpr int kMinor = 4;
constexpr int kComputeUnits = 304;

// hipDeviceAttribute_t and hipPointer_attribute, the numbers that are asked for.
constexpr int kAttributeMajor = 23;
constexpr int kAttributeMinor = 61;
constexpr int kAttributeComputeUnits = 63;
constexpr int kPointerMemoryType = 2;
constexpr int kPointerDeviceOrdinal = 9;

// Allocations of other parts of an imagined program, so that the map is as deep as one that runs a model.
constexpr int kOtherAllocations = 1024;
constexpr size_t kOtherBytes = size_t{1} << 16;

struct Memory {
  Memory() {
    // Addresses that nobody hands out: they are never read.
    for (int i = 0; i < kOtherAllocations; ++i) {
      const uintptr_t start = uintptr_t{0x7000'0000'0000} + static_cast<uintptr_t>(i) * 2 * kOtherBytes;
      allocations[start] = kOtherBytes;
    }
  }

  std::mutex mutex;
  std::map<uintptr_t, size_t> allocations;  // start, bytes
};

// Neither is ever destroyed: callers may come while the process ends.
Memory& memory() {
  static auto* m = new Memory;
  return *m;
}

// A runtime has threads of its own. That matters here: in a process with one thread glibc's locks are cheaper
// than they ever are beside a real runtime.
void start_thread() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::thread([] {
      std::mutex mutex;
      std::condition_variable never;
      std::unique_lock lock(mutex);
      never.wait(lock, [] { return false; });
    }).detach();
  });
}

thread_local int t_device = 0;
uint64_t g_launches = 0;  // not atomic: it must cost nothing, and one thread measures
int g_stream;             // the address of it is every stream and event

bool is_known(const void* pointer) {
  Memory& m = memory();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard lock(m.mutex);
  const auto after = m.allocations.upper_bound(address);
  if (after == m.allocations.begin()) return false;
  const auto& [start, bytes] = *std::prev(after);
  return address - start < bytes;
}

int allocate(void** out, size_t bytes) {
  *out = nullptr;
  if (bytes == 0) return kSuccess;
  void* p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (p == nullptr) return kOutOfMemory;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  m.allocations[reinterpret_cast<uintptr_t>(p)] = bytes;
  *out = p;
  return kSuccess;
}

int release(void* pointer) {
  if (pointer == nullptr) return kSuccess;
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (m.allocations.erase(reinterpret_cast<uintptr_t>(pointer)) == 0) return kInvalidValue;
  std::free(pointer);
  return kSuccess;
}

int handle(void** out) {
  *out = &g_stream;
  return kSuccess;
}

}  // namespace

// Launches so far, for a benchmark to see that each call made one.
EXPORT uint64_t null_hip_launches(void) { return g_launches; }

EXPORT int hipInit(unsigned) {
  start_thread();
  return kSuccess;
}
EXPORT int hipRuntimeGetVersion(int* version) { return *version = kVersion, kSuccess; }
EXPORT int hipDriverGetVersion(int* version) { return *version = kVersion, kSuccess; }
EXPORT int hipGetDeviceCount(int* count) { return *count = 1, kSuccess; }
EXPORT int hipGetDevice(int* device) { return *device = t_device, kSuccess; }
EXPORT int hipSetDevice(int device) {
  if (device != 0) return kInvalidDevice;
  return t_device = device, kSuccess;
}
EXPORT int hipDeviceSynchronize(void) { return kSuccess; }

EXPORT int hipGetDevicePropertiesR0600(fmha::emu::HipDeviceProp* properties, int device) {
  if (device != 0) return kInvalidDevice;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Null device");
  std::snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "gfx942");
  properties->major = kMajor;
  properties->minor = kMinor;
  properties->warpSize = 64;
  properties->multiProcessorCount = kComputeUnits;
  properties->totalGlobalMem = size_t{1} << 37;
  return kSuccess;
}

EXPORT int hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0) return kInvalidDevice;
  switch (attribute) {
    case kAttributeMajor:
      return *value = kMajor, kSuccess;
    case kAttributeMinor:
      return *value = kMinor, kSuccess;
    case kAttributeComputeUnits:
      return *value = kComputeUnits, kSuccess;
    default:
      return kInvalidValue;
  }
}

EXPORT int hipPointerGetAttribute(void* value, int attribute, void* pointer) {
  if (!is_known(pointer)) return kInvalidValue;
  if (attribute != kPointerMemoryType && attribute != kPointerDeviceOrdinal) return kInvalidValue;
  const int answer = attribute == kPointerDeviceOrdinal ? 0 : 2;  // hipMemoryTypeDevice of HIP 6
  std::memcpy(value, &answer, sizeof answer);
  return kSuccess;
}

// hipPointerAttribute_t of HIP 6.
struct PointerAttributes {
  int type, device;
  void *device_pointer, *host_pointer;
  int is_managed;
  unsigned flags;
};
EXPORT int hipPointerGetAttributes(PointerAttributes* out, const void* pointer) {
  if (!is_known(pointer)) return kInvalidValue;
  *out = {.type = 2,
          .device = 0,
          .device_pointer = const_cast<void*>(pointer),
          .host_pointer = nullptr,
          .is_managed = 0,
          .flags = 0};
  return kSuccess;
}

EXPORT int hipMalloc(void** out, size_t bytes) { return allocate(out, bytes); }
EXPORT int hipFree(void* pointer) { return release(pointer); }
EXPORT int hipMallocAsync(void** out, size_t bytes, void*) { return allocate(out, bytes); }
EXPORT int hipFreeAsync(void* pointer, void*) { return release(pointer); }
EXPORT int hipMemcpy(void* to, const void* from, size_t bytes, int) {
  return std::memcpy(to, from, bytes), kSuccess;
}
EXPORT int hipMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) {
  return std::memcpy(to, from, bytes), kSuccess;
}

EXPORT int hipMemsetAsync(void* memory, int value, size_t bytes, void*) {
  return std::memset(memory, value, bytes), kSuccess;
}

EXPORT int hipStreamCreate(void** stream) { return handle(stream); }
EXPORT int hipStreamIsCapturing(void*, int* status) { return *status = 0, kSuccess; }
EXPORT int hipStreamSynchronize(void*) { return kSuccess; }
EXPORT int hipStreamDestroy(void*) { return kSuccess; }
EXPORT int hipStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
EXPORT int hipThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
EXPORT int hipEventCreateWithFlags(void** event, unsigned) { return handle(event); }
EXPORT int hipEventRecord(void*, void*) { return kSuccess; }
EXPORT int hipEventDestroy(void*) { return kSuccess; }

EXPORT int hipModuleLoadData(void** module, const void* image) {
  return *module = const_cast<void*>(image), kSuccess;
}
EXPORT int hipModuleUnload(void*) { return kSuccess; }
EXPORT int hipModuleGetFunction(void** function, void* module, const char*) {
  return *function = module, kSuccess;
}
EXPORT int hipModuleLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 void*, void**, void**) {
  ++g_launches;
  return kSuccess;
}

EXPORT const char* hipGetErrorName(int error) { return error == kSuccess ? "hipSuccess" : "hipErrorNull"; }
EXPORT const char* hipGetErrorString(int error) {
  return error == kSuccess ? "no error" : "the null device refused";
}
EXPORT int hipGetLastError(void) { return kSuccess; }
EXPORT int hipPeekAtLastError(void) { return kSuccess; }
