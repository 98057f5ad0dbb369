// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions by name, kernels by host stub.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "hip/graph/graph.h"

namespace fmha::emu {
namespace {

enum LookupFlags : uint64_t { kDefault = 0, kLegacyStream = 1, kPerThreadStream = 2 };
enum LookupStatus : int { kFound, kNotFound, kTooOld };

// This library, whatever its name.
void* own_library() {
  static void* const handle = [] {
    Dl_info info;
    return dladdr(reinterpret_cast<void*>(&own_library), &info)
               ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
               : nullptr;
  }();
  return handle;
}

// The name of a function whose structs have another layout since HIP 6. `version`: 100 * major + minor, or
// HIP_VERSION.
std::string name_for(const char* symbol, int version) {
  const bool is_newer =
      !std::strcmp(symbol, "hipGetDeviceProperties") || !std::strcmp(symbol, "hipChooseDevice");
  return std::string(symbol) + (is_newer && version >= 600 ? "R0600" : "");
}

void* look_up(const char* symbol, int version, uint64_t flags) {
  if (std::strncmp(symbol, "hip", 3) != 0 && std::strncmp(symbol, "__hip", 5) != 0) return nullptr;
  const std::string name = name_for(symbol, version);
  void* p = flags & kPerThreadStream ? dlsym(own_library(), (name + "_spt").c_str()) : nullptr;
  return p ? p : dlsym(own_library(), name.c_str());
}

}  // namespace
}  // namespace fmha::emu

using namespace fmha::emu;

HIP_API int hipGetProcAddress(const char* symbol, void** function, int version, uint64_t flags, int* found) {
  return guarded([&] {
    if (!symbol || !*symbol || !function)
      return fail(hipErrorInvalidValue, "hipGetProcAddress: symbol or pfn is null");
    if (flags > kPerThreadStream)
      return fail(hipErrorInvalidValue, "hipGetProcAddress: flags is %llu, expected 0 to 2",
                  static_cast<unsigned long long>(flags));
    *function = look_up(symbol, version, flags);
    if (found) *found = *function ? kFound : kNotFound;
    if (*function) return static_cast<int>(hipSuccess);
    return fail(hipErrorInvalidValue, "hipGetProcAddress: the software device has no function %s", symbol);
  });
}

HIP_API int hipGetFuncBySymbol(HipFunction* out, const void* symbol) {
  return guarded([&] {
    if (!out || !symbol)
      return fail(hipErrorInvalidValue, "hipGetFuncBySymbol: functionPtr or symbolPtr is null");
    *out = stub_function(symbol, current_device(), "hipGetFuncBySymbol");
    return static_cast<int>(*out ? hipSuccess : hipErrorInvalidDeviceFunction);
  });
}
