// SPDX-License-Identifier: MIT OR Apache-2.0
#include "fake_hip.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kInvalidValue = 1;

fake_hip_state gfx942() {
  fake_hip_state state{};
  state.capability_major = 9;
  state.capability_minor = 4;
  state.version = 60200000;
  state.arch_name = "gfx942:sramecc+:xnack-";
  return state;
}

fake_hip_state g_state = gfx942();
thread_local int t_device = 0;

// Memory of this runtime: an address belongs to it if it is within one of these.
struct Allocation {
  char* start;
  size_t bytes;
  int device;
  int type;  // of the HIP 6 numbering: 1 host, 2 device
};
Allocation g_allocations[64];

int allocate(void** out, size_t bytes, int type) {
  for (Allocation& a : g_allocations) {
    if (a.start != nullptr) continue;
    a = {static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)), bytes, t_device, type};
    *out = a.start;
    return 0;
  }
  return 2;
}

}  // namespace

EXPORT fake_hip_state* fake_hip(void) { return &g_state; }

EXPORT int hipInit(unsigned) {
  ++g_state.inits;
  return g_state.init_error;
}

EXPORT int hipRuntimeGetVersion(int* version) {
  *version = g_state.version;
  return 0;
}

EXPORT int hipGetDevice(int* device) {
  ++g_state.get_devices;
  *device = t_device;
  return 0;
}

EXPORT int hipSetDevice(int device) {
  t_device = device;
  return 0;
}

EXPORT int hipDeviceGetAttribute(int* value, int attribute, int) {
  ++g_state.attributes;
  constexpr int kMajor = 23, kMinor = 61, kMultiprocessorCount = 63;
  if (attribute == kMajor) *value = g_state.capability_major;
  if (attribute == kMinor) *value = g_state.capability_minor;
  if (attribute == kMultiprocessorCount) *value = 304;
  return attribute == kMajor || attribute == kMinor || attribute == kMultiprocessorCount ? 0 : kInvalidValue;
}

// hipDeviceProp_tR0600: the name of the arch is at byte 1160 of 1472.
EXPORT int hipGetDevicePropertiesR0600(char* properties, int) {
  ++g_state.attributes;
  std::memset(properties, 0, 1472);
  std::strncpy(properties + 1160, g_state.arch_name, 255);
  return 0;
}

EXPORT int hipPointerGetAttribute(void* value, int attribute, void* pointer) {
  ++g_state.pointer_queries;
  if (g_state.pointer_error != 0) return g_state.pointer_error;
  for (const Allocation& a : g_allocations) {
    if (a.start == nullptr || pointer < a.start || pointer >= a.start + a.bytes) continue;
    const int type = g_state.version >= 60000000 ? a.type : a.type - 1;
    const int answer = attribute == 9 ? a.device : type;
    std::memcpy(value, &answer, sizeof answer);
    return 0;
  }
  return kInvalidValue;
}

// Like ROCm, it takes no legacy stream by its handle.
EXPORT int hipStreamIsCapturing(void* stream, int* status) {
  ++g_state.capture_queries;
  *status = stream == g_state.capturing ? 1 : 0;
  return stream == reinterpret_cast<void*>(1) ? 400 : 0;
}

EXPORT int hipMalloc(void** out, size_t bytes) { return allocate(out, bytes, 2); }
EXPORT int hipHostMalloc(void** out, size_t bytes, unsigned) { return allocate(out, bytes, 1); }

// A module is a number: the first is 1.
EXPORT int hipModuleLoadData(void** module, const void* image) {
  ++g_state.loads;
  if (g_state.load_error != 0) return g_state.load_error;
  if (std::memcmp(image, "\177ELF", 4) != 0) return kInvalidValue;
  *module = reinterpret_cast<void*>(static_cast<uintptr_t>(g_state.loads));
  return 0;
}

EXPORT int hipModuleUnload(void*) {
  ++g_state.unloads;
  return 0;
}

// A function is its name.
EXPORT int hipModuleGetFunction(void** function, void* /*module*/, const char* name) {
  ++g_state.get_functions;
  if (g_state.get_function_error != 0) return g_state.get_function_error;
  *function = strdup(name);
  return 0;
}

EXPORT int hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                 unsigned by, unsigned bz, unsigned lds, void* stream, void** params,
                                 void** extra) {
  ++g_state.launches;
  if (g_state.launch_error != 0 && g_state.launches_before_error-- <= 0) return g_state.launch_error;
  if (params != nullptr || extra[0] != reinterpret_cast<void*>(1) || extra[2] != reinterpret_cast<void*>(2) ||
      extra[4] != reinterpret_cast<void*>(3)) {
    return kInvalidValue;
  }
  g_state.grid[0] = gx, g_state.grid[1] = gy, g_state.grid[2] = gz;
  g_state.block[0] = bx, g_state.block[1] = by, g_state.block[2] = bz;
  g_state.lds_bytes = lds;
  std::strncpy(g_state.function_name, static_cast<const char*>(function), sizeof g_state.function_name - 1);
  g_state.stream = stream;
  g_state.argument_bytes = *static_cast<size_t*>(extra[3]);
  if (g_state.argument_bytes > sizeof g_state.arguments) return kInvalidValue;
  std::memcpy(g_state.arguments, extra[1], g_state.argument_bytes);
  return 0;
}

EXPORT int hipMemsetAsync(void* memory, int value, size_t bytes, void* stream) {
  ++g_state.memsets;
  if (g_state.memset_error != 0) return g_state.memset_error;
  g_state.memset_memory = memory;
  g_state.memset_value = value;
  g_state.memset_bytes = bytes;
  g_state.memset_stream = stream;
  g_state.launches_before_memset = g_state.launches;
  return 0;
}

EXPORT const char* hipGetErrorName(int error) {
  return error == 209 ? "hipErrorNoBinaryForGpu" : "hipErrorFake";
}
EXPORT const char* hipGetErrorString(int) { return "the fake runtime was told to fail"; }

EXPORT int hipGetLastError(void) {
  ++g_state.last_error_reads;
  return 0;
}
