// SPDX-License-Identifier: MIT OR Apache-2.0
// The entry points that hipcc's host code calls: they register its embedded code objects, and launch by the
// address of a host stub. Code is loaded on a device when first used there.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/per_thread.h"
#include "hip/graph/graph.h"
#include "hip/module.h"

namespace fmha::emu {
namespace {

// __CudaFatBinaryWrapper.
struct FatBinary {
  uint32_t magic, version;
  const void* image;
  void* unused;
};
constexpr uint32_t kFatMagic = 0x48495046;  // "HIPF"

struct Registered {
  const void* image = nullptr;
  std::map<int, HipModule> modules;  // by device
};
struct Name {
  Registered* binary;
  std::string device_name;
};
struct PushedLaunch {
  HipDim3 grid, block;
  size_t dynamic_lds;
  HipStream stream;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Name> functions, variables;
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

std::vector<PushedLaunch>& pushed() { return per_thread<std::vector<PushedLaunch>>(); }

// The module of `binary` on `device_index`; called with the registry locked.
int module_on(Registered* binary, int device_index, HipModule* out) {
  const auto it = binary->modules.find(device_index);
  if (it != binary->modules.end()) return *out = it->second, static_cast<int>(hipSuccess);
  const size_t bytes = code_object_bytes(binary->image);
  if (!bytes)
    return fail(hipErrorInvalidImage, "registered code is neither a code object nor an offload bundle");
  if (const int e = load_module(out, binary->image, bytes, device_index, "registered code")) return e;
  binary->modules[device_index] = *out;
  return hipSuccess;
}

int find_stub(const void* stub, int device_index, const char* caller, HipFunction* out) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto it = r.functions.find(stub);
  if (it == r.functions.end())
    return fail(hipErrorInvalidDeviceFunction, "%s: %p is not a kernel", caller, stub);
  HipModule module = nullptr;
  if (const int e = module_on(it->second.binary, device_index, &module)) return e;
  *out = module_function(module, it->second.device_name.c_str());
  if (*out) return hipSuccess;
  return fail(hipErrorInvalidDeviceFunction, "%s: no kernel %s", caller, it->second.device_name.c_str());
}

int find_variable(const void* symbol, const char* caller, uint64_t* address, uint64_t* bytes) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto it = r.variables.find(symbol);
  if (it == r.variables.end())
    return fail(hipErrorInvalidSymbol, "%s: %p is not a device variable", caller, symbol);
  HipModule module = nullptr;
  if (const int e = module_on(it->second.binary, current_device(), &module)) return e;
  if (module->code->global(it->second.device_name.c_str(), address, bytes)) return hipSuccess;
  return fail(hipErrorInvalidSymbol, "%s: no variable %s", caller, it->second.device_name.c_str());
}

}  // namespace

HipFunction stub_function(const void* stub, int device_index, const char* caller) {
  HipFunction function = nullptr;
  return find_stub(stub, device_index, caller, &function) ? nullptr : function;
}

}  // namespace fmha::emu

using namespace fmha::emu;
extern "C" int hipMemcpy(void* dst, const void* src, size_t bytes, int kind);

HIP_API void** __hipRegisterFatBinary(const void* data) {
  const auto* fat = static_cast<const FatBinary*>(data);
  if (!fat || fat->magic != kFatMagic) {
    fail(hipErrorInvalidImage, "__hipRegisterFatBinary: not a HIP fat binary");
    return nullptr;
  }
  auto* binary = new Registered;
  binary->image = fat->image;
  return reinterpret_cast<void**>(binary);
}

HIP_API void __hipRegisterFunction(void** handle, const void* stub, char*, const char* device_name, unsigned,
                                   void*, void*, void*, void*, int*) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (handle) r.functions[stub] = {reinterpret_cast<Registered*>(handle), device_name};
}

HIP_API void __hipRegisterVar(void** handle, void* variable, char*, char* device_name, int, size_t, int,
                              int) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (handle) r.variables[variable] = {reinterpret_cast<Registered*>(handle), device_name};
}

HIP_API void __hipUnregisterFatBinary(void** handle) {
  auto* binary = reinterpret_cast<Registered*>(handle);
  if (!binary || process_use == Use::kInParent) return;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::erase_if(r.functions, [&](const auto& e) { return e.second.binary == binary; });
  std::erase_if(r.variables, [&](const auto& e) { return e.second.binary == binary; });
  for (const auto& [index, module] : binary->modules) unload_module(module, "__hipUnregisterFatBinary");
  delete binary;
}

HIP_API int __hipPushCallConfiguration(HipDim3 grid, HipDim3 block, size_t dynamic_lds, HipStream stream) {
  return guarded([&] {
    pushed().push_back({grid, block, dynamic_lds, stream});
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int __hipPopCallConfiguration(HipDim3* grid, HipDim3* block, size_t* dynamic_lds, HipStream* stream) {
  return answered([&]() -> int {
    if (pushed().empty())
      return fail(hipErrorInvalidConfiguration, "__hipPopCallConfiguration: nothing was pushed");
    *grid = pushed().back().grid;
    *block = pushed().back().block;
    *dynamic_lds = pushed().back().dynamic_lds;
    *stream = pushed().back().stream;
    pushed().pop_back();
    return hipSuccess;
  });
}

HIP_API int hipLaunchKernel(const void* stub, HipDim3 grid, HipDim3 block, void** args, size_t dynamic_lds,
                            HipStream stream) {
  return guarded([&] {
    HipFunction function = nullptr;
    if (const int e = check_stream(stream, "hipLaunchKernel")) return e;
    if (const int e = find_stub(stub, stream_device(stream), "hipLaunchKernel", &function)) return e;
    const size_t lds = std::min<size_t>(dynamic_lds, ~0u);
    return launch(function, grid, block, static_cast<uint32_t>(lds), stream, args, nullptr,
                  "hipLaunchKernel");
  });
}
HIP_API int hipLaunchKernel_spt(const void* stub, HipDim3 grid, HipDim3 block, void** args,
                                size_t dynamic_lds, HipStream stream) {
  return hipLaunchKernel(stub, grid, block, args, dynamic_lds, stream);
}

HIP_API int hipFuncGetAttributes(HipFuncAttributes* out, const void* stub) {
  return guarded([&] {
    HipFunction function = nullptr;
    if (!out) return fail(hipErrorInvalidValue, "hipFuncGetAttributes: attr is null");
    if (const int e = find_stub(stub, current_device(), "hipFuncGetAttributes", &function)) return e;
    function_attributes(*function->kernel, out);
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipGetSymbolAddress(void** address, const void* symbol) {
  return guarded([&] {
    uint64_t at = 0, bytes = 0;
    if (!address) return fail(hipErrorInvalidValue, "hipGetSymbolAddress: devPtr is null");
    if (const int e = find_variable(symbol, "hipGetSymbolAddress", &at, &bytes)) return e;
    *address = reinterpret_cast<void*>(at);
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipGetSymbolSize(size_t* size, const void* symbol) {
  return guarded([&] {
    uint64_t at = 0, bytes = 0;
    if (!size) return fail(hipErrorInvalidValue, "hipGetSymbolSize: size is null");
    if (const int e = find_variable(symbol, "hipGetSymbolSize", &at, &bytes)) return e;
    *size = bytes;
    return static_cast<int>(hipSuccess);
  });
}

HIP_API int hipMemcpyToSymbol(const void* symbol, const void* src, size_t bytes, size_t offset, int kind) {
  return guarded([&] {
    uint64_t at = 0, size = 0;
    if (const int e = find_variable(symbol, "hipMemcpyToSymbol", &at, &size)) return e;
    if (offset > size || bytes > size - offset)
      return fail(hipErrorInvalidValue, "hipMemcpyToSymbol: out of bounds");
    return hipMemcpy(reinterpret_cast<void*>(at + offset), src, bytes, kind);
  });
}

HIP_API int hipMemcpyFromSymbol(void* dst, const void* symbol, size_t bytes, size_t offset, int kind) {
  return guarded([&] {
    uint64_t at = 0, size = 0;
    if (const int e = find_variable(symbol, "hipMemcpyFromSymbol", &at, &size)) return e;
    if (offset > size || bytes > size - offset)
      return fail(hipErrorInvalidValue, "hipMemcpyFromSymbol: out of bounds");
    return hipMemcpy(dst, reinterpret_cast<void*>(at + offset), bytes, kind);
  });
}
