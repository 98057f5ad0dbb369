// SPDX-License-Identifier: MIT OR Apache-2.0
// The HIP runtime of this process: found, bound by name, never linked. The prototypes are our own, reduced to
// what is called, so that one binary serves every HIP release; the numbers below are the same in HIP 5, 6, 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fmha_rocm.h"

namespace fmha {

inline constexpr int kHipSuccess = 0;
inline constexpr int kHipErrorInvalidValue = 1;
inline constexpr int kHipErrorInvalidDevice = 101;
inline constexpr int kHipErrorInvalidHandle = 400;
inline constexpr int kHipErrorNoBinaryForGpu = 209;

// hipDeviceAttribute_t
inline constexpr int kHipAttributeComputeCapabilityMajor = 23;
inline constexpr int kHipAttributeComputeCapabilityMinor = 61;
inline constexpr int kHipAttributeMultiprocessorCount = 63;

// hipPointer_attribute
inline constexpr int kHipPointerMemoryType = 2;
inline constexpr int kHipPointerDeviceOrdinal = 9;

// hipStreamCaptureStatus
inline constexpr int kHipCaptureActive = 1;

// The legacy null stream's other handle, which ROCm before 7 does not take.
inline void* const kHipStreamLegacy = reinterpret_cast<void*>(1);

// hipModuleLaunchKernel's `extra` list: the arguments as one block of bytes.
inline void* const kHipLaunchBufferPointer = reinterpret_cast<void*>(1);
inline void* const kHipLaunchBufferSize = reinterpret_cast<void*>(2);
inline void* const kHipLaunchEnd = reinterpret_cast<void*>(3);

struct HipApi {
  std::string path;  // of the file the functions came from

  int (*hipInit)(unsigned flags);
  int (*hipRuntimeGetVersion)(int* version);
  int (*hipGetDevice)(int* device);
  int (*hipDeviceGetAttribute)(int* value, int attribute, int device);
  int (*hipPointerGetAttribute)(void* value, int attribute, void* pointer);
  int (*hipStreamIsCapturing)(void* stream, int* status);
  int (*hipModuleLoadData)(void** module, const void* image);
  int (*hipModuleUnload)(void* module);
  int (*hipModuleGetFunction)(void** function, void* module, const char* name);
  int (*hipModuleLaunchKernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned lds_bytes,
                               void* stream, void** params, void** extra);
  int (*hipMemsetAsync)(void* memory, int value, size_t bytes, void* stream);
  const char* (*hipGetErrorName)(int error);
  const char* (*hipGetErrorString)(int error);
  int (*hipGetLastError)();

  // Null before HIP 6: hipDeviceProp_tR0600, of which only the place of the arch's name is known here.
  int (*hipGetDevicePropertiesR0600)(void* properties, int device);
};

// The runtime in use, bound now if none is, and initialised. Lock-free once that has been done.
const HipApi& hip();

// Like hip(), but does not initialise it: a machine without a device has a path too.
const HipApi& bind_hip();

// Binds the runtime at this path; fails if another one is in use.
void choose_hip(const char* path);

// A place to look for a runtime: the path of a file, or a name for the loader.
struct HipCandidate {
  fmha_hip_source source;
  std::string path;
};

// All places, in the order of fmha_set_hip_runtime. Loads nothing.
std::vector<HipCandidate> search_hip();

// Fails with HIP_ERROR, naming the call, what it was for and what the runtime said. The failed call is also
// taken off HIP's own last-error slot: it has been reported here, and the next framework to look would take
// it for its own.
[[noreturn, gnu::format(printf, 4, 5)]] void raise_hip(const HipApi& api, const char* call, int error,
                                                       const char* format, ...);

}  // namespace fmha
