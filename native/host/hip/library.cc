// SPDX-License-Identifier: MIT OR Apache-2.0
#include "hip/library.h"

#include "platform/platform.h"

namespace fmha {
namespace {

template <typename Function>
bool resolve(platform::Library library, const char* name, Function& function, std::string& why) {
  void* symbol = platform::find_function(library, name);
  function = reinterpret_cast<Function>(symbol);
  if (symbol == nullptr) {
    why = platform::path_of(library, "it") + " has no " + name + ": not a HIP runtime, or too old";
  }
  return symbol != nullptr;
}

bool resolve_all(platform::Library library, HipApi& api, std::string& why) {
  std::string ignored;
  (void)resolve(library, "hipGetDevicePropertiesR0600", api.hipGetDevicePropertiesR0600, ignored);
#define FMHA_RESOLVE(name) resolve(library, #name, api.name, why)
  return FMHA_RESOLVE(hipInit) && FMHA_RESOLVE(hipRuntimeGetVersion) && FMHA_RESOLVE(hipGetDevice) &&
         FMHA_RESOLVE(hipDeviceGetAttribute) && FMHA_RESOLVE(hipPointerGetAttribute) &&
         FMHA_RESOLVE(hipStreamIsCapturing) && FMHA_RESOLVE(hipModuleLoadData) &&
         FMHA_RESOLVE(hipModuleUnload) && FMHA_RESOLVE(hipModuleGetFunction) &&
         FMHA_RESOLVE(hipModuleLaunchKernel) && FMHA_RESOLVE(hipMemsetAsync) &&
         FMHA_RESOLVE(hipGetErrorName) && FMHA_RESOLVE(hipGetErrorString) && FMHA_RESOLVE(hipGetLastError);
#undef FMHA_RESOLVE
}

std::unique_ptr<HipApi> bind(platform::Library library, const char* path, std::string& why) {
  auto api = std::make_unique<HipApi>();
  if (resolve_all(library, *api, why)) {
    api->path = platform::path_of(library, path);
    return api;
  }
  platform::close(library);
  return nullptr;
}

}  // namespace

std::unique_ptr<HipApi> open_hip(const char* path, std::string& why) {
  if (!platform::is_loadable(path, why)) return nullptr;
  platform::Library library = platform::open(path, why);
  return library != nullptr ? bind(library, path, why) : nullptr;
}

std::unique_ptr<HipApi> open_loaded_hip(const char* path, std::string& why) {
  platform::Library library = platform::open_loaded(path);
  if (library != nullptr) return bind(library, path, why);
  why = "it is not loaded";
  return nullptr;
}

}  // namespace fmha
